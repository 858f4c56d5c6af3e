//! Many orders of the threads of a log, each of them chosen by a scheduler: nobody waits for ever,
//! and whatever was acknowledged is there.
//!
//! Built with `--cfg eventlog_shuttle`, in which the crate's locks and threads are the scheduler's.
#![cfg(eventlog_shuttle)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

mod support;

use eventlog::io::sim::{Fault, Op, SimDisk};
use eventlog::{Builder, Entry, ErrorKind, EventLog, Kind, Result, sessions};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner, thread};
use support::{Model, contents};

/// Runs `body` in so many orders, always the same ones.
fn explore(iterations: usize, body: fn()) {
    let random = RandomScheduler::new_from_seed(7, iterations);
    let pct = PctScheduler::new_from_seed(7, 4, iterations);
    let schedulers: [Box<dyn Scheduler + Send>; 2] = [Box::new(random), Box::new(pct)];
    for scheduler in schedulers {
        let mut config = Config::new();
        config.stack_size = 1 << 20;
        Runner::new(scheduler, config).run(body);
    }
}

fn open(disk: &SimDisk, with: impl Fn(Builder) -> Builder) -> EventLog {
    with(support::options()).open_dir(disk.root()).unwrap()
}

fn append(log: &EventLog, id: &str, bytes: usize) -> Result<u64> {
    log.session(id)?.append(Entry::new(Kind::Message, vec![b'x'; bytes]))
}

fn counts(log: &EventLog) -> Vec<usize> {
    contents(log).into_values().map(|lines| lines.len()).collect()
}

#[test]
fn threads_that_append_flush_and_read_are_all_answered() {
    explore(300, || {
        let disk = SimDisk::new();
        let log = open(&disk, |options| options.background(true));
        let appends = |n: usize| {
            let log = log.clone();
            thread::spawn(move || {
                let id = format!("s-{n}");
                append(&log, &id, 30).unwrap();
                let ticket = log.session("all").unwrap().submit(&[Entry::new(Kind::Message, b"x")]);
                if n == 0 {
                    log.checkpoint().unwrap();
                }
                ticket.unwrap().wait().unwrap();
                assert_eq!(log.session(&id).unwrap().head(), 1);
                assert_eq!(log.snapshot().unwrap().session(&id).unwrap().unwrap().events, 1);
            })
        };
        let threads: Vec<_> = (0..3).map(appends).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        log.close().unwrap();
        assert_eq!(counts(&support::open(&disk).unwrap()), [3, 1, 1, 1]);
    });
}

/// The flush to the store holds what a lookup waits for, a batch that fails what the flush waits
/// for, and the lookup what the batch waits for: a ring, if locks are not left in time.
#[test]
fn a_failed_flush_a_failed_batch_and_a_lookup_do_not_wait_for_each_other() {
    explore(300, || {
        let disk = SimDisk::new();
        let log = open(&disk, |options| options);
        append(&log, "first", 30).unwrap();
        disk.fail(usize::MAX, Fault::Io, |op, path| op == Op::Write && path == "events.redb");
        disk.fail(1, Fault::Io, |op, path| op == Op::Write && path.ends_with(".wal"));
        let flush = {
            let log = log.clone();
            thread::spawn(move || log.checkpoint().unwrap_err())
        };
        let batch = {
            let log = log.clone();
            thread::spawn(move || append(&log, "second", 30).unwrap_err())
        };
        // Both are in the registry or not yet.
        _ = log.session("second").map(|session| session.head());
        _ = log.session("third");
        for error in [flush.join().unwrap(), batch.join().unwrap()] {
            assert!(matches!(error.kind(), ErrorKind::Io | ErrorKind::Poisoned), "{error}");
        }
        assert_eq!(append(&log, "fourth", 30).unwrap_err().kind(), ErrorKind::Poisoned);
    });
}

#[test]
fn threads_on_a_full_store_are_refused_and_go_on_when_there_is_space() {
    explore(150, || {
        let disk = SimDisk::new();
        let log = open(&disk, |options| options.background(true).checkpoint_bytes(64 << 10));
        disk.fail(usize::MAX, Fault::NoSpace, |op, path| op == Op::Write && path == "events.redb");
        let until_full = |n: usize| {
            let log = log.clone();
            thread::spawn(move || {
                let id = format!("s-{n}");
                let full = (0..200).find_map(|_| append(&log, &id, 9000).err()).unwrap();
                assert_eq!(full.kind(), ErrorKind::Full, "{full}");
                log.session(&id).unwrap().head() as usize
            })
        };
        let threads: Vec<_> = (0..2).map(until_full).collect();
        let acknowledged: Vec<_> =
            threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        disk.heal();
        log.checkpoint().unwrap();
        append(&log, "s-0", 30).unwrap();
        let expected: Vec<_> = [acknowledged[0] + 1, acknowledged[1]].into();
        assert_eq!(counts(&log), expected.into_iter().filter(|n| *n > 0).collect::<Vec<_>>());
        log.close().unwrap();
    });
}

#[test]
fn a_delete_and_a_restore_beside_appends_leave_what_was_acknowledged() {
    explore(300, || {
        let disk = SimDisk::new();
        let log = open(&disk, |options| options);
        append(&log, "s", 30).unwrap();
        let other = {
            let log = log.clone();
            thread::spawn(move || {
                sessions::delete(&log, "s").unwrap();
                sessions::restore(&log, "s").unwrap();
            })
        };
        let mut model = Model::default();
        model.acknowledged.insert("s".to_owned(), vec![vec![b'x'; 30]]);
        for _ in 0..3 {
            match append(&log, "s", 30) {
                Ok(_) => model.acknowledged.get_mut("s").unwrap().push(vec![b'x'; 30]),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Refused, "{error}"),
            }
        }
        other.join().unwrap();
        append(&log, "s", 30).unwrap();
        model.acknowledged.get_mut("s").unwrap().push(vec![b'x'; 30]);
        model.check(&log, "at the end");
    });
}

#[test]
fn a_close_answers_everybody() {
    explore(200, || {
        let disk = SimDisk::new();
        let log = open(&disk, |options| options.background(true));
        let appends = |n: usize| {
            let log = log.clone();
            thread::spawn(move || match append(&log, &format!("s-{n}"), 30) {
                Ok(_) => 1,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
                    0
                }
            })
        };
        let threads: Vec<_> = (0..2).map(appends).collect();
        log.clone().close().unwrap();
        let acknowledged: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        let log = support::open(&disk).unwrap();
        assert_eq!(counts(&log).into_iter().sum::<usize>(), acknowledged);
    });
}
