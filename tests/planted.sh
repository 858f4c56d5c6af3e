#!/bin/sh
# Builds the crate with the bugs of src/planted.rs in it, and demands of each that the test beside it
# fails. A bug that is not caught is a hole in the proofs.
#
# sh tests/planted.sh [NAME...]
set -eu
cd "$(dirname "$0")/.."

# name, test, filter, what it breaks
bugs="
batch_is_not_flushed           crash   i1_i2      I1
segment_is_not_flushed         crash   i1_i2      I1
segment_name_is_not_flushed    crash   i1_i2      I1
log_directory_is_not_flushed   crash   i1_i2      I1
store_is_not_flushed           crash   i1_i2      I6
journal_goes_before_the_store  crash   i1_i2      I6
full_segment_is_released_at_once crash i1_i2      I1
left_over_is_removed_unflushed crash   i5_a_file  I5
applied_position_stays         crash   i1_i2      I6
recovery_writes_no_checkpoint  crash   i1_i2      I4
only_first_segment_is_replayed crash   i1_i2      I1
checkpoint_leaves_one_out      crash   i1_i2      I3
recycled_name_is_not_flushed   crash   i1_i2      I9
recycled_segment_is_not_zeroed crash   i1_i2      I9
torn_batch_is_corrupt          crash   i1_i2      I2
one_event_is_not_exported      crash   i1_i2      I11
purge_leaves_the_journal       crash   a_cut_during_a_purge I9
payload_is_not_checked         damage  i8         I8
middle_is_cut_off              damage  fails_closed I1
chain_is_not_checked           damage  c6         I9
crc_has_no_seed                lib     another_epoch I9
foreign_segment_is_taken       startup another_store I9
failed_flush_is_retried        faults  failed_flush I7
failure_does_not_stop          faults  failed_write I7
failed_seqs_stay_given         faults  goes_on_when I3
failed_delete_stays            faults  as_it_was    I2
full_store_stops_the_log       faults  full_store   I7
damaged_record_stops_the_flush damage  that_session_alone I8
locks_form_a_ring              faults  failed_flush_of_the_store I7
locks_form_a_ring              interleavings wait_for_each_other I7
"

export EVENTLOG_PROOF_IMAGES="${EVENTLOG_PROOF_IMAGES:-40000}" EVENTLOG_PROOF_STRIDE=20
build() { # the directory, what is configured beside the bugs, the tests; prints kind, name and program of each
    RUSTFLAGS="--cfg eventlog_planted $2" cargo test --release --quiet --no-default-features --features sim \
        --target-dir "target/$1" $3 --no-run --message-format json |
        sed -n 's/.*"target":{"kind":\["\([a-z]*\)"\].*"name":"\([a-z]*\)".*"executable":"\([^"]*\)".*/\1 \2 \3/p'
}
built=$(build planted "" "--lib --test crash --test damage --test faults --test startup"
    build interleavings "--cfg eventlog_shuttle" "--test interleavings")
# The program is built as well, and has the library's name.
binary() { echo "$built" | sed -n "s/^$1 //p" | head -n 1; }

run() { # the test, its filter
    "$(binary "$([ "$1" = lib ] && echo lib eventlog || echo "test $1")")" "$2" >target/planted/out 2>&1
}

missed=0
caught=0
echo "$caught $missed" >target/planted/count
echo "$bugs" | while read -r name test filter invariant; do
    [ -n "$name" ] || continue
    if [ $# -gt 0 ]; then case " $* " in *" $name "*) ;; *) continue ;; esac; fi
    if EVENTLOG_PLANTED=$name run "$test" "$filter"; then
        echo "NOT CAUGHT  $name ($test $filter)"
        missed=$((missed + 1))
    else
        grep -q "test result: FAILED" target/planted/out || { cat target/planted/out; exit 2; }
        echo "caught      $name by $test $filter ($invariant)"
        caught=$((caught + 1))
    fi
    echo "$caught $missed" >target/planted/count
done
read -r caught missed <target/planted/count
# Without a bug the same tests pass, so that it was the bug that they saw.
echo "$bugs" | awk 'NF { print $2, $3 }' | sort -u | while read -r test filter; do
    run "$test" "$filter" || { cat target/planted/out; echo "$test $filter fails without a bug" >&2; exit 2; }
    grep -q "test result: ok. [1-9]" target/planted/out || { echo "$test $filter: no such test" >&2; exit 2; }
done
echo "$caught planted bugs caught, $missed not"
[ "$missed" -eq 0 ] && [ "$caught" -gt 0 ]
