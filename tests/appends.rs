//! What an append promises: order, atomic batches, conditions, limits, tickets, and an answer for
//! everybody.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test"
)]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use eventlog::{Attributes, Entry, ErrorKind, EventLog, Kind, Session};

fn log(dir: &tempfile::TempDir) -> EventLog {
    EventLog::open(dir.path().join("log")).unwrap()
}

fn line(text: &str) -> Entry<'_> {
    Entry::new(Kind::Message, text.as_bytes())
}

#[test]
fn events_of_many_threads_keep_the_order_of_each_and_checkpoints_lose_none() {
    let dir = tempfile::tempdir().unwrap();
    let builder = EventLog::builder().checkpoint_bytes(64 << 10).segment_bytes(64 << 10);
    let log = builder.open(dir.path().join("log")).unwrap();
    const THREADS: usize = 8;
    const EACH: usize = 400;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let log = log.clone();
            scope.spawn(move || {
                let own = log.session(&format!("own-{thread}")).unwrap();
                let shared = log.session("shared").unwrap();
                for n in 0..EACH {
                    let text = format!("{thread} {n} {}", "x".repeat(n % 300));
                    assert_eq!(own.append(line(&text)).unwrap(), n as u64);
                    shared.append(line(&text)).unwrap();
                    if n % 50 == 0 {
                        assert_eq!(
                            own.read(..).unwrap().count(),
                            n + 1,
                            "what is acknowledged is visible"
                        );
                    }
                }
            });
        }
    });
    let check = |log: &EventLog| {
        let mut next = [0; THREADS];
        let mut total = 0;
        for event in log.read("shared", ..).unwrap() {
            let event = event.unwrap();
            let text = std::str::from_utf8(event.bytes()).unwrap();
            let mut words = text.split(' ').map(|word| word.parse::<usize>());
            let thread = words.next().unwrap().unwrap();
            assert_eq!(words.next().unwrap().unwrap(), next[thread]);
            next[thread] += 1;
            total += 1;
        }
        assert_eq!(total, THREADS * EACH);
        let report = log.verify().unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        assert_eq!(report.events as usize, 2 * THREADS * EACH);
    };
    check(&log);
    assert!(log.stats().unwrap().applied_lsn > 0, "there were checkpoints");
    log.close().unwrap();
    check(&EventLog::open(dir.path().join("log")).unwrap());
}

#[test]
fn of_many_that_expect_the_same_head_one_wins() {
    let dir = tempfile::tempdir().unwrap();
    let log = log(&dir);
    let session = log.session("s").unwrap();
    let won = std::thread::scope(|scope| {
        let tries: Vec<_> =
            (0..8).map(|_| scope.spawn(|| session.append_expecting(0, &[line("{}")]))).collect();
        let outcomes = tries.into_iter().map(|thread| thread.join().unwrap());
        outcomes
            .filter(|outcome| match outcome {
                Ok(seqs) => *seqs == (0..=0),
                Err(error) => {
                    assert_eq!((error.kind(), error.head()), (ErrorKind::Conflict, Some(1)));
                    false
                }
            })
            .count()
    });
    assert_eq!(won, 1);
    assert_eq!(session.head(), 1);
}

#[test]
fn limits_are_typed_errors_and_add_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let log = EventLog::builder().max_entry_bytes(100).open(dir.path().join("log")).unwrap();
    let session = log.session("s").unwrap();
    let long = "x".repeat(101);
    assert_eq!(session.append(line(&long)).unwrap_err().kind(), ErrorKind::TooLarge);
    let batch = [line("{}"), line(&long)];
    assert_eq!(session.append_batch(&batch).unwrap_err().kind(), ErrorKind::TooLarge);
    assert_eq!(session.append_batch(&[]).unwrap_err().kind(), ErrorKind::Usage);
    assert_eq!(
        session.append(line("{}").run("r".repeat(600))).unwrap_err().kind(),
        ErrorKind::TooLarge
    );
    assert_eq!(session.append(line(&long[..100])).unwrap(), 0);
    for id in ["", &"i".repeat(513)] {
        assert_eq!(log.session(id).unwrap_err().kind(), ErrorKind::Usage);
    }
    for id in [&"i".repeat(512), "\u{0}", "../../x", "🚀", " ", "a\nb"] {
        log.session(id).unwrap().append(line("{}")).unwrap();
        assert_eq!(log.read(id, ..).unwrap().count(), 1);
    }
}

#[test]
fn a_line_of_64_mib_is_an_event_like_any_other() {
    let dir = tempfile::tempdir().unwrap();
    let log = log(&dir);
    let session = log.session("s").unwrap();
    let mut large = vec![b'x'; 64 << 20];
    large.iter_mut().step_by(4097).for_each(|b| *b = b'y');
    session.append(line("before")).unwrap();
    session.append(Entry::new(Kind::Message, large.as_slice())).unwrap();
    session.append(line("after")).unwrap();
    let check = |log: &EventLog| {
        let lens: Vec<_> = log.read("s", ..).unwrap().map(|e| e.unwrap().bytes().len()).collect();
        assert_eq!(lens, [6, 64 << 20, 5]);
        assert!(log.read("s", 1..2).unwrap().next().unwrap().unwrap().bytes() == large);
    };
    check(&log);
    log.close().unwrap();
    check(&EventLog::open_read_only(dir.path().join("log")).unwrap());
}

struct Flag(std::sync::atomic::AtomicBool, std::thread::Thread);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, std::sync::atomic::Ordering::SeqCst);
        self.1.unpark();
    }
}

/// The smallest runtime there is.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let flag = Arc::new(Flag(false.into(), std::thread::current()));
    let waker = Waker::from(flag.clone());
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        while !flag.0.swap(false, std::sync::atomic::Ordering::SeqCst) {
            std::thread::park();
        }
    }
}

#[test]
fn a_ticket_is_a_future_a_receipt_and_needs_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let log = log(&dir);
    let session = log.session("s").unwrap();
    assert_eq!(block_on(session.submit(&[line("a"), line("b")]).unwrap()).unwrap(), 0..=1);
    assert_eq!(session.submit(&[line("c")]).unwrap().wait().unwrap(), 2..=2);
    drop(session.submit(&[line("d")]).unwrap());
    let ticket = session.submit(&[line("e")]).unwrap();
    assert_eq!(ticket.seqs(), 4..=4);
    while ticket.poll().is_none() {
        std::thread::yield_now();
    }
    assert_eq!(ticket.poll().unwrap().unwrap(), 4..=4);
    assert_eq!(session.read(..).unwrap().count(), 5, "dropping a ticket takes nothing back");
}

#[test]
fn closing_answers_everything_that_was_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let log = log(&dir);
    let session = log.session("s").unwrap();
    let tickets: Vec<_> = (0..200).map(|_| session.submit(&[line("{}")]).unwrap()).collect();
    log.close().unwrap();
    for ticket in tickets {
        ticket.wait().unwrap();
    }
    assert_eq!(session.append(line("{}")).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(session.submit(&[line("{}")]).unwrap_err().kind(), ErrorKind::Closed);
    let log = EventLog::open(dir.path().join("log")).unwrap();
    assert!(log.recovery().clean);
    assert_eq!(log.read("s", ..).unwrap().count(), 200);
}

#[test]
fn the_last_handle_closes_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let session = EventLog::open(&path).unwrap().session("s").unwrap();
    session.append(line("{}")).unwrap();
    assert_eq!(EventLog::open(&path).unwrap_err().kind(), ErrorKind::Locked);
    drop(session);
    assert!(EventLog::open(&path).unwrap().recovery().clean);
}

#[cfg(target_os = "linux")]
#[test]
fn a_closed_log_gives_back_what_its_journal_does_not_use() {
    use std::os::unix::fs::MetadataExt;

    let dir = tempfile::tempdir().unwrap();
    for n in 1..3 {
        let opened = log(&dir);
        opened.session("s").unwrap().append(line("{}")).unwrap();
        opened.close().unwrap();
        let segments = std::fs::read_dir(dir.path().join("log/journal")).unwrap();
        let segments: Vec<_> = segments.map(|entry| entry.unwrap().metadata().unwrap()).collect();
        let (len, taken) = segments.iter().fold((0, 0), |(len, taken), segment| {
            (len + segment.len(), taken + segment.blocks() * 512)
        });
        assert!(len >= 256 << 10 && taken <= 16 << 10, "{taken} of {len} bytes are taken");
        assert_eq!(log(&dir).read("s", ..).unwrap().count(), n);
    }
}

#[test]
fn attributes_and_runs_are_kept_with_the_session() {
    let dir = tempfile::tempdir().unwrap();
    let log = log(&dir);
    let session = log.session("s").unwrap();
    let mut attributes = Attributes::default();
    attributes.workspace = Some("/srv/app".into());
    session.describe(&attributes).unwrap();
    session.append(line("{}").run("run-1")).unwrap();
    let mut attributes = Attributes::default();
    attributes.parent = Some("p".into());
    session.describe(&attributes).unwrap();
    session.append(line("{}").run("run-1")).unwrap();
    session.append(line("{}").run("run-2")).unwrap();
    let check = |log: &EventLog| {
        let info = log.snapshot().unwrap().session("s").unwrap().unwrap();
        assert_eq!(info.attributes.workspace.as_deref(), Some("/srv/app"));
        assert_eq!(info.attributes.parent.as_deref(), Some("p"));
        assert_eq!((info.runs, info.last_run.as_deref()), (2, Some("run-2")));
        assert!(
            info.created_unix_micros > 0 && info.updated_unix_micros >= info.created_unix_micros
        );
    };
    check(&log);
    log.close().unwrap();
    let log = EventLog::open(dir.path().join("log")).unwrap();
    check(&log);
    // The run goes on where it was.
    let session = log.session("s").unwrap();
    session.append(line("{}").run("run-2")).unwrap();
    assert_eq!(log.snapshot().unwrap().session("s").unwrap().unwrap().runs, 2);
}

#[test]
fn the_api_is_made_for_threads() {
    fn check<T: Clone + Send + Sync + 'static>() {}
    check::<EventLog>();
    check::<Session>();
    check::<eventlog::Snapshot>();
    check::<eventlog::Error>();
    fn send<T: Send + 'static>() {}
    send::<eventlog::Ticket>();
    send::<eventlog::Events>();
}

#[test]
fn a_log_opened_for_reading_refuses_to_write() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    EventLog::open(&path).unwrap().close().unwrap();
    let log = EventLog::open_read_only(&path).unwrap();
    assert_eq!(log.session("s").unwrap_err().kind(), ErrorKind::Refused);
    assert_eq!(log.checkpoint().unwrap_err().kind(), ErrorKind::Refused);
}

#[test]
fn attributes_have_a_limit_and_all_at_the_limit_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let log = log(&dir);
    let session = log.session("s").unwrap();
    let set = |len: usize, field: usize| {
        let mut attributes = Attributes::default();
        let fields = [
            &mut attributes.format,
            &mut attributes.workspace,
            &mut attributes.parent,
            &mut attributes.origin,
        ];
        *fields.into_iter().nth(field).unwrap() = Some("a".repeat(len));
        session.describe(&attributes)
    };
    assert_eq!(set(8193, 0).unwrap_err().kind(), ErrorKind::TooLarge);
    (0..4).for_each(|field| set(8192, field).unwrap());
    log.checkpoint().unwrap();
    log.close().unwrap();
    let log = EventLog::open(dir.path().join("log")).unwrap();
    assert_eq!(log.sessions().unwrap()[0].attributes.origin.as_ref().unwrap().len(), 8192);
}

#[test]
fn without_threads_what_nobody_waits_for_is_bounded_and_not_lost() {
    let dir = tempfile::tempdir().unwrap();
    let builder = EventLog::builder().background(false).checkpoint_bytes(64 << 10);
    let log = builder.open(dir.path().join("log")).unwrap();
    let session = log.session("s").unwrap();
    let text = "x".repeat(50_000);
    for _ in 0..200 {
        drop(session.submit(&[line(&text)]).unwrap());
    }
    assert!(session.head() > 150, "{} of 200 are written already", session.head());
    log.close().unwrap();
    assert_eq!(EventLog::open(dir.path().join("log")).unwrap().read("s", ..).unwrap().count(), 200);
}

/// Drops what it holds when it is woken.
struct DropsOnWake(std::sync::Mutex<Option<eventlog::Ticket>>);

impl Wake for DropsOnWake {
    fn wake(self: Arc<Self>) {
        drop(self.0.lock().unwrap().take());
    }
}

#[test]
fn the_last_ticket_may_be_dropped_by_the_thread_that_answers_it() {
    for _ in 0..20 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let session = EventLog::open(&path).unwrap().session("s").unwrap();
        let holder = Arc::new(DropsOnWake(std::sync::Mutex::new(None)));
        let waker = Waker::from(holder.clone());
        let mut ticket = session.submit(&[line("{}")]).unwrap();
        let polled = std::pin::Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker));
        drop(session);
        match polled.is_pending() {
            true => *holder.0.lock().unwrap() = Some(ticket),
            false => drop(ticket),
        }
        // Woken before the ticket was there: nobody drops it but us.
        drop(holder);
        drop(waker);
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        loop {
            match EventLog::open(&path) {
                Ok(log) => {
                    assert_eq!(log.read("s", ..).unwrap().count(), 1);
                    break;
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::Locked, "{error}"),
            }
            assert!(std::time::Instant::now() < until, "the log is closed by somebody");
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_submit_that_expects_another_head_is_a_conflict() {
    let dir = tempfile::tempdir().unwrap();
    let log = log(&dir);
    let session = log.session("s").unwrap();
    let first = session.submit_expecting(0, &[line("a"), line("b")]).unwrap();
    let error = session.submit_expecting(1, &[line("c")]).unwrap_err();
    assert_eq!((error.kind(), error.head()), (ErrorKind::Conflict, Some(2)));
    assert_eq!(session.submit_expecting(2, &[line("c")]).unwrap().wait().unwrap(), 2..=2);
    first.wait().unwrap();
}

#[test]
fn without_threads_a_ticket_can_be_awaited() {
    let dir = tempfile::tempdir().unwrap();
    let log = EventLog::builder().background(false).open(dir.path().join("log")).unwrap();
    let session = log.session("s").unwrap();
    assert_eq!(block_on(session.submit(&[line("a")]).unwrap()).unwrap(), 0..=0);
}

/// Closes the log when it is woken.
struct ClosesOnWake(EventLog);

impl Wake for ClosesOnWake {
    fn wake(self: Arc<Self>) {
        self.0.clone().close().unwrap();
    }
}

#[test]
fn a_task_may_close_the_log_when_it_is_woken() {
    for _ in 0..20 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let log = EventLog::open(&path).unwrap();
        let mut ticket = log.session("s").unwrap().submit(&[line("{}")]).unwrap();
        let waker = Waker::from(Arc::new(ClosesOnWake(log)));
        _ = std::pin::Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker));
        ticket.wait().unwrap();
        drop(waker);
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while let Err(error) = EventLog::open(&path) {
            assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
            assert!(std::time::Instant::now() < until, "the log is closed by somebody");
        }
    }
}
