//! The start-up table of DESIGN.md, a test per row: what stands on the disk, and what opening the
//! log does.
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
use eventlog::{Error, ErrorKind, EventLog};
use support::{Model, STORE, contents, files, line, open, options, rows};

/// A closed log with a checkpointed session.
fn closed() -> (SimDisk, Model) {
    let disk = SimDisk::new();
    let mut model = Model::default();
    let log = open(&disk).unwrap();
    model.append(&log, "s", (0..5).map(|n| line(n, 100)).collect()).unwrap();
    log.close().unwrap();
    (disk, model)
}

/// A log whose process was killed with events in the journal.
fn killed() -> (SimDisk, Model) {
    let (disk, mut model) = closed();
    let log = open(&disk).unwrap();
    model.append(&log, "s", (5..8).map(|n| line(n, 100)).collect()).unwrap();
    model.append(&log, "t", vec![line(0, 100)]).unwrap();
    let image = disk.kill();
    drop(log);
    (image, model)
}

fn segments(disk: &SimDisk) -> Vec<String> {
    disk.paths().into_iter().filter(|path| path.ends_with(".wal")).collect()
}

fn remove(disk: &SimDisk, path: &str) {
    let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
    let root = disk.root();
    let dir = if dir.is_empty() { root } else { root.subdir(dir, false).unwrap() };
    dir.remove(name).unwrap();
    dir.sync().unwrap();
}

/// Refused, and every file stays, byte for byte, but for one: the store was opened to see that the
/// journal does not fit, and redb writes to its file whenever it is opened and closed. Every row of
/// it stays.
fn refuses(disk: &SimDisk) -> Error {
    let before = files(disk);
    let error = open(disk).unwrap_err();
    let after = files(disk);
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
    for (path, bytes) in &before {
        match path == STORE {
            true => assert!(after[path] == *bytes || rows(&after[path]) == rows(bytes), "{path}"),
            false => assert!(after[path] == *bytes, "{path} is changed"),
        }
    }
    assert!(error.hint().is_some(), "{error} says what to do");
    error
}

/// Refused, and not a byte of any file is changed or written anew.
fn refuses_without_a_write(disk: &SimDisk) -> Error {
    let (before, operations) = (files(disk), disk.trace().len());
    let error = refuses(disk);
    assert!(files(disk) == before, "a byte is changed");
    for (op, path) in &disk.trace()[operations..] {
        assert!(matches!(op, Op::Sync | Op::DirSync | Op::Remove), "{op:?} {path}");
    }
    error
}

fn corrupt_at(error: Error, place: &str) -> Error {
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.place().unwrap().file.contains(place), "{error}: {:?}", error.place());
    error
}

fn opens(disk: &SimDisk, model: &Model) -> EventLog {
    let log = open(disk).unwrap();
    model.check(&log, "opened");
    log
}

#[test]
fn store_absent_journal_absent_is_a_new_log() {
    let disk = SimDisk::new();
    let log = opens(&disk, &Model::default());
    assert!(log.recovery().clean);
    log.close().unwrap();
    assert!(disk.paths().contains(&STORE.to_owned()));
}

#[test]
fn store_absent_journal_absent_without_create_is_not_found() {
    let disk = SimDisk::new();
    let error = options().create(false).open_dir(disk.root()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(disk.paths().is_empty() && disk.trace().is_empty(), "nothing is made");
}

#[test]
fn store_temporary_only_is_a_new_log() {
    let disk = SimDisk::new();
    disk.overwrite("events.redb.tmp", vec![7; 5000]);
    opens(&disk, &Model::default()).close().unwrap();
    assert!(!disk.paths().contains(&"events.redb.tmp".to_owned()));
}

#[test]
fn store_absent_journal_present_is_a_loss_and_refused() {
    let (disk, _) = killed();
    remove(&disk, STORE);
    corrupt_at(refuses_without_a_write(&disk), STORE);
}

#[test]
fn store_temporary_only_journal_present_is_a_loss_and_refused() {
    let (disk, _) = killed();
    disk.overwrite("events.redb.tmp", disk.bytes(STORE).unwrap());
    remove(&disk, STORE);
    corrupt_at(refuses_without_a_write(&disk), STORE);
}

#[test]
fn store_never_opened_journal_absent_is_an_interrupted_creation() {
    let probe = SimDisk::new();
    open(&probe).unwrap().close().unwrap();
    let mut seen = 0;
    for cut in 0..probe.trace().len() as u64 {
        let disk = SimDisk::new();
        disk.cut_after(cut);
        drop(open(&disk));
        let image = disk.kill();
        if image.paths().contains(&STORE.to_owned()) && segments(&image).is_empty() {
            opens(&image, &Model::default());
            seen += 1;
        }
    }
    assert!(seen > 0);
}

#[test]
fn store_opened_before_journal_absent_is_a_loss_and_refused_even_without_events() {
    let disk = SimDisk::new();
    open(&disk).unwrap().close().unwrap();
    for segment in segments(&disk) {
        remove(&disk, &segment);
    }
    corrupt_at(refuses(&disk), "journal");
}

#[test]
fn store_ok_journal_absent_is_a_loss_and_refused() {
    let (disk, _) = closed();
    for segment in segments(&disk) {
        remove(&disk, &segment);
    }
    corrupt_at(refuses(&disk), "journal");
}

#[test]
fn store_ok_journal_behind_opens_without_replay() {
    let (disk, model) = closed();
    let log = opens(&disk, &model);
    assert!(log.recovery().clean);
    assert_eq!(log.recovery().replayed_batches, 0);
}

#[test]
fn store_ok_journal_ahead_is_replayed() {
    let (disk, model) = killed();
    let log = opens(&disk, &model);
    let recovery = log.recovery();
    assert!(!recovery.clean);
    assert_eq!((recovery.replayed_batches, recovery.replayed_events), (2, 4));
    assert_eq!(recovery.dropped, None);
}

#[test]
fn store_ok_journal_with_a_gap_is_refused() {
    let disk = SimDisk::new();
    let mut model = Model::default();
    let log = open(&disk).unwrap();
    for n in 0..6 {
        // Each fills most of a segment.
        model.append(&log, "s", (0..30).map(|k| line(n * 100 + k, 1500)).collect()).unwrap();
    }
    let disk = {
        let image = disk.kill();
        drop(log);
        image
    };
    let all = segments(&disk);
    assert!(all.len() >= 4, "{all:?}");
    remove(&disk, &all[2]);
    let error = corrupt_at(refuses(&disk), "journal/");
    assert!(error.place().unwrap().batch.is_some(), "{error}");
}

#[test]
fn store_ok_journal_of_another_store_is_refused() {
    let (disk, _) = killed();
    let (other, _) = killed();
    for segment in segments(&disk) {
        disk.overwrite(&segment, other.bytes(&segment).unwrap());
    }
    let error = corrupt_at(refuses(&disk), "journal/");
    assert!(error.to_string().contains("another log"), "{error}");
}

#[test]
fn store_older_journal_still_complete_is_replayed() {
    let (disk, mut model) = closed();
    let old = disk.bytes(STORE).unwrap();
    let log = open(&disk).unwrap();
    model.append(&log, "s", vec![line(7, 100)]).unwrap();
    log.checkpoint().unwrap();
    model.append(&log, "s", vec![line(8, 100)]).unwrap();
    let image = disk.kill();
    drop(log);
    image.overwrite(STORE, old);
    let log = opens(&image, &model);
    assert_eq!(log.recovery().replayed_batches, 2);
}

#[test]
fn store_older_journal_moved_on_is_refused() {
    let disk = SimDisk::new();
    let mut model = Model::default();
    let log = open(&disk).unwrap();
    model.append(&log, "s", vec![line(0, 100)]).unwrap();
    log.close().unwrap();
    let old = disk.bytes(STORE).unwrap();
    let log = open(&disk).unwrap();
    model.append(&log, "s", vec![line(1, 100)]).unwrap();
    log.close().unwrap();
    let log = open(&disk).unwrap();
    model.append(&log, "s", vec![line(2, 100)]).unwrap();
    log.close().unwrap();
    disk.overwrite(STORE, old);
    let error = corrupt_at(refuses(&disk), "journal/");
    assert_eq!(error.place().unwrap().batch, Some(2), "{error}");
}

#[test]
fn store_in_need_of_repair_is_repaired() {
    let (disk, mut model) = closed();
    let log = open(&disk).unwrap();
    model.append(&log, "s", vec![line(5, 100)]).unwrap();
    log.checkpoint().unwrap();
    model.append(&log, "s", vec![line(6, 100)]).unwrap();
    let image = disk.crash(&mut |_| Fate::Dropped);
    drop(log);
    // redb's flag for it, behind its magic number; a log that was closed does not have it.
    let needs_repair = |disk: &SimDisk| disk.bytes(STORE).unwrap()[9] & 2 != 0;
    assert!(needs_repair(&image) && !needs_repair(&closed().0));
    opens(&image, &model).close().unwrap();
    assert!(!needs_repair(&image));
}

#[test]
fn store_broken_is_refused() {
    let (disk, _) = killed();
    for bytes in [Vec::new(), vec![0; 100_000], b"something else entirely".repeat(5000)] {
        disk.overwrite(STORE, bytes);
        corrupt_at(refuses_without_a_write(&disk), STORE);
    }
    let (disk, _) = killed();
    let mut cut = disk.bytes(STORE).unwrap();
    cut.truncate(5000);
    disk.overwrite(STORE, cut);
    corrupt_at(refuses_without_a_write(&disk), STORE);
}

#[test]
fn segment_restored_under_another_name_is_refused() {
    let (disk, _) = killed();
    let segment = segments(&disk).pop().unwrap();
    disk.overwrite("journal/0000000099.wal", disk.bytes(&segment).unwrap());
    corrupt_at(refuses(&disk), "0000000099.wal");
}

#[test]
fn segment_of_an_interrupted_creation_is_removed() {
    let (disk, model) = killed();
    disk.overwrite("journal/0000000099.tmp", vec![0; 10_000]);
    opens(&disk, &model);
    assert!(!disk.paths().iter().any(|path| path.ends_with(".tmp")));
}

#[test]
fn segment_of_a_newer_version_is_refused_as_newer() {
    let (disk, _) = killed();
    let segment = segments(&disk).pop().unwrap();
    let mut bytes = disk.bytes(&segment).unwrap();
    // The header begins behind the prefix of 20 bytes, with the version as a one-byte integer.
    bytes[20] += 1;
    let header_len = usize::from(u16::from_le_bytes([bytes[6], bytes[7]]));
    let mut hasher = crc32fast::Hasher::new_with_initial(0);
    hasher.update(&bytes[..16]);
    hasher.update(&bytes[20..20 + header_len]);
    let crc = hasher.finalize().to_le_bytes();
    bytes[16..20].copy_from_slice(&crc);
    disk.overwrite(&segment, bytes);
    assert_eq!(refuses(&disk).kind(), ErrorKind::NewerFormat);
}

#[test]
fn a_second_writer_writes_nothing_and_is_told_who_the_first_is() {
    let disk = SimDisk::new();
    let log = open(&disk).unwrap();
    let (before, operations) = (files(&disk), disk.trace());
    let error = open(&disk).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked);
    assert!(files(&disk) == before && disk.trace() == operations, "nothing is written");
    assert_eq!(error.owner().unwrap().pid, Some(std::process::id()));
    assert!(error.owner().unwrap().since_unix_micros.is_some());
    log.close().unwrap();
    assert!(contents(&open(&disk).unwrap()).is_empty());
}

/// After its writer has closed, and after it was killed.
#[test]
fn a_reader_writes_nothing_whether_it_opens_or_is_refused() {
    let (closed, model) = closed();
    let (killed, _) = killed();
    for (disk, opens) in [(&closed, true), (&killed, false)] {
        let (before, operations) = (files(disk), disk.trace());
        match options().open_dir_read_only(disk.root()) {
            Ok(log) => {
                assert!(opens);
                model.check(&log, "read only");
                log.close().unwrap();
            }
            Err(error) => {
                assert!(!opens, "{error}");
                assert_eq!(error.kind(), ErrorKind::NeedsRecovery, "{error}");
            }
        }
        assert!(files(disk) == before, "a byte is changed");
        assert_eq!(disk.trace(), operations, "nothing but reads");
    }
}

#[test]
fn journal_directory_of_an_interrupted_creation_is_made_durable_before_it_is_used() {
    // Every point at which a first open can be killed, in memory only: nothing but what is flushed
    // later is durable.
    let probe = SimDisk::new();
    open(&probe).unwrap().close().unwrap();
    for cut in 0..probe.trace().len() as u64 {
        let disk = SimDisk::new();
        disk.cut_after(cut);
        drop(open(&disk));
        disk.heal();
        let Ok(log) = open(&disk) else { panic!("cut {cut}: the second open works") };
        let mut model = Model::default();
        model.append(&log, "s", vec![line(0, 100)]).unwrap();
        let image = disk.crash(&mut |_| Fate::Dropped);
        model.check(&open(&image).unwrap(), &format!("cut {cut}"));
    }
}
