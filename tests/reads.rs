//! Reads give the same whether the events are in the store, in memory, or in both; forwards,
//! backwards, by number and by mark.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use eventlog::{Entry, ErrorKind, EventLog, EventRange, Kind, Position, StoredEntry};
use proptest::prelude::*;

fn log(dir: &tempfile::TempDir) -> EventLog {
    EventLog::builder().background(false).open(dir.path().join("log")).unwrap()
}

#[derive(Clone, Debug)]
struct Event {
    kind: Kind,
    user_turn: bool,
    run: Option<u8>,
    len: usize,
}

fn event() -> impl Strategy<Value = Event> {
    let kind = prop_oneof![
        4 => Just(Kind::Message),
        1 => Just(Kind::Checkpoint),
        2 => Just(Kind::ToolLifecycle),
        1 => Just(Kind::Blank)
    ];
    let len = prop_oneof![8 => 0..300usize, 1 => 3000..20_000usize];
    (kind, any::<bool>(), proptest::option::of(0..3u8), len)
        .prop_map(|(kind, user_turn, run, len)| Event { kind, user_turn, run, len })
}

/// Appends with checkpoints in between, and returns the lines.
fn fill(log: &EventLog, id: &str, events: &[Event], checkpoints: &[usize]) -> Vec<Vec<u8>> {
    let session = log.session(id).unwrap();
    let mut lines = Vec::new();
    for (n, event) in events.iter().enumerate() {
        let line: Vec<u8> = (0..event.len).map(|i| (i * 31 + n * 7) as u8).collect();
        let mut entry = Entry::new(event.kind, line.clone()).user_turn(event.user_turn);
        if let Some(run) = event.run {
            entry = entry.run(format!("run-{run}"));
        }
        assert_eq!(session.append(entry).unwrap(), n as u64);
        lines.push(line);
        if checkpoints.contains(&n) {
            log.checkpoint().unwrap();
        }
    }
    lines
}

fn bytes(events: impl Iterator<Item = eventlog::Result<StoredEntry>>) -> Vec<Vec<u8>> {
    events.map(|event| event.unwrap().bytes().to_vec()).collect()
}

/// The seqs that a mark numbers.
fn marked(events: &[Event], mark: impl Fn(&Event) -> bool) -> Vec<u64> {
    let indexed = events.iter().enumerate().filter(|(_, event)| mark(event));
    indexed.map(|(n, _)| n as u64).collect()
}

fn run_starts(events: &[Event]) -> Vec<u64> {
    let mut current = None;
    let mut starts = Vec::new();
    for (n, event) in events.iter().enumerate() {
        if event.run.is_some() && event.run != current {
            current = event.run;
            starts.push(n as u64);
        }
    }
    starts
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ranges_and_marks_are_right_wherever_the_events_are(
        events in proptest::collection::vec(event(), 1..60),
        checkpoints in proptest::collection::vec(0..60usize, 0..4),
        ranges in proptest::collection::vec((0..70u64, 0..70u64), 6),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let log = log(&dir);
        fill(&log, "before", &events[..1], &[]);
        let lines = fill(&log, "s", &events, &checkpoints);
        fill(&log, "t", &events[..1], &[]);
        let check = |log: &EventLog| {
            let snapshot = log.snapshot().unwrap();
            for (from, to) in &ranges {
                let expected: Vec<_> = (*from..*to).filter_map(|n| lines.get(n as usize)).cloned().collect();
                let found = bytes(snapshot.read("s", *from..*to).unwrap());
                assert_eq!(found, expected, "{from}..{to}");
                let mut back = bytes(snapshot.read("s", *from..*to).unwrap().rev());
                back.reverse();
                assert_eq!(back, expected, "{from}..{to} backwards");
            }
            // From both ends at once.
            let mut events_iter = snapshot.read("s", ..).unwrap();
            let mut count = 0;
            while let Some(front) = events_iter.next() {
                front.unwrap();
                count += 1;
                if let Some(back) = events_iter.next_back() {
                    assert_eq!(back.unwrap().seq(), lines.len() as u64 - count);
                }
            }
            type Number = fn(u64) -> Position;
            let marks: [(Number, Vec<u64>); 4] = [
                (Position::Message, marked(&events, |e| e.kind == Kind::Message)),
                (Position::Checkpoint, marked(&events, |e| e.kind == Kind::Checkpoint)),
                (Position::UserTurn, marked(&events, |e| e.user_turn)),
                (Position::Run, run_starts(&events)),
            ];
            for (position, seqs) in marks {
                for (n, seq) in seqs.iter().enumerate() {
                    assert_eq!(snapshot.find("s", position(n as u64)).unwrap(), Some(*seq));
                }
                assert_eq!(snapshot.find("s", position(seqs.len() as u64)).unwrap(), None);
            }
            let last = marked(&events, |e| e.kind == Kind::Checkpoint).last().copied();
            assert_eq!(snapshot.find("s", Position::LastCheckpoint).unwrap(), last);
            assert_eq!(snapshot.find("s", Position::LastRun).unwrap(), run_starts(&events).last().copied());
            let info = snapshot.session("s").unwrap().unwrap();
            assert_eq!(info.events, events.len() as u64);
            assert_eq!(info.runs, run_starts(&events).len() as u64);
            assert_eq!(info.bytes, lines.iter().map(|line| line.len() as u64 + 1).sum::<u64>());
            let report = log.verify().unwrap();
            assert!(report.problems.is_empty(), "{:?}", report.problems);
            assert_eq!(report.events, events.len() as u64 + 2);
        };
        check(&log);
        log.checkpoint().unwrap();
        check(&log);
        log.close().unwrap();
        check(&EventLog::open_read_only(dir.path().join("log")).unwrap());
    }
}

#[test]
fn a_snapshot_does_not_change_while_the_log_does() {
    let dir = tempfile::tempdir().unwrap();
    let log = log(&dir);
    let session = log.session("s").unwrap();
    let add =
        |n: u64| (0..n).for_each(|_| _ = session.append(Entry::new(Kind::Message, b"{}")).unwrap());
    add(10);
    let ten = log.snapshot().unwrap();
    session.append(Entry::new(Kind::Message, b"{}").run("run-9")).unwrap();
    let mut attributes = eventlog::Attributes::default();
    attributes.workspace = Some("/later".into());
    session.describe(&attributes).unwrap();
    log.session("described").unwrap().describe(&attributes).unwrap();
    let before = ten.session("s").unwrap().unwrap();
    assert_eq!((before.last_run, before.runs, before.attributes.workspace), (None, 0, None));
    add(4);
    let fifteen = log.snapshot().unwrap();
    log.checkpoint().unwrap();
    add(5);
    log.session("new").unwrap().append(Entry::new(Kind::Message, b"{}")).unwrap();
    for (snapshot, count) in [(&ten, 10), (&fifteen, 15)] {
        assert_eq!(snapshot.read("s", ..).unwrap().count(), count);
        assert_eq!(snapshot.session("s").unwrap().unwrap().events, count as u64);
        assert!(snapshot.session("new").unwrap().is_none(), "a session that came later");
    }
    assert_eq!(ten.sessions().count(), 1, "sessions that came later do not show");
    assert_eq!(fifteen.sessions().count(), 2);
    assert_eq!(log.read("s", ..).unwrap().count(), 20);
}

#[test]
fn what_is_not_there_is_not_found_and_seqs_beyond_the_end_are_no_error() {
    let dir = tempfile::tempdir().unwrap();
    let log = log(&dir);
    log.session("s").unwrap().append(Entry::new(Kind::Message, b"{}")).unwrap();
    assert_eq!(log.read("other", ..).unwrap_err().kind(), ErrorKind::NotFound);
    let range = EventRange::between(Position::LastCheckpoint, Position::End);
    assert_eq!(log.read("s", range).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(log.read("s", 5..9).unwrap().count(), 0);
    #[expect(clippy::reversed_empty_ranges, reason = "that is the point")]
    let backwards = 9..5;
    assert_eq!(log.read("s", backwards).unwrap().count(), 0);
    assert_eq!(log.read("s", 0..=u64::MAX).unwrap().count(), 1);
}

#[test]
fn a_session_that_was_only_opened_does_not_exist() {
    let dir = tempfile::tempdir().unwrap();
    let log = log(&dir);
    let session = log.session("s").unwrap();
    assert_eq!(session.head(), 0);
    assert!(log.sessions().unwrap().is_empty());
    log.close().unwrap();
    assert!(
        EventLog::open_read_only(dir.path().join("log")).unwrap().sessions().unwrap().is_empty()
    );
}

#[test]
fn a_reader_goes_on_beside_a_writer_also_over_batches_larger_than_it_reads_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let log = log(&dir);
    let session = log.session("s").unwrap();
    session.append(Entry::new(Kind::Message, b"{}")).unwrap();
    let reader = EventLog::open_read_only(dir.path().join("log")).unwrap();
    let mut written = vec![b"{}".to_vec()];
    for size in [100, 200 << 10, 100, 70 << 10, 64 << 10, 300 << 10] {
        // Few zeros, so that no part of it looks like the unused rest of the journal.
        let line: Vec<u8> =
            (0..size).map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 24) as u8 | 1).collect();
        session.append(Entry::new(Kind::Message, &line)).unwrap();
        written.push(line);
        assert_eq!(bytes(reader.read("s", ..).unwrap()), written, "{size}");
    }
}
