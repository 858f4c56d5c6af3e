#!/bin/sh
# The main job: build, import a transcript, list, show, verify, export, and compare the bytes.
# Leaves nothing behind but what is below target/.
set -eu
cd "$(dirname "$0")/.."
cargo build --release --quiet
eventlog=target/release/eventlog
scratch=target/demo
rm -rf "$scratch"
mkdir -p "$scratch"
export EVENTLOG_DIR="$scratch/log"

run() {
    printf '\n$ eventlog %s\n' "$*"
    "$eventlog" "$@" 2>&1
}

run import examples/demo-transcript.jsonl
run sessions
printf '\n$ eventlog show @last --from 24 | cut -c 1-76\n'
"$eventlog" show @last --from 24 | cut -c 1-76
run verify
run export demo-auth-refactor -o "$scratch/out.jsonl"
printf '\n$ cmp examples/demo-transcript.jsonl %s\n' "$scratch/out.jsonl"
cmp examples/demo-transcript.jsonl "$scratch/out.jsonl"
echo "the bytes are equal"
