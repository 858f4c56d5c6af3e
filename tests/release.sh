#!/bin/sh
# The amounts of a release: hours. Adds a line to RELIABILITY.md, unless the run looked at less than the
# newest line there. `IMAGES`, `NESTED`, `STRIDE`, `FLIPS`, `KILLS` and `SEED` change the amounts.
set -eu
cd "$(dirname "$0")/.."
export EVENTLOG_PROOF_IMAGES="${IMAGES:-20000000}" EVENTLOG_PROOF_NESTED="${NESTED:-10000000}"
export EVENTLOG_PROOF_STRIDE="${STRIDE:-1}" EVENTLOG_PROOF_FLIPS="${FLIPS:-100000000}"
export EVENTLOG_TEST_KILLS="${KILLS:-20000}" EVENTLOG_PROOF_SEED="${SEED:-1}"
commit=$(git describe --always --dirty --exclude '*')
mkdir -p target
out=target/release-proof.log
cargo test --release --all-features --test crash --test damage --test faults --test processes -- --nocapture --test-threads 1 >"$out" 2>&1 ||
    { tail -n 40 "$out"; exit 1; }
# The figures are what the tests say that they have looked at. $1: the test, $2 and $3: what stands before and behind the number.
figure() {
    found=$(grep -A1 "$1" "$out" | sed -n "s/.*$2\([0-9][0-9]*\)$3.*/\1/p" | head -n 1)
    [ -n "$found" ] || { echo "$out does not say how much $1 looked at" >&2; exit 1; }
    echo "$found"
}
images=$(figure i1_i2_i3_i6 '\.\.\. ' ' images of')
seeds=$(figure i1_i2_i3_i6 ' images of ' ' seeds')
nested=$(figure i4_i5_a_cut '\.\.\. ' ' images of')
small=$(figure cuts_of_every_workload '\.\.\. ' ' images of')
reported=$(figure i8_a_flipped_bit_in_the_store '\.\.\. ' ' flips reported')
silent=$(figure i8_a_flipped_bit_in_the_store ', ' ' without effect')
flips=$((reported + silent))
kills=$(figure d2_a_kill '\.\.\. ' ' kills,')
row="| $(date -u +%F) | $commit | $EVENTLOG_PROOF_SEED to $((EVENTLOG_PROOF_SEED + seeds - 1)) | $images | $nested | $small | $flips | $kills | 0 |"
echo "$row"
# What stands in RELIABILITY.md stays there, and nothing that shows less is put above it.
awk -v row="$row" '
    { print }
    table == 1 { table = 2; print row; next }
    table == 2 {
        table = 3
        split($0, old, "|"); split(row, new, "|")
        for (n = 5; n <= 9; n++) if (new[n] + 0 < old[n] + 0) exit 3
    }
    /^\| date \| commit/ { table = 1 }
    END { if (!table) exit 4 }
' RELIABILITY.md >target/reliability.md || {
    [ $? -eq 3 ] || { echo "RELIABILITY.md has lost its table" >&2; exit 1; }
    echo "RELIABILITY.md stays as it is: its newest line shows more"
    exit 0
}
[ "$(wc -l <target/reliability.md)" -eq $(($(wc -l <RELIABILITY.md) + 1)) ]
cat target/reliability.md >RELIABILITY.md
