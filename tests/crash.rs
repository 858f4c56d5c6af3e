//! Power cuts: whatever the disk legally makes of unsynced writes, everything acknowledged is there
//! after the next open, and a batch that was not acknowledged is there whole or not at all (I1 to
//! I6).
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

use std::collections::{BTreeMap, BTreeSet};

use eventlog::io::sim::{Fate, Op, SimDisk};
use eventlog::{ErrorKind, EventLog, Result, sessions};
use support::power::{
    BASIC, Dice, Outcome, Step, amount, cut, image, name_variants, operations, outcome, run,
    some_cuts, some_variants, until, variants, workload,
};
use support::{Model, STORE, contents, line, open, rows};

/// A cut never makes a log that refuses to be opened.
fn open_after(disk: &SimDisk, what: &str) -> EventLog {
    open(disk).unwrap_or_else(|error| panic!("{what}: {:?} {error}", error.kind()))
}

/// Looks at one in so many of the variants of what a cut behind `at` operations leaves. Returns how
/// many that were.
fn look(steps: &[Step], at: u64, seed: u64, stride: usize) -> u64 {
    let (disk, model) = cut(steps, at);
    let mut images = 0;
    for (variant, fates) in some_variants(&disk, seed, at, stride) {
        let what = format!("seed {seed}, cut {at}, {variant}, {steps:?}");
        let image = image(&disk, &fates);
        let log = open_after(&image, &what);
        model.check(&log, &what);
        images += 1;
        if (seed + at + images).is_multiple_of(64) {
            model.check_export(&log, &what);
        }
        log.close().unwrap();
    }
    images
}

/// Random workloads, cut at random operations: unsynced writes lost, kept out of order, torn (A1 to
/// A3), names that were not flushed (A4), each step of making, recycling and checkpointing (A5).
#[test]
fn i1_i2_i3_i6_a_power_cut_loses_nothing_acknowledged_and_leaves_no_half_batch() {
    let wanted = amount("EVENTLOG_PROOF_IMAGES", 4_000);
    let (images, seeds) = until(wanted, |seed| {
        let steps = workload(seed);
        let total = operations(&steps);
        let mut dice = Dice::new(seed ^ 0xC07);
        (0..6).map(|_| look(&steps, dice.roll(total + 1), seed, 1)).sum()
    });
    println!("{images} images of {seeds} seeds");
    assert!(images >= wanted);
}

/// All workloads of up to so many steps.
fn small_workloads(steps: usize) -> Vec<Vec<Step>> {
    let mut workloads: Vec<Vec<Step>> = vec![Vec::new()];
    for len in 0..steps {
        let longer = |before: &Vec<Step>| {
            let with = |step| [before.as_slice(), &[step]].concat();
            BASIC.map(with)
        };
        let last = workloads.iter().filter(|steps| steps.len() == len);
        let more: Vec<Vec<Step>> = last.flat_map(longer).collect();
        workloads.extend(more);
    }
    workloads
}

/// The cuts of a small workload that are looked at: all with a stride below 100.
fn small_cuts(steps: &[Step], seed: u64, stride: u64) -> impl Iterator<Item = u64> {
    some_cuts(operations(steps), seed, (stride / 50).max(1))
}

/// Small and complete: whatever can go wrong after one, two or three steps does here. With
/// `EVENTLOG_PROOF_STRIDE=1` every variant of every cut is looked at.
#[test]
fn cuts_of_every_workload_of_up_to_three_steps_lose_nothing() {
    let workloads = small_workloads(3);
    assert_eq!(workloads.len(), 1 + 6 + 36 + 216);
    let stride = amount("EVENTLOG_PROOF_STRIDE", 400);
    let count = workloads.len() as u64;
    let looked_at = std::sync::atomic::AtomicU64::new(0);
    until(count, |seed| {
        let steps = &workloads[(seed % count) as usize];
        let look_at = |at| look(steps, at, seed, stride as usize);
        let images: u64 = small_cuts(steps, seed, stride).map(look_at).sum();
        looked_at.fetch_add(images, std::sync::atomic::Ordering::Relaxed);
        1
    });
    println!("{} images of {count} workloads", looked_at.into_inner());
}

/// What is skipped is not always the same: of few unsynced items and of many, each outcome that a
/// power cut can have is among the variants that are looked at.
#[test]
fn one_variant_in_40_of_each_cut_reaches_every_outcome_for_any_number_of_unsynced_items() {
    let stride = 40;
    // How many items are unsynced (one or two, up to five, up to ten, more), and what became of them.
    let class = |fates: &[Fate]| {
        let items = [0, 2, 5, 10].iter().filter(|most| fates.len() > **most).count();
        (items, outcome(fates))
    };
    let (mut possible, mut reached) = (BTreeMap::new(), BTreeMap::new());
    for (seed, steps) in (1..).zip(small_workloads(2)) {
        for at in small_cuts(&steps, seed, stride) {
            let (disk, _) = cut(&steps, at);
            for (_, fates) in variants(&disk, seed ^ at) {
                *possible.entry(class(&fates)).or_insert(0) += 1;
            }
            for (_, fates) in some_variants(&disk, seed, at, stride as usize) {
                *reached.entry(class(&fates)).or_insert(0) += 1;
            }
        }
    }
    println!("{reached:?} of {possible:?}");
    use Outcome::{AllKept, AllLost, Beginning, OutOfOrder, TornAmongKept, TornEnd, Whole};
    let outcomes = [AllLost, AllKept, Beginning, OutOfOrder, TornEnd, TornAmongKept];
    let all = (1..=4).flat_map(|items| outcomes.map(|outcome| (items, outcome)));
    let all: Vec<_> = std::iter::once((0, Whole)).chain(all).collect();
    assert_eq!(possible.keys().copied().collect::<Vec<_>>(), all);
    assert_eq!(reached.keys().copied().collect::<Vec<_>>(), all);
}

/// D1: the power goes again at every operation of the recovery, and a third time at random.
#[test]
fn i4_i5_a_cut_during_recovery_loses_nothing_and_recovery_can_be_repeated() {
    let wanted = amount("EVENTLOG_PROOF_NESTED", 2_000);
    let (images, seeds) = until(wanted, |seed| {
        let steps = workload(seed);
        let mut dice = Dice::new(seed ^ 0xD1);
        let (disk, model) = cut(&steps, dice.roll(operations(&steps) + 1));
        let all = variants(&disk, seed);
        let (variant, fates) = &all[dice.roll(all.len() as u64) as usize];
        let first = image(&disk, fates);
        let probe = first.kill();
        drop(open(&probe));
        let mut images = 0;
        for second in 0..=probe.trace().len() as u64 {
            let twice = first.kill();
            twice.cut_after(second);
            drop(open(&twice));
            let all = variants(&twice, seed ^ second);
            for _ in 0..3 {
                let (again, fates) = &all[dice.roll(all.len() as u64) as usize];
                let what = format!("seed {seed}, {variant}, cut {second}: {again}, {steps:?}");
                let mut last = image(&twice, fates);
                if dice.roll(4) == 0 {
                    last.cut_after(dice.roll(30));
                    drop(open(&last));
                    let all = variants(&last, seed);
                    last = image(&last, &all[dice.roll(all.len() as u64) as usize].1);
                }
                let log = open_after(&last, &what);
                model.check(&log, &what);
                images += 1;
            }
        }
        images
    });
    println!("{images} images of {seeds} seeds");
    assert!(images >= wanted);
}

/// What an interrupted creation left under a temporary name was removed and the name used again; the
/// removal was lost, and the rename found the old file.
#[test]
fn i5_a_file_that_was_left_over_never_takes_the_place_of_a_new_one() {
    let steps = [Step::Append { session: 'a', events: 1, bytes: 40 }];
    let mut images = 0;
    for at in 0..=operations(&steps) {
        let (disk, model) = cut(&steps, at);
        let first = disk.kill();
        if !first.paths().iter().any(|path| path.ends_with(".tmp")) {
            continue;
        }
        let probe = first.kill();
        drop(open(&probe));
        for second in 0..=probe.trace().len() as u64 {
            let twice = first.kill();
            twice.cut_after(second);
            drop(open(&twice));
            for (variant, fates) in name_variants(&twice) {
                let what = format!("cut {at}, all kept, cut {second}: {variant}");
                let log = open_after(&image(&twice, &fates), &what);
                model.check(&log, &what);
                images += 1;
            }
        }
    }
    println!("{images} images");
    assert!(images > 500, "{images} images");
}

#[test]
fn i1_a_process_kill_at_any_operation_loses_nothing_acknowledged_even_without_flushes() {
    let run = |disk: &SimDisk, model: &mut Model| -> Result<()> {
        let log = support::options().sync(eventlog::Sync::Os).open_dir(disk.root())?;
        for n in 0..8 {
            model.append(&log, "s", vec![line(n, 900)])?;
        }
        log.close()
    };
    let whole = SimDisk::new();
    run(&whole, &mut Model::default()).unwrap();
    let operations = whole.trace().len() as u64;
    for cut in 0..=operations {
        let disk = SimDisk::new();
        disk.cut_after(cut);
        let mut model = Model::default();
        assert_eq!(run(&disk, &mut model).is_ok(), cut == operations, "kill at {cut}");
        let log = open(&disk.kill()).unwrap();
        model.check(&log, &format!("kill at {cut}"));
    }
}

/// I4: what is written when a log is opened that a recovery has left, and that was killed again.
#[test]
fn i4_a_second_recovery_changes_one_row_of_the_store_and_each_further_one_does_the_same() {
    let disk = SimDisk::new();
    let mut model = Model::default();
    let log = open(&disk).unwrap();
    model.append(&log, "s", (0..10).map(|n| line(n, 100)).collect()).unwrap();
    std::mem::forget(log); // a kill
    let mut disk = disk.kill();
    let mut recovered = || {
        let before = disk.bytes(STORE).unwrap();
        let log = open(&disk).unwrap();
        let replayed = log.recovery().replayed_events;
        let trace = disk.trace();
        model.check(&log, "recovered");
        std::mem::forget(log);
        let after = disk.bytes(STORE).unwrap();
        disk = disk.kill();
        (replayed, trace, before, after)
    };
    let on_the_store = |trace: &[(Op, String)]| -> Vec<Op> {
        trace.iter().filter(|(_, path)| path == STORE).map(|(op, _)| *op).collect()
    };
    let (replayed, trace, before, after) = recovered();
    assert_eq!(replayed, 10);
    let first = on_the_store(&trace);
    assert!(changed_rows(&before, &after).len() > 1, "the first has something to write down");
    let mut second = None;
    for _ in 0..3 {
        let (replayed, trace, before, after) = recovered();
        assert_eq!(replayed, 0);
        let changed = changed_rows(&before, &after);
        let changed: Vec<_> = changed.iter().map(|(table, key)| (&**table, &**key)).collect();
        assert_eq!(changed, [("meta", "\"opened\"")], "the segment that it begins with");
        assert_eq!(before.len(), after.len(), "the store does not grow");
        let store = on_the_store(&trace);
        assert!(store.len() < first.len(), "{store:?}, the first {first:?}");
        assert!(!store.contains(&Op::SetLen), "{store:?}");
        // It is one transaction, behind the new segment and before the old one goes.
        let at = |wanted: &str| trace.iter().position(|(_, path)| path.ends_with(wanted)).unwrap();
        let (made, gone) = (at("journal"), at(".wal"));
        assert_eq!((&trace[made].0, &trace[gone].0), (&Op::DirSync, &Op::Remove));
        let row = on_the_store(&trace[made..gone]);
        assert_eq!(row.iter().filter(|op| **op == Op::Sync).count(), 2, "one commit: {row:?}");
        assert_eq!(gone - made - 1, row.len(), "{trace:?}");
        assert_eq!(*second.get_or_insert(store.clone()), store, "like the one before");
    }
}

/// Table and key of what is another row or not there in one of two stores.
fn changed_rows(before: &[u8], after: &[u8]) -> Vec<(String, String)> {
    let (before, after) = (rows(before), rows(after));
    let only = |a: &[(String, String, Vec<u8>)], b: &[(String, String, Vec<u8>)]| {
        let only = a.iter().filter(|row| !b.contains(row));
        only.map(|(table, key, _)| (table.clone(), key.clone())).collect::<Vec<_>>()
    };
    let mut changed = [only(&before, &after), only(&after, &before)].concat();
    changed.sort();
    changed.dedup();
    changed
}

/// Some megabytes, which are copied in several batches.
#[test]
fn a_fork_that_is_cut_off_at_any_operation_is_finished_by_forking_again() {
    let disk = SimDisk::new();
    let log = open(&disk).unwrap();
    let lines: Vec<_> = (0..40).map(|n| line(n, 60_000)).collect();
    Model::default().append(&log, "s", lines.clone()).unwrap();
    log.close().unwrap();
    let fork = |disk: &SimDisk| -> Result<u64> {
        let log = open(disk)?;
        sessions::fork(&log, "s", 39, "f")
    };
    let probe = disk.kill();
    let before = probe.trace().len();
    fork(&probe).unwrap();
    let operations = (probe.trace().len() - before) as u64;
    let mut begun = BTreeSet::new();
    for cut in 0..operations {
        let twice = disk.kill();
        twice.cut_after(cut);
        _ = fork(&twice);
        let twice = twice.kill();
        let log = open(&twice).unwrap();
        let session = log.snapshot().unwrap().session("f").unwrap();
        begun.insert(session.map_or(0, |session| session.events));
        assert_eq!(sessions::fork(&log, "s", 39, "f").unwrap(), 40, "cut {cut}");
        assert!(contents(&log)["f"] == lines, "cut {cut}");
    }
    // Nothing of it, all of it, and at least two parts.
    assert!(begun.contains(&0) && begun.contains(&40) && begun.len() >= 4, "{begun:?}");
}

#[test]
fn errors_of_a_cut_are_typed() {
    let steps = [BASIC, BASIC].concat();
    for cut in (0..operations(&steps)).step_by(11) {
        let disk = SimDisk::new();
        disk.cut_after(cut);
        let error = run(&disk, &steps, &mut Model::default()).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Io | ErrorKind::Poisoned),
            "cut {cut}: {:?} {error}",
            error.kind()
        );
    }
}

#[test]
fn a_cut_during_a_purge_leaves_the_session_whole_or_gone_and_the_others_alone() {
    let steps = [
        Step::Append { session: 'a', events: 4, bytes: 700 },
        Step::Append { session: 'b', events: 20, bytes: 900 },
        Step::Checkpoint,
        Step::Append { session: 'b', events: 1, bytes: 900 },
        Step::Memory('b'),
        Step::Purge('b'),
        Step::Append { session: 'a', events: 1, bytes: 100 },
        // The id is free, and the number may be given again.
        Step::Append { session: 'b', events: 1, bytes: 100 },
    ];
    let stride = amount("EVENTLOG_PROOF_STRIDE", 20) as usize;
    let last = operations(&steps);
    let images: u64 = (0..=last).map(|at| look(&steps, at, 7, stride)).sum();
    println!("{images} images of {} cuts", last + 1);
    assert!(images > last && last > 150, "{images} images, {last} operations");
}
