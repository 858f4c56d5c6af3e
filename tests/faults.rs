//! Errors of the disk: typed, nothing acknowledged is lost, and no append succeeds after a failed
//! flush (I7).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test"
)]

mod support;

use eventlog::io::sim::{Fate, Fault, Op, SimDisk};
use eventlog::{Entry, ErrorKind, EventLog, Kind, sessions};
use support::{Model, contents, line, open};

fn is_journal(path: &str) -> bool {
    path.starts_with("journal/")
}

fn started() -> (SimDisk, EventLog, Model) {
    let disk = SimDisk::new();
    let log = open(&disk).unwrap();
    let mut model = Model::default();
    model.append(&log, "s", (0..3).map(|n| line(n, 300)).collect()).unwrap();
    (disk, log, model)
}

/// Reads what is acknowledged although the log is stopped, then reopens it and checks.
fn stopped_but_readable(disk: SimDisk, log: EventLog, model: &Model) {
    let refused = log.session("s").unwrap().append(Entry::new(Kind::Message, b"{}")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Poisoned, "{refused}");
    assert!(refused.hint().unwrap().contains("open the log again"));
    let found = contents(&log);
    for (id, lines) in &model.acknowledged {
        assert_eq!(&found[id], lines, "acknowledged events stay readable");
    }
    disk.heal();
    drop(log);
    let log = open(&disk).unwrap();
    model.check(&log, "after reopening");
    log.session("s").unwrap().append(Entry::new(Kind::Message, b"{}")).unwrap();
}

#[test]
fn a_failed_flush_fails_its_append_and_every_later_one() {
    let (disk, log, mut model) = started();
    disk.fail(1, Fault::Io, |op, path| op == Op::Sync && is_journal(path));
    let error = model.append(&log, "s", vec![line(9, 100)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    // The device works again, and a retried flush would succeed: it proves nothing.
    assert_eq!(
        model.clone().append(&log, "s", vec![line(10, 9)]).unwrap_err().kind(),
        ErrorKind::Poisoned
    );
    stopped_but_readable(disk, log, &model);
}

#[test]
fn a_failed_write_fails_its_append_and_every_later_one() {
    let (disk, log, mut model) = started();
    disk.fail(1, Fault::Io, |op, path| op == Op::Write && is_journal(path));
    assert_eq!(model.append(&log, "s", vec![line(9, 100)]).unwrap_err().kind(), ErrorKind::Io);
    stopped_but_readable(disk, log, &model);
}

#[test]
fn a_short_write_is_completed() {
    let (disk, log, mut model) = started();
    disk.fail(3, Fault::ShortWrite, |op, path| op == Op::Write && is_journal(path));
    model.append(&log, "s", vec![line(9, 4000)]).unwrap();
    let image = disk.crash(&mut |_| Fate::Dropped);
    model.check(&open(&image).unwrap(), "after a short write");
}

#[test]
fn a_write_that_fails_after_a_short_one_stops_the_log() {
    let (disk, log, mut model) = started();
    disk.fail(1, Fault::ShortWrite, |op, path| op == Op::Write && is_journal(path));
    disk.fail(1, Fault::Io, |op, path| op == Op::Write && is_journal(path));
    assert_eq!(model.append(&log, "s", vec![line(9, 4000)]).unwrap_err().kind(), ErrorKind::Io);
    stopped_but_readable(disk, log, &model);
}

#[test]
fn no_space_for_a_segment_is_full_and_goes_on_when_there_is_space() {
    let (disk, log, mut model) = started();
    disk.fail(usize::MAX, Fault::NoSpace, |op, path| op == Op::Write && path.ends_with(".tmp"));
    let big = |n: usize| (0..40).map(|k| line(n * 100 + k, 1400)).collect::<Vec<_>>();
    let mut full = None;
    for n in 1..4 {
        if let Err(error) = model.append(&log, "s", big(n)) {
            full = Some(error);
            break;
        }
    }
    let full = full.expect("the first segment overflows");
    assert_eq!(full.kind(), ErrorKind::Full, "{full}");
    assert!(full.hint().is_some());
    // Nothing was written, so the seqs are given out again, and smaller appends still fit.
    model.open = None;
    model.append(&log, "s", vec![line(7, 50)]).unwrap();
    model.append(&log, "fresh", vec![line(7, 50)]).unwrap();
    disk.heal();
    model.append(&log, "s", big(9)).unwrap();
    model.check(&log, "with space again");
    model.check(&open(&disk.kill()).unwrap(), "after a kill");
}

#[test]
fn a_new_session_of_a_failed_batch_is_declared_again() {
    let (disk, log, mut model) = started();
    disk.fail(usize::MAX, Fault::NoSpace, |op, path| op == Op::Write && path.ends_with(".tmp"));
    let big: Vec<_> = (0..60).map(|n| line(n, 1400)).collect();
    assert_eq!(model.append(&log, "new", big.clone()).unwrap_err().kind(), ErrorKind::Full);
    model.open = None;
    disk.heal();
    model.append(&log, "new", big).unwrap();
    model.check(&open(&disk.kill()).unwrap(), "after a kill");
}

/// From now on the store finds no space.
fn fill_the_store(disk: &SimDisk) {
    disk.fail(usize::MAX, Fault::NoSpace, |op, path| {
        matches!(op, Op::Write | Op::SetLen) && path == "events.redb"
    });
}

#[test]
fn no_space_for_the_store_is_full_and_the_log_goes_on() {
    let (disk, log, mut model) = started();
    assert_eq!(log.stats().unwrap().store_full_since_unix_micros, None);
    fill_the_store(&disk);
    let full = log.checkpoint().unwrap_err();
    assert_eq!(full.kind(), ErrorKind::Full, "{full}");
    assert!(log.stats().unwrap().store_full_since_unix_micros.is_some());
    model.append(&log, "s", vec![line(7, 300)]).unwrap();
    model.append(&log, "fresh", vec![line(8, 300)]).unwrap();
    model.check(&log, "without space");
    model.check(&open(&disk.kill()).unwrap(), "after a kill without space");
    disk.heal();
    log.checkpoint().unwrap();
    assert_eq!(log.stats().unwrap().store_full_since_unix_micros, None);
    model.append(&log, "s", vec![line(9, 300)]).unwrap();
    model.check(&log, "with space again");
    log.close().unwrap();
    model.check(&open(&disk.kill()).unwrap(), "after reopening");
}

#[test]
fn no_space_at_any_write_of_a_checkpoint_loses_nothing_and_the_next_one_succeeds() {
    let mut refused = 0;
    for nth in 0.. {
        let (disk, log, mut model) = started();
        log.checkpoint().unwrap();
        model.append(&log, "t", (0..40).map(|n| line(n, 700)).collect()).unwrap();
        let writes = std::sync::atomic::AtomicUsize::new(0);
        disk.fail(1, Fault::NoSpace, move |op, path| {
            matches!(op, Op::Write | Op::SetLen)
                && path == "events.redb"
                && writes.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == nth
        });
        let Err(full) = log.checkpoint() else { break };
        refused += 1;
        assert_eq!(full.kind(), ErrorKind::Full, "write {nth}: {full}");
        model.append(&log, "t", vec![line(50, 700)]).unwrap();
        for fate in [Fate::Kept, Fate::Dropped] {
            let image = disk.crash(&mut |_| fate);
            model.check(&open(&image).unwrap(), &format!("write {nth}, then a crash, {fate:?}"));
        }
        log.checkpoint().unwrap();
        model.check(&log, &format!("write {nth}, then a checkpoint"));
        let image = disk.crash(&mut |_| Fate::Dropped);
        model.check(&open(&image).unwrap(), &format!("write {nth}, a checkpoint and a crash"));
    }
    assert!(refused > 3, "{refused}");
}

#[test]
fn a_batch_without_room_in_the_journal_gets_segments_back_by_a_checkpoint() {
    let (disk, log, mut model) = started();
    let big = |n: usize| (0..40).map(|k| line(n * 100 + k, 1400)).collect::<Vec<_>>();
    for n in 1..5 {
        model.append(&log, "s", big(n)).unwrap();
    }
    // Full segments wait for a checkpoint, and no new one can be made.
    disk.fail(usize::MAX, Fault::NoSpace, |op, path| op == Op::Create && path.ends_with(".tmp"));
    for n in 5..20 {
        model.append(&log, "s", big(n)).unwrap();
    }
    model.check(&open(&disk.kill()).unwrap(), "after a kill");
}

#[test]
fn threads_on_a_full_store_are_refused_and_go_on_when_there_is_space() {
    let disk = SimDisk::new();
    let log = support::options().background(true).checkpoint_bytes(256 << 10);
    let log = log.open_dir(disk.root()).unwrap();
    fill_the_store(&disk);
    let acknowledged: Vec<usize> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                let log = &log;
                scope.spawn(move || {
                    let session = log.session(&format!("s-{thread}")).unwrap();
                    let line = line(thread, 900);
                    for n in 0.. {
                        let error = match session.append(Entry::new(Kind::Message, &line[..])) {
                            Ok(seq) => {
                                assert_eq!(seq, n as u64);
                                continue;
                            }
                            Err(error) => error,
                        };
                        assert_eq!(error.kind(), ErrorKind::Full, "{error}");
                        assert!(error.hint().is_some());
                        return n;
                    }
                    unreachable!()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(log.stats().unwrap().store_full_since_unix_micros.is_some());
    disk.heal();
    log.checkpoint().unwrap();
    let mut model = Model::default();
    for (thread, count) in acknowledged.into_iter().enumerate() {
        let id = format!("s-{thread}");
        model.acknowledged.insert(id.clone(), vec![line(thread, 900); count]);
        model.append(&log, &id, vec![line(50, 900)]).unwrap();
    }
    model.check(&log, "with space again");
    log.close().unwrap();
    model.check(&open(&disk.kill()).unwrap(), "after reopening");
}

#[test]
fn a_full_store_is_tried_again_by_itself() {
    let disk = SimDisk::new();
    let log = support::options().background(true).checkpoint_bytes(64 << 10);
    let log = log.open_dir(disk.root()).unwrap();
    fill_the_store(&disk);
    let mut model = Model::default();
    let full = (0..).find_map(|n| model.append(&log, "s", vec![line(n, 900)]).err()).unwrap();
    assert_eq!(full.kind(), ErrorKind::Full, "{full}");
    model.open = None;
    disk.heal();
    // A caller that does nothing but try again.
    while let Err(error) = model.append(&log, "s", vec![line(7, 900)]) {
        assert_eq!(error.kind(), ErrorKind::Full, "{error}");
        model.open = None;
        std::thread::yield_now();
    }
    model.check(&log, "with space again");
}

#[test]
fn a_delete_or_restore_that_fails_leaves_the_session_as_it_was() {
    let (disk, log, mut model) = started();
    let session = log.session("s").unwrap();
    let fills = |n: usize| {
        let big: Vec<Vec<u8>> = (0..60).map(|k| line(n * 100 + k, 1400)).collect();
        let entries: Vec<_> = big.iter().map(|l| Entry::new(Kind::Message, l.clone())).collect();
        log.session("big").unwrap().submit(&entries).unwrap()
    };
    // The mark shares the batch of what does not fit.
    for is_delete in [true, false] {
        disk.fail(usize::MAX, Fault::NoSpace, |op, path| {
            op == Op::Write && (path.ends_with(".tmp") || path == "events.redb")
        });
        let ticket = fills(1);
        let changed = match is_delete {
            true => sessions::delete(&log, "s"),
            false => sessions::restore(&log, "s"),
        };
        assert_eq!(changed.unwrap_err().kind(), ErrorKind::Full);
        assert_eq!(ticket.wait().unwrap_err().kind(), ErrorKind::Full);
        disk.heal();
        if is_delete {
            model.append(&log, "s", vec![line(9, 100)]).unwrap();
            sessions::delete(&log, "s").unwrap();
        } else {
            // A restore that failed: the session is still deleted.
            let refused = session.append(Entry::new(Kind::Message, b"{}")).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
        }
    }
    model.check(&log, "at the end");
}

#[test]
fn a_failed_flush_of_the_store_keeps_the_journal() {
    let (disk, log, model) = started();
    disk.fail(1, Fault::Io, |op, path| op == Op::Sync && path == "events.redb");
    assert_eq!(log.checkpoint().unwrap_err().kind(), ErrorKind::Io);
    // Only what a crash leaves counts.
    let image = disk.crash(&mut |_| Fate::Dropped);
    model.check(&open(&image).unwrap(), "after a crash");
    stopped_but_readable(disk, log, &model);
}

#[test]
fn a_failed_directory_flush_while_recycling_loses_nothing() {
    let (disk, log, mut model) = started();
    for n in 1..5 {
        model.append(&log, "s", (0..40).map(|k| line(n * 100 + k, 1400)).collect()).unwrap();
    }
    disk.fail(1, Fault::Io, |op, path| op == Op::DirSync && path == "journal");
    assert_eq!(log.checkpoint().unwrap_err().kind(), ErrorKind::Io);
    stopped_but_readable(disk, log, &model);
}

#[test]
fn no_space_at_the_first_open_leaves_nothing_that_a_second_open_minds() {
    for kind in [Op::Create, Op::Write, Op::SetLen, Op::Sync, Op::Rename, Op::DirSync] {
        for after in 0..4 {
            let disk = SimDisk::new();
            let count = std::sync::atomic::AtomicUsize::new(0);
            disk.fail(usize::MAX, Fault::NoSpace, move |op, _| {
                op == kind && count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) >= after
            });
            if let Err(error) = open(&disk) {
                assert!(matches!(error.kind(), ErrorKind::Full | ErrorKind::Io), "{error}");
            }
            disk.heal();
            let log = open(&disk.kill()).unwrap();
            log.session("s").unwrap().append(Entry::new(Kind::Message, b"{}")).unwrap();
        }
    }
}

#[test]
fn an_unreadable_journal_is_an_error_and_changes_nothing() {
    let (disk, log, model) = started();
    let image = disk.kill();
    drop(log);
    image.fail(usize::MAX, Fault::Io, |op, path| op == Op::Read && is_journal(path));
    assert_eq!(open(&image).unwrap_err().kind(), ErrorKind::Io);
    image.heal();
    model.check(&open(&image).unwrap(), "readable again");
}

#[test]
fn no_space_in_a_write_or_a_flush_is_no_full_because_the_outcome_is_unknown() {
    for op in [Op::Write, Op::Sync] {
        let (disk, log, mut model) = started();
        disk.fail(1, Fault::NoSpace, move |found, path| found == op && path.ends_with(".wal"));
        assert_eq!(model.append(&log, "s", vec![line(9, 100)]).unwrap_err().kind(), ErrorKind::Io);
        stopped_but_readable(disk, log, &model);
    }
}

#[test]
fn an_error_while_making_a_segment_stops_the_log_unless_it_is_space() {
    for op in [Op::Create, Op::Write, Op::Sync, Op::Rename, Op::DirSync] {
        let (disk, log, mut model) = started();
        disk.fail(1, Fault::Io, move |found, path| {
            found == op && (path.ends_with(".tmp") || path == "journal")
        });
        let big: Vec<_> = (0..60).map(|n| line(n, 1400)).collect();
        assert_eq!(model.append(&log, "s", big).unwrap_err().kind(), ErrorKind::Io, "{op:?}");
        stopped_but_readable(disk, log, &model);
    }
}

#[test]
fn a_full_disk_for_journal_and_store_at_once_is_full_until_there_is_space() {
    let (disk, log, mut model) = started();
    let session = log.session("s").unwrap();
    let big: Vec<Vec<u8>> = (0..60).map(|n| line(n, 1400)).collect();
    let entries: Vec<_> = big.iter().map(|l| Entry::new(Kind::Message, l.as_slice())).collect();
    let ticket = session.submit(&entries).unwrap();
    disk.fail(usize::MAX, Fault::NoSpace, |op, path| {
        op == Op::Write && (path.ends_with(".tmp") || path == "events.redb")
    });
    assert_eq!(log.checkpoint().unwrap_err().kind(), ErrorKind::Full);
    assert_eq!(ticket.wait().unwrap_err().kind(), ErrorKind::Full);
    model.append(&log, "s", vec![line(5, 40)]).unwrap();
    disk.heal();
    model.append(&log, "s", big).unwrap();
    model.check(&log, "with space again");
    model.check(&open(&disk.kill()).unwrap(), "after a kill");
}
