#!/bin/sh
# The main job: build, import a transcript, look around, check, export, and compare the bytes.
# Leaves nothing behind but what is below target/.
set -eu
cd "$(dirname "$0")/.."
cargo build --release --quiet
PATH="$PWD/target/release:$PATH"
scratch=target/demo
rm -rf "$scratch"
mkdir -p "$scratch"
export EVENTLOG_DIR="$scratch/log"

run() {
    printf '\n$ %s\n' "$*"
    "$@" 2>&1
}

run eventlog import examples/demo-transcript.jsonl
run eventlog sessions
run eventlog resume @last
run eventlog search password --role user
run eventlog memory @last
run eventlog verify
run eventlog export @last -o "$scratch/out.jsonl"
run cmp examples/demo-transcript.jsonl "$scratch/out.jsonl"
echo "the bytes are equal"
