#!/bin/sh
# The main job: build, import a transcript, list, show, verify, export, and compare the bytes.
# Leaves nothing behind but the build.
set -eu
cd "$(dirname "$0")/.."
cargo build --release --quiet
eventlog=target/release/eventlog
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export EVENTLOG_DIR="$scratch/log"

run() {
    printf '\n$ eventlog %s\n' "$*"
    "$eventlog" "$@"
}

run import examples/demo-transcript.jsonl
run sessions
printf '\n$ eventlog show @last --from 24 | cut -c 1-100\n'
"$eventlog" show @last --from 24 | cut -c 1-100
run verify
run export demo-auth-refactor -o "$scratch/out.jsonl"
printf '\n$ cmp examples/demo-transcript.jsonl %s\n' "$scratch/out.jsonl"
cmp examples/demo-transcript.jsonl "$scratch/out.jsonl"
echo "the bytes are equal"
