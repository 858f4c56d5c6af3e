#!/bin/sh
# The amounts of a release: hours. Adds a line to RELIABILITY.md. `IMAGES`, `NESTED`, `STRIDE`, `FLIPS`, `KILLS` and `SEED` change them.
set -eu
cd "$(dirname "$0")/.."
export EVENTLOG_PROOF_IMAGES="${IMAGES:-20000000}" EVENTLOG_PROOF_NESTED="${NESTED:-10000000}"
export EVENTLOG_PROOF_STRIDE="${STRIDE:-1}" EVENTLOG_PROOF_FLIPS="${FLIPS:-100000000}"
export EVENTLOG_TEST_KILLS="${KILLS:-20000}" EVENTLOG_PROOF_SEED="${SEED:-1}"
commit=$(git rev-parse --short HEAD)
out=target/release-proof.log
cargo test --release --all-features --test crash --test damage --test faults --test processes -- --nocapture --test-threads 1 >"$out" 2>&1 ||
    { tail -n 40 "$out"; exit 1; }
# The figures are what the tests say that they have looked at.
figure() { sed -n "s/$1/\\1/p" "$out" | head -n "$2" | tail -n 1; }
images=$(grep -A1 "i1_i2_i3_i6" "$out" | sed -n 's/.*\b\([0-9]*\) images of \([0-9]*\) seeds/\1/p' | head -n 1)
seeds=$(grep -A1 "i1_i2_i3_i6" "$out" | sed -n 's/.*\b\([0-9]*\) images of \([0-9]*\) seeds/\2/p' | head -n 1)
nested=$(grep -A1 "i4_i5_a_cut" "$out" | sed -n 's/.*\b\([0-9]*\) images of .*/\1/p' | head -n 1)
small=$(figure '.*\b\([0-9]*\) images of [0-9]* workloads' 1)
flips=$(sed -n 's/.*\b\([0-9]*\) flips reported, \([0-9]*\) without effect/\1 \2/p' "$out" | awk '{print $1 + $2}')
row="| $(date -u +%F) | $commit | $EVENTLOG_PROOF_SEED to $((EVENTLOG_PROOF_SEED + seeds - 1)) | $images | $nested | $small | $flips | $EVENTLOG_TEST_KILLS | 0 |"
awk -v row="$row" '{ print } /^\| date \| commit/ { getline; print; print row }' RELIABILITY.md >target/reliability.md
mv target/reliability.md RELIABILITY.md
echo "$row"
