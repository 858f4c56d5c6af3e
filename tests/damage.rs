//! Damaged bytes: a torn last batch is dropped whole and reported, anything else fails closed and
//! names the place, and no flipped bit is ever returned as data (I8, I9).
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

use eventlog::io::sim::{Fate, Op, SimDisk};
use eventlog::{ErrorKind, EventLog};
use support::power::amount;
use support::{Model, line, open, options};

/// A killed log with `batches` batches in its journal; returns where the journal's data begin and
/// end.
fn killed(batches: usize, len: usize) -> (SimDisk, Model, String, usize) {
    let disk = SimDisk::new();
    let log = open(&disk).unwrap();
    let mut model = Model::default();
    for n in 0..batches {
        model.append(&log, "s", vec![line(n, len)]).unwrap();
    }
    let image = disk.kill();
    drop(log);
    let segment = image.paths().into_iter().find(|path| path.ends_with(".wal")).unwrap();
    let bytes = image.bytes(&segment).unwrap();
    let end = bytes.iter().rposition(|b| *b != 0).unwrap() + 1;
    (image, model, segment, end)
}

/// Where each batch begins.
fn batch_offsets(bytes: &[u8]) -> Vec<usize> {
    bytes.windows(4).enumerate().filter(|(_, w)| w == b"EVLB").map(|(at, _)| at).collect()
}

/// The model without its last line.
fn without_last(model: &Model) -> Model {
    let mut model = model.clone();
    model.acknowledged.get_mut("s").unwrap().pop();
    model
}

#[test]
fn a_torn_last_batch_is_dropped_whole_and_reported() {
    let (image, model, segment, end) = killed(3, 3000);
    let whole = image.bytes(&segment).unwrap();
    let start = *batch_offsets(&whole).last().unwrap();
    // Every prefix of the last batch, as an interrupted write leaves it; and each of its sectors
    // lost.
    let mut torn: Vec<(String, Vec<u8>)> = (start + 1..end)
        .step_by(7)
        .map(|cut| {
            let mut bytes = whole.clone();
            bytes[cut..end].fill(0);
            (format!("cut at {cut}"), bytes)
        })
        .collect();
    for sector in start.div_ceil(512)..end / 512 {
        let mut bytes = whole.clone();
        bytes[sector * 512..(sector + 1) * 512].fill(0);
        torn.push((format!("sector {sector} lost"), bytes));
    }
    for (what, bytes) in torn {
        let disk = image.kill();
        disk.overwrite(&segment, bytes.clone());
        let log = open(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
        without_last(&model).check(&log, &what);
        let dropped = log.recovery().dropped.unwrap();
        assert_eq!((dropped.batch, dropped.offset), (3, start as u64), "{what}");
        assert_eq!(dropped.segment, segment);
        assert_eq!(disk.bytes(&dropped.kept_as).unwrap(), bytes, "the segment is kept as it was");
        log.close().unwrap();
        assert!(open(&disk).unwrap().recovery().dropped.is_none(), "{what}: reported once");
    }
}

#[test]
fn a_damaged_batch_with_a_valid_one_behind_it_fails_closed_and_names_the_place() {
    let (image, _, segment, _) = killed(4, 1500);
    let whole = image.bytes(&segment).unwrap();
    let starts = batch_offsets(&whole);
    for (n, start) in starts.iter().enumerate().take(3) {
        for at in (*start..starts[n + 1]).step_by(13) {
            let disk = image.kill();
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            disk.overwrite(&segment, bytes.clone());
            let error = open(&disk).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {at}: {error}");
            let place = error.place().unwrap();
            assert_eq!(place.file, segment);
            assert_eq!((place.offset, place.batch), (Some(*start as u64), Some(n as u64 + 1)));
            assert_eq!(disk.bytes(&segment).unwrap(), bytes, "nothing is truncated");
        }
        // Zeros over it are no better, and neither is a lost sector.
        let disk = image.kill();
        let mut bytes = whole.clone();
        bytes[*start..starts[n + 1]].fill(0);
        disk.overwrite(&segment, bytes);
        assert_eq!(open(&disk).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}

#[test]
fn a_damaged_batch_with_a_valid_one_in_a_later_segment_fails_closed() {
    let disk = SimDisk::new();
    let log = open(&disk).unwrap();
    let mut model = Model::default();
    for n in 0..3 {
        model.append(&log, "s", (0..30).map(|k| line(n * 100 + k, 1500)).collect()).unwrap();
    }
    let image = disk.kill();
    drop(log);
    let first = image.paths().into_iter().find(|path| path.ends_with(".wal")).unwrap();
    let mut bytes = image.bytes(&first).unwrap();
    let start = batch_offsets(&bytes)[0];
    bytes[start + 2000] ^= 1;
    image.overwrite(&first, bytes);
    let error = open(&image).unwrap_err();
    assert_eq!((error.kind(), error.place().unwrap().batch), (ErrorKind::Corrupt, Some(1)));
}

#[test]
fn an_ambiguous_last_batch_fails_closed_until_the_user_decides() {
    let (image, model, segment, end) = killed(3, 3000);
    let mut bytes = image.bytes(&segment).unwrap();
    bytes[end - 100] ^= 1;
    image.overwrite(&segment, bytes.clone());
    for _ in 0..2 {
        let error = open(&image).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Ambiguous, "{error}");
        assert!(error.hint().unwrap().contains("--drop-last-batch"), "{error}");
        assert_eq!(image.bytes(&segment).unwrap(), bytes);
    }
    let log = options().drop_last_batch(true).open_dir(image.root()).unwrap();
    without_last(&model).check(&log, "decided");
    let dropped = log.recovery().dropped.unwrap();
    assert_eq!(dropped.batch, 3);
    assert_eq!(image.bytes(&dropped.kept_as).unwrap(), bytes);
}

#[test]
fn zeros_that_belong_to_a_batch_do_not_make_it_look_torn() {
    let disk = SimDisk::new();
    let log = open(&disk).unwrap();
    let mut model = Model::default();
    model.append(&log, "s", vec![vec![0; 5000]]).unwrap();
    model.check(&open(&disk.kill()).unwrap(), "zeros are data");
    // The same batch, damaged: acknowledged, so it must not be dropped by itself.
    let image = disk.kill();
    drop(log);
    let segment = image.paths().into_iter().find(|path| path.ends_with(".wal")).unwrap();
    let mut bytes = image.bytes(&segment).unwrap();
    let start = batch_offsets(&bytes)[0];
    bytes[start + 1000] ^= 1;
    image.overwrite(&segment, bytes);
    assert_eq!(open(&image).unwrap_err().kind(), ErrorKind::Ambiguous);
}

#[test]
fn an_event_that_contains_journal_bytes_changes_no_verdict() {
    let (_, _, segment, end) = killed(2, 1000);
    let (other, ..) = killed(2, 1000);
    let copied = other.bytes(&segment).unwrap()[4096..end].to_vec();
    let disk = SimDisk::new();
    let log = open(&disk).unwrap();
    let mut model = Model::default();
    model.append(&log, "s", vec![copied.clone()]).unwrap();
    model.append(&log, "s", vec![copied]).unwrap();
    let image = disk.kill();
    drop(log);
    model.check(&open(&image.kill()).unwrap(), "whole");
    let whole = image.bytes(&segment).unwrap();
    let end = whole.iter().rposition(|b| *b != 0).unwrap() + 1;
    let with = |damage: &dyn Fn(&mut [u8])| {
        let (disk, mut bytes) = (image.kill(), whole.clone());
        damage(&mut bytes);
        disk.overwrite(&segment, bytes);
        open(&disk)
    };
    let torn = with(&|bytes| bytes[end - 700..end].fill(0)).unwrap();
    assert_eq!(torn.recovery().dropped.as_ref().unwrap().batch, 2);
    without_last(&model).check(&torn, "torn");
    assert_eq!(with(&|bytes| bytes[end - 100] ^= 1).unwrap_err().kind(), ErrorKind::Ambiguous);
    let error = with(&|bytes| bytes[4096 + 300] ^= 1).unwrap_err();
    assert_eq!((error.kind(), error.place().unwrap().batch), (ErrorKind::Corrupt, Some(1)));
}

#[test]
fn a_segment_cut_to_any_length_is_an_error_never_a_loss() {
    let (image, _, segment, _) = killed(3, 500);
    let whole = image.bytes(&segment).unwrap();
    for len in (0..whole.len()).step_by(whole.len() / 50).chain([1, 19, 20, 4095, 4096, 4097]) {
        let disk = image.kill();
        disk.overwrite(&segment, whole[..len].to_vec());
        let error = open(&disk).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "cut to {len}: {error}");
    }
}

#[test]
fn c5_a_lost_segment_is_seen_before_the_first_checkpoint() {
    let (image, ..) = killed(3, 500);
    let dir = image.root().subdir("journal", false).unwrap();
    for name in dir.list().unwrap() {
        dir.remove(name.name.to_str().unwrap()).unwrap();
    }
    for _ in 0..2 {
        assert_eq!(open(&image).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}

#[test]
fn c5_any_lost_segment_in_use_is_seen_and_named() {
    let disk = SimDisk::new();
    let log = open(&disk).unwrap();
    let mut model = Model::default();
    model.append(&log, "s", vec![line(0, 100)]).unwrap();
    log.close().unwrap();
    let log = open(&disk).unwrap();
    for n in 1..6 {
        model.append(&log, "s", (0..30).map(|k| line(n * 100 + k, 1500)).collect()).unwrap();
        if n == 3 {
            log.checkpoint().unwrap();
        }
    }
    let image = disk.kill();
    drop(log);
    model.check(&open(&image.kill()).unwrap(), "whole");
    let segments: Vec<_> = image.paths().into_iter().filter(|p| p.ends_with(".wal")).collect();
    let in_use = |path: &String| image.bytes(path).unwrap()[4096..].iter().any(|b| *b != 0);
    let used: Vec<_> = segments.iter().filter(|path| in_use(path)).collect();
    assert!(used.len() >= 3, "{used:?} of {segments:?}");
    let mut seen = 0;
    for path in used {
        let lost = image.kill();
        let dir = lost.root().subdir("journal", false).unwrap();
        dir.remove(path.strip_prefix("journal/").unwrap()).unwrap();
        match open(&lost) {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{path}: {error}");
                assert_eq!(&error.place().unwrap().file, path, "{error}");
                seen += 1;
            }
            // The store has all that stood in it, and the next one goes on from there.
            Ok(log) => model.check(&log, path),
        }
    }
    assert!(seen >= 2, "{seen}");
}

#[test]
fn c6_a_store_of_another_history_of_the_same_log_is_refused() {
    let disk = SimDisk::new();
    let log = open(&disk).unwrap();
    let mut model = Model::default();
    model.append(&log, "s", vec![line(0, 100)]).unwrap();
    log.close().unwrap();
    // Two copies go on in two ways, byte for byte equally long.
    let go_on = |n: usize, checkpoint: bool| {
        let copy = disk.kill();
        let log = open(&copy).unwrap();
        let mut model = model.clone();
        model.append(&log, "s", vec![line(n, 100)]).unwrap();
        if checkpoint {
            log.checkpoint().unwrap();
        }
        model.append(&log, "s", vec![line(n + 1, 100)]).unwrap();
        let image = copy.kill();
        drop(log);
        image
    };
    let (one, other) = (go_on(11, true), go_on(21, false));
    one.overwrite("events.redb", one.bytes("events.redb").unwrap());
    assert!(open(&one.kill()).is_ok() && open(&other.kill()).is_ok());
    other.overwrite("events.redb", one.bytes("events.redb").unwrap());
    let error = open(&other).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}

#[test]
fn bytes_behind_a_damaged_batch_prove_that_it_was_flushed() {
    let (image, _, segment, _) = killed(4, 3000);
    let whole = image.bytes(&segment).unwrap();
    let starts = batch_offsets(&whole);
    // The end of the third batch and the head of the last: neither is valid any more.
    let mut bytes = whole.clone();
    let at = starts[3] / 512 * 512;
    bytes[at - 512..at + 512].fill(0);
    image.overwrite(&segment, bytes);
    let error = open(&image).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Ambiguous, "{error}");
    assert_eq!(error.place().unwrap().batch, Some(3));
}

/// A store of several blocks, and what it holds.
fn stored() -> (SimDisk, Model) {
    let disk = SimDisk::new();
    let log = open(&disk).unwrap();
    let mut model = Model::default();
    for n in 0..3 {
        let id = format!("session-{n}");
        model.append(&log, &id, (0..40).map(|k| line(k * 7 + n, 200)).collect()).unwrap();
        let noise: Vec<u8> =
            (0..9000u32).map(|i| (i.wrapping_mul(2654435761) >> 24) as u8).collect();
        model.append(&log, &id, vec![noise]).unwrap();
    }
    log.close().unwrap();
    (disk, model)
}

/// Whatever is read is right, or an error says so.
fn right_or_reported(log: &EventLog, model: &Model) -> bool {
    let mut right = true;
    let Ok(snapshot) = log.snapshot() else { return false };
    for (id, lines) in &model.acknowledged {
        let events = match snapshot.read(id, ..) {
            Ok(events) => events,
            Err(error) => {
                assert!(
                    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound),
                    "{error}"
                );
                right = false;
                continue;
            }
        };
        let mut expected = lines.iter();
        for event in events {
            match event {
                Ok(event) => assert_eq!(event.bytes(), expected.next().unwrap().as_slice()),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                    right = false;
                }
            }
        }
        right &= expected.next().is_none();
    }
    right
}

/// Whether everything reads right with these bytes as the store; asserts that an error tells of it
/// where it does not.
fn looks_right(disk: &SimDisk, model: &Model, bytes: Vec<u8>, what: &str) -> bool {
    let image = disk.kill();
    image.overwrite("events.redb", bytes);
    let log = match options().open_dir_read_only(image.root()) {
        Ok(log) => log,
        Err(error) => {
            use ErrorKind::{Corrupt, NeedsRecovery, NewerFormat};
            let typed = matches!(error.kind(), Corrupt | NewerFormat | NeedsRecovery);
            assert!(typed, "{what}: {:?} {error}", error.kind());
            return false;
        }
    };
    let right = right_or_reported(&log, model);
    let seen = || log.verify().map_or(true, |report| !report.problems.is_empty());
    assert!(right || seen(), "{what}: verify sees it");
    right
}

/// Looks at every store that `damage` makes, and returns how many tell of it and how many are as if
/// nothing had been.
fn look_at_all(
    disk: &SimDisk,
    model: &Model,
    damage: impl Iterator<Item = (String, Vec<u8>)>,
) -> (u64, u64) {
    quiet_caught_panics();
    let (mut reported, mut silent) = (0, 0);
    for (what, bytes) in damage {
        match looks_right(disk, model, bytes, &what) {
            true => silent += 1,
            false => reported += 1,
        }
    }
    (reported, silent)
}

/// redb may panic inside; the log reports that, and nobody needs to read it here.
fn quiet_caught_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let default = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !eventlog::panics_are_caught() {
                default(info);
            }
        }));
    });
}

#[test]
fn i8_a_flipped_bit_in_the_store_is_never_returned_as_data() {
    let (disk, model) = stored();
    let whole = disk.bytes("events.redb").unwrap();
    let used: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] != 0).collect();
    let bits = used.len() as u64 * 8;
    let flips = amount("EVENTLOG_PROOF_FLIPS", 4_000).min(bits);
    // Spread over all that is not empty, and all of it with as many as there are. A flip can also
    // send redb behind the end of the file; it must go on reading what else there is.
    let damage = (0..flips).map(|n| {
        let bit = n * (bits / flips) + n * (bits % flips) / flips;
        let mut bytes = whole.clone();
        bytes[used[(bit / 8) as usize]] ^= 1 << (bit % 8);
        (format!("bit {bit}"), bytes)
    });
    let (reported, silent) = look_at_all(&disk, &model, damage);
    println!("{reported} flips reported, {silent} without effect");
    assert!(reported > 100, "{reported} reported, {silent} without effect");
}

#[test]
fn a_flipped_bit_in_an_inner_page_with_a_journal_to_replay_gives_an_error_or_what_was_written() {
    quiet_caught_panics();
    let (disk, mut model) = stored();
    let log = open(&disk).unwrap();
    for n in 0..3 {
        model.append(&log, "session-1", (0..40).map(|k| line(k + n, 200)).collect()).unwrap();
    }
    let killed = disk.kill();
    drop(log);
    let whole = killed.bytes("events.redb").unwrap();
    let (mut refused, mut opened) = (0, 0);
    for page in (4096..whole.len()).step_by(4096) {
        // An inner page: its kind, the count of its keys, checksums of its children, their numbers.
        let keys = usize::from(u16::from_le_bytes([whole[page + 2], whole[page + 3]]));
        if whole[page] != 2 || !(1..150).contains(&keys) {
            continue;
        }
        for bit in 0..64 * (keys + 1) {
            let mut bytes = whole.clone();
            bytes[page + 8 + 16 * (keys + 1) + bit / 8] ^= 1 << (bit % 8);
            let image = killed.kill();
            image.overwrite("events.redb", bytes);
            match open(&image) {
                Ok(log) => {
                    opened += 1;
                    let seen = || log.verify().map_or(true, |report| !report.problems.is_empty());
                    let right = right_or_reported(&log, &model);
                    assert!(right || seen(), "page {page}, bit {bit}: verify sees it");
                }
                Err(error) => {
                    refused += 1;
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "page {page}, bit {bit}: {error}");
                }
            }
        }
    }
    assert!(refused > 20 && opened > 20, "{refused} refused, {opened} opened");
}

#[test]
fn c2_a_page_of_zeros_garbage_or_another_place_is_never_returned_as_data() {
    const PAGE: usize = 4096;
    let (disk, model) = stored();
    let whole = disk.bytes("events.redb").unwrap();
    let pages = whole.len() / PAGE;
    let used = (0..pages).filter(|page| whole[page * PAGE..][..PAGE].iter().any(|b| *b != 0));
    let used: Vec<usize> = used.collect();
    let damage = used.iter().enumerate().flat_map(|(n, page)| {
        let other = used[(n + 1) % used.len()] * PAGE;
        let garbage = (0..PAGE).map(|at| (at * 167 + page * 31 % 251) as u8).collect::<Vec<u8>>();
        let contents = [vec![0; PAGE], garbage, whole[other..][..PAGE].to_vec()];
        let with = |(kind, content): (usize, Vec<u8>)| {
            let mut bytes = whole.clone();
            bytes[page * PAGE..][..PAGE].copy_from_slice(&content);
            (format!("page {page}, {kind}"), bytes)
        };
        contents.into_iter().enumerate().map(with).collect::<Vec<_>>()
    });
    let (reported, silent) = look_at_all(&disk, &model, damage);
    println!("{reported} pages reported, {silent} without effect");
    assert!(reported > 20, "{reported} reported, {silent} without effect");
}

#[test]
fn a_flipped_bit_in_a_block_is_reported_by_name() {
    let (disk, model) = stored();
    let whole = disk.bytes("events.redb").unwrap();
    let blocks: Vec<usize> =
        whole.windows(4).enumerate().filter(|(_, w)| w == b"EVBK").map(|(at, _)| at).collect();
    assert!(blocks.len() >= 3, "{blocks:?}");
    let mut named = 0;
    for at in blocks {
        let image = disk.kill();
        let mut bytes = whole.clone();
        bytes[at + 40] ^= 4;
        image.overwrite("events.redb", bytes);
        let log = options().open_dir_read_only(image.root()).unwrap();
        if right_or_reported(&log, &model) {
            continue; // a page that is no longer in use
        }
        let report = log.verify().unwrap();
        let problem = report.problems.iter().find(|p| p.kind == "corrupt").unwrap();
        assert!(problem.location.contains("block (session"), "{problem:?}");
        assert!(!report.bytes_accounted);
        named += 1;
    }
    assert!(named >= 3, "{named}");
}

#[test]
fn i9_bytes_of_a_recycled_segment_never_come_back() {
    let disk = SimDisk::new();
    let log = open(&disk).unwrap();
    let mut model = Model::default();
    let mut recycled = 0;
    for round in 0..6 {
        for n in 0..3 {
            let lines = (0..20).map(|k| line(round * 1000 + n * 100 + k, 900)).collect();
            model.append(&log, "s", lines).unwrap();
        }
        log.checkpoint().unwrap();
        model.append(&log, "s", vec![line(round, 40)]).unwrap();
        let image = disk.crash(&mut |_| Fate::Dropped);
        model.check(&open(&image).unwrap(), &format!("round {round}"));
        let renamed = |(op, path): &&(Op, String)| *op == Op::Rename && path.ends_with(".wal");
        recycled = disk.trace().iter().filter(renamed).count();
    }
    assert!(recycled >= 5, "{recycled} segments were used again");
}

#[test]
fn a_damaged_short_last_block_stops_neither_its_session_nor_the_others() {
    let disk = SimDisk::new();
    let log = open(&disk).unwrap();
    let mut model = Model::default();
    for id in ["a", "b"] {
        model.append(&log, id, (0..3).map(|n| line(n, 50)).collect()).unwrap();
    }
    log.close().unwrap();
    let mut bytes = disk.bytes("events.redb").unwrap();
    // The block of session 1, wherever it stands: its header begins with the session's number.
    let blocks = bytes.windows(4).enumerate().filter(|(_, w)| w == b"EVBK").map(|(at, _)| at);
    let of_a: Vec<usize> = blocks.filter(|at| bytes[at + 20] == 1).collect();
    of_a.iter().for_each(|at| bytes[at + 60] ^= 1);
    disk.overwrite("events.redb", bytes);
    let log = open(&disk).unwrap();
    for id in ["a", "b"] {
        model.append(&log, id, vec![line(3, 50)]).unwrap();
    }
    log.close().unwrap();
    let log = open(&disk).unwrap();
    assert_eq!(log.read("b", ..).unwrap().count(), 4);
    assert_eq!(
        log.read("a", 0..3).unwrap().next().unwrap().unwrap_err().kind(),
        ErrorKind::Corrupt
    );
    let last = log.read("a", 3..).unwrap().next().unwrap().unwrap();
    assert_eq!(last.bytes(), line(3, 50));
    let problems = log.verify().unwrap().problems;
    assert!(problems.iter().all(|problem| problem.kind == "corrupt"), "{problems:?}");
    assert!(!problems.is_empty());
}

#[test]
fn a_damaged_session_record_costs_that_session_alone() {
    let disk = SimDisk::new();
    let log = open(&disk).unwrap();
    let mut model = Model::default();
    for id in ["alpha", "beta"] {
        model.append(&log, id, (0..3).map(|n| line(n, 50)).collect()).unwrap();
    }
    log.checkpoint().unwrap();
    // In the journal alone:
    for id in ["alpha", "beta"] {
        model.append(&log, id, (3..7).map(|n| line(n, 50)).collect()).unwrap();
    }
    let image = disk.kill();
    let mut bytes = image.bytes("events.redb").unwrap();
    let records: Vec<usize> = bytes
        .windows(4)
        .enumerate()
        .filter(|(at, w)| w == b"EVSR" && bytes[*at..].get(..120).is_some_and(is_of_alpha))
        .map(|(at, _)| at)
        .collect();
    assert!(!records.is_empty());
    records.into_iter().for_each(|at| bytes[at + 24] ^= 1);
    image.overwrite("events.redb", bytes);

    let log = open(&image).unwrap();
    let refused = log.session("alpha").expect_err("its record is damaged");
    assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
    for n in 7..9 {
        model.append(&log, "beta", vec![line(n, 50)]).unwrap();
        log.checkpoint().unwrap();
    }
    log.close().unwrap();
    let log = open(&image).unwrap();
    model.append(&log, "beta", vec![line(9, 50)]).unwrap();
    let beta: Vec<_> = log.read("beta", ..).unwrap().map(|e| e.unwrap().bytes().to_vec()).collect();
    assert_eq!(beta, model.acknowledged["beta"]);
    assert_eq!(log.read("alpha", ..).unwrap_err().kind(), ErrorKind::Corrupt);

    let snapshot = log.snapshot().unwrap();
    let damaged: Vec<_> = snapshot.sessions().filter_map(|session| session.err()).collect();
    assert_eq!(damaged.len(), 1);
    assert!(damaged[0].to_string().contains("\"alpha\""), "{}", damaged[0]);
    let report = log.verify().unwrap();
    assert_eq!(report.stranded_events, 4);
    let found: Vec<_> =
        report.problems.iter().map(|p| (p.kind, p.session.as_deref().unwrap_or(""))).collect();
    assert_eq!(found, [("corrupt", "alpha"), ("stranded", "alpha")], "{:?}", report.problems);
}

fn is_of_alpha(record: &[u8]) -> bool {
    record.windows(5).any(|word| word == b"alpha")
}

#[test]
fn a_close_record_that_was_cut_off_is_the_end_and_no_batch() {
    let disk = SimDisk::new();
    let log = open(&disk).unwrap();
    let mut model = Model::default();
    model.append(&log, "s", vec![line(0, 100)]).unwrap();
    log.close().unwrap();
    let segment = disk.paths().into_iter().find(|path| path.ends_with(".wal")).unwrap();
    let whole = disk.bytes(&segment).unwrap();
    let start = whole.windows(4).rposition(|w| w == b"EVLC").unwrap();
    let end = whole.iter().rposition(|b| *b != 0).unwrap() + 1;
    for cut in start + 4..end {
        let image = disk.kill();
        let mut bytes = whole.clone();
        bytes[cut..].fill(0);
        image.overwrite(&segment, bytes);
        let log = open(&image).unwrap_or_else(|error| panic!("cut at {cut}: {error}"));
        assert_eq!(log.recovery().dropped, None, "cut at {cut}");
        model.check(&log, &format!("cut at {cut}"));
    }
}

#[test]
fn a_whole_batch_in_the_place_of_another_is_never_taken_for_it() {
    let (image, _, segment, end) = killed(4, 1500);
    let whole = image.bytes(&segment).unwrap();
    let starts = batch_offsets(&whole);
    let second = whole[starts[1]..starts[2]].to_vec();
    for (place, kinds) in
        [(2, [ErrorKind::Corrupt; 2]), (3, [ErrorKind::Corrupt, ErrorKind::Ambiguous])]
    {
        let mut bytes = whole.clone();
        bytes[starts[place]..end.min(starts[place] + second.len())].fill(0);
        bytes[starts[place]..][..second.len()].copy_from_slice(&second);
        let disk = image.kill();
        disk.overwrite(&segment, bytes);
        let error = open(&disk).unwrap_err();
        assert!(kinds.contains(&error.kind()), "{:?}: {error}", error.kind());
        assert_eq!(error.place().unwrap().batch, Some(place as u64 + 1));
    }
}

#[test]
fn a_close_record_counts_only_whole_and_in_its_place() {
    let disk = SimDisk::new();
    let log = open(&disk).unwrap();
    let mut model = Model::default();
    model.append(&log, "s", vec![line(0, 100)]).unwrap();
    let segment = disk.paths().into_iter().find(|path| path.ends_with(".wal")).unwrap();
    let one = disk.kill();
    model.append(&log, "s", vec![line(1, 100)]).unwrap();
    let two = disk.kill();
    log.close().unwrap();
    let last = |bytes: &[u8]| bytes.iter().rposition(|b| *b != 0).unwrap() + 1;
    let closed = disk.bytes(&segment).unwrap();
    let start = closed.windows(4).rposition(|w| w == b"EVLC").unwrap();
    let close = &closed[start..last(&closed)];
    let with = |image: &SimDisk, close: &[u8], behind: usize| {
        let mut bytes = image.bytes(&segment).unwrap();
        let end = last(&bytes);
        bytes[end..][..close.len()].copy_from_slice(close);
        bytes[end + close.len()..][..behind].fill(7);
        image.overwrite(&segment, bytes);
        open(image)
    };
    model.check(&with(&two.kill(), close, 0).unwrap(), "whole");
    // With bytes behind it: they may be a batch.
    let error = with(&two.kill(), close, 600).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Ambiguous, "{error}");
    // Damaged, and what is behind it ends without an end mark: a write that was cut off.
    let damaged: Vec<u8> = close.iter().enumerate().map(|(n, b)| b ^ u8::from(n == 8)).collect();
    let log = with(&two.kill(), &damaged, 600).unwrap();
    model.check(&log, "damaged");
    assert!(log.recovery().dropped.is_some());
    // Of a later end: a batch is missing.
    for behind in [0, 600] {
        let error = with(&one.kill(), close, behind).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
}

#[test]
fn i9_a_batch_of_an_older_epoch_behind_the_end_is_no_batch() {
    let disk = SimDisk::new();
    let log = open(&disk).unwrap();
    let mut model = Model::default();
    model.append(&log, "s", vec![line(0, 900)]).unwrap();
    let first = disk.paths().into_iter().find(|path| path.ends_with(".wal")).unwrap();
    let bytes = disk.bytes(&first).unwrap();
    let start = batch_offsets(&bytes)[0];
    let old = bytes[start..=bytes.iter().rposition(|b| *b != 0).unwrap()].to_vec();
    log.close().unwrap();
    let log = open(&disk).unwrap();
    model.append(&log, "s", vec![line(1, 500)]).unwrap();
    let image = disk.kill();
    drop(log);
    let last = image.paths().into_iter().filter(|path| path.ends_with(".wal")).max().unwrap();
    assert_ne!(first, last, "a later epoch");
    let mut bytes = image.bytes(&last).unwrap();
    let end = bytes.iter().rposition(|b| *b != 0).unwrap() + 1;
    bytes[end..][..old.len()].copy_from_slice(&old);
    image.overwrite(&last, bytes);
    let log = open(&image).unwrap();
    model.check(&log, "with an old batch behind the end");
    assert_eq!(log.recovery().dropped, None);
}
