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

use eventlog::io::sim::{Fault, Op, SimDisk};
use eventlog::{Entry, ErrorKind, EventLog, Kind};
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
    let image = disk.crash(&mut |_| eventlog::io::sim::Fate::Dropped);
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
    disk.fail(1, Fault::NoSpace, |op, path| op == Op::Write && path.ends_with(".tmp"));
    let big: Vec<_> = (0..60).map(|n| line(n, 1400)).collect();
    assert_eq!(model.append(&log, "new", big.clone()).unwrap_err().kind(), ErrorKind::Full);
    model.open = None;
    model.append(&log, "new", big).unwrap();
    model.check(&open(&disk.kill()).unwrap(), "after a kill");
}

#[test]
fn no_space_for_the_store_is_full_and_loses_nothing() {
    let (disk, log, model) = started();
    disk.fail(usize::MAX, Fault::NoSpace, |op, path| {
        matches!(op, Op::Write | Op::SetLen) && path == "events.redb"
    });
    assert_eq!(log.checkpoint().unwrap_err().kind(), ErrorKind::Full);
    disk.heal();
    stopped_but_readable(disk, log, &model);
}

#[test]
fn a_failed_flush_of_the_store_keeps_the_journal() {
    let (disk, log, model) = started();
    disk.fail(1, Fault::Io, |op, path| op == Op::Sync && path == "events.redb");
    assert_eq!(log.checkpoint().unwrap_err().kind(), ErrorKind::Io);
    // Only what a crash leaves counts.
    let image = disk.crash(&mut |_| eventlog::io::sim::Fate::Dropped);
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
fn a_full_disk_for_journal_and_store_at_once_stops_the_log_for_good() {
    let (disk, log, _) = started();
    let session = log.session("s").unwrap();
    let big: Vec<Vec<u8>> = (0..60).map(|n| line(n, 1400)).collect();
    let entries: Vec<_> = big.iter().map(|l| Entry::new(Kind::Message, l.as_slice())).collect();
    let ticket = session.submit(&entries).unwrap();
    disk.fail(usize::MAX, Fault::NoSpace, |op, path| {
        op == Op::Write && (path.ends_with(".tmp") || path == "events.redb")
    });
    assert_eq!(log.checkpoint().unwrap_err().kind(), ErrorKind::Full);
    assert_eq!(ticket.wait().unwrap_err().kind(), ErrorKind::Full);
    // The batch that did not fit must not wash the earlier reason away.
    let refused = session.append(Entry::new(Kind::Message, b"{}")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Poisoned, "{refused}");
}
