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
# The figures are what the tests say that they have looked at. $1: the test, $2: the words behind the number.
figure() { grep -A1 "$1" "$out" | grep -o "[0-9][0-9]* $2" | head -n 1 | cut -d ' ' -f 1; }
images=$(figure i1_i2_i3_i6 'images of')
seeds=$(grep -A1 i1_i2_i3_i6 "$out" | grep -o 'images of [0-9]*' | head -n 1 | cut -d ' ' -f 3)
nested=$(figure i4_i5_a_cut 'images of')
small=$(figure every_cut_of_every 'images of')
flips=$(($(figure i8_a_flipped_bit_in_the_store 'flips reported') + $(figure i8_a_flipped_bit_in_the_store 'without effect')))
for figure in "$images" "$seeds" "$nested" "$small" "$flips"; do
    [ -n "$figure" ] || { echo "$out does not say how much it looked at" >&2; exit 1; }
done
row="| $(date -u +%F) | $commit | $EVENTLOG_PROOF_SEED to $((EVENTLOG_PROOF_SEED + seeds - 1)) | $images | $nested | $small | $flips | $EVENTLOG_TEST_KILLS | 0 |"
awk -v row="$row" '{ print } /^\| date \| commit/ { getline; print; print row }' RELIABILITY.md >target/reliability.md
mv target/reliability.md RELIABILITY.md
echo "$row"
