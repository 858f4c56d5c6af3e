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

use eventlog::io::sim::{Fate, SimDisk};
use eventlog::{ErrorKind, EventLog, Result};
use support::{Model, line, open};

/// A little of everything; stops at the first error.
fn workload(disk: &SimDisk, model: &mut Model) -> Result<()> {
    let log = open(disk)?;
    model.append(&log, "a", vec![line(0, 10)])?;
    model.append(&log, "b", (0..5).map(|n| line(n, 700)).collect())?;
    log.checkpoint()?;
    model.append(&log, "a", vec![line(1, 3000)])?;
    // Over 60 KiB: the next segment.
    model.append(&log, "c", (0..30).map(|n| line(n, 1500)).collect())?;
    model.append(&log, "c", (30..60).map(|n| line(n, 1500)).collect())?;
    log.checkpoint()?;
    model.append(&log, "b", vec![line(9, 10)])?;
    log.close()?;
    let log = open(disk)?;
    model.append(&log, "a", vec![line(2, 10)])?;
    model.append(&log, "d", vec![line(0, 200)])?;
    log.close()
}

fn total_operations() -> u64 {
    let disk = SimDisk::new();
    workload(&disk, &mut Model::default()).unwrap();
    disk.trace().len() as u64
}

/// Small and different every time, the same for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }
}

/// The fates tried for the `n`-th unsynced item.
type Variant = (String, Box<dyn FnMut(usize) -> Fate>);

fn variants(items: usize, seed: u64) -> Vec<Variant> {
    let mut all: Vec<Variant> = vec![
        ("all kept".into(), Box::new(|_| Fate::Kept)),
        ("none kept".into(), Box::new(|_| Fate::Dropped)),
    ];
    for at in 0..items.min(24) {
        let keep = move |yes| if yes { Fate::Kept } else { Fate::Dropped };
        all.push((format!("up to {at}"), Box::new(move |n| keep(n <= at))));
        all.push((format!("all but {at}"), Box::new(move |n| keep(n != at))));
        all.push((
            format!("up to {at}, which is torn"),
            Box::new(move |n| if n == at { Fate::Torn(512) } else { keep(n < at) }),
        ));
    }
    for random in 0..8 {
        let mut dice = Dice(seed * 64 + random + 1);
        let name = format!("random {random} of seed {seed}");
        all.push((
            name,
            Box::new(move |_| match dice.roll(5) {
                0 | 1 => Fate::Kept,
                2 | 3 => Fate::Dropped,
                _ => Fate::Torn(512 * dice.roll(8) as usize),
            }),
        ));
    }
    all
}

fn unsynced(disk: &SimDisk) -> usize {
    let mut items = 0;
    disk.crash(&mut |_| {
        items += 1;
        Fate::Kept
    });
    items
}

/// The disk after a cut, for every variant.
fn images(disk: &SimDisk, seed: u64) -> Vec<(String, SimDisk)> {
    let variants = variants(unsynced(disk), seed);
    let crash = |(name, mut fate): Variant| {
        let mut n = 0;
        let image = disk.crash(&mut |_| {
            n += 1;
            fate(n - 1)
        });
        (name, image)
    };
    variants.into_iter().map(crash).collect()
}

/// A tear inside the only sector of a small batch looks complete: the log refuses to guess, and the
/// user decides.
fn open_or_decide(disk: &SimDisk, what: &str) -> EventLog {
    open(disk).unwrap_or_else(|error| panic!("{what}: {:?} {error}", error.kind()))
}

#[test]
fn i1_i2_a_cut_after_any_operation_loses_nothing_acknowledged() {
    let mut count = 0;
    for cut in 0..=total_operations() {
        let disk = SimDisk::new();
        disk.cut_after(cut);
        let mut model = Model::default();
        let _ = workload(&disk, &mut model);
        for (variant, image) in images(&disk, cut) {
            let what = format!("cut {cut}, {variant}");
            let log = open_or_decide(&image, &what);
            model.check(&log, &what);
            log.close().unwrap();
            count += 1;
        }
    }
    println!("{count} images");
    assert!(count > 1000, "{count} images");
}

#[test]
fn i4_i5_a_cut_during_recovery_loses_nothing_and_recovery_can_be_repeated() {
    let mut count = 0;
    let total = total_operations();
    for cut in (0..=total).step_by(7) {
        let disk = SimDisk::new();
        disk.cut_after(cut);
        let mut model = Model::default();
        let _ = workload(&disk, &mut model);
        for (variant, image) in images(&disk, cut).into_iter().step_by(5) {
            // The operations of the recovery itself.
            let probe = image.kill();
            drop(open(&probe));
            let steps = probe.trace().len() as u64;
            for second in (0..=steps).step_by(3) {
                let twice = image.kill();
                twice.cut_after(second);
                drop(open(&twice));
                for fate in [Fate::Kept, Fate::Dropped] {
                    let what = format!("cut {cut}, {variant}, then cut {second}, {fate:?}");
                    let last = twice.crash(&mut |_| fate);
                    let log = open_or_decide(&last, &what);
                    model.check(&log, &what);
                    count += 1;
                }
            }
        }
    }
    println!("{count} images");
    assert!(count > 1000, "{count} images");
}

#[test]
fn i1_a_process_kill_at_any_operation_loses_nothing_acknowledged_even_without_flushes() {
    for cut in 0..=total_operations() {
        let disk = SimDisk::new();
        disk.cut_after(cut);
        let mut model = Model::default();
        let run = |model: &mut Model| -> Result<()> {
            let log = support::options().sync(eventlog::Sync::Os).open_dir(disk.root())?;
            for n in 0..8 {
                model.append(&log, "s", vec![line(n, 900)])?;
            }
            log.close()
        };
        let _ = run(&mut model);
        let log = open(&disk.kill()).unwrap();
        model.check(&log, &format!("kill at {cut}"));
    }
}

#[test]
fn the_second_recovery_writes_nothing_to_the_store() {
    let disk = SimDisk::new();
    let mut model = Model::default();
    let log = open(&disk).unwrap();
    model.append(&log, "s", (0..10).map(|n| line(n, 100)).collect()).unwrap();
    std::mem::forget(log); // a kill
    let disk = disk.kill();
    let log = open(&disk).unwrap();
    assert_eq!(log.recovery().replayed_events, 10);
    std::mem::forget(log);
    let disk = disk.kill();
    let log = open(&disk).unwrap();
    assert_eq!(log.recovery().replayed_events, 0);
    model.check(&log, "twice recovered");
}

#[test]
fn errors_of_a_cut_are_typed() {
    for cut in (0..total_operations()).step_by(11) {
        let disk = SimDisk::new();
        disk.cut_after(cut);
        let error = workload(&disk, &mut Model::default()).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Io | ErrorKind::Poisoned),
            "cut {cut}: {:?} {error}",
            error.kind()
        );
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Purge {
    NotBegun,
    Begun,
    Done,
}

/// A session is deleted and purged, beside others that are written to.
fn purging(disk: &SimDisk, model: &mut Model, purge: &mut Purge) -> Result<()> {
    let log = open(disk)?;
    model.append(&log, "a", (0..4).map(|n| line(n, 700)).collect())?;
    model.append(&log, "gone", (0..20).map(|n| line(n, 900)).collect())?;
    log.checkpoint()?;
    model.append(&log, "gone", vec![line(20, 900)])?;
    model.append(&log, "a", vec![line(4, 100)])?;
    eventlog::sessions::delete(&log, "gone")?;
    *purge = Purge::Begun;
    eventlog::sessions::purge(&log, "gone")?;
    *purge = Purge::Done;
    model.acknowledged.remove("gone");
    model.append(&log, "a", vec![line(5, 100)])?;
    // The id is free, and the number may be given again.
    model.append(&log, "gone", vec![line(6, 100)])?;
    log.close()
}

#[test]
fn a_cut_during_a_purge_leaves_the_session_whole_or_gone_and_the_others_alone() {
    let total = {
        let disk = SimDisk::new();
        purging(&disk, &mut Model::default(), &mut Purge::NotBegun).unwrap();
        disk.trace().len() as u64
    };
    let (mut count, mut gone, mut whole) = (0, 0, 0);
    for cut in 0..=total {
        let disk = SimDisk::new();
        disk.cut_after(cut);
        let (mut model, mut purge) = (Model::default(), Purge::NotBegun);
        let _ = purging(&disk, &mut model, &mut purge);
        for (variant, image) in images(&disk, cut) {
            let what = format!("cut {cut}, {variant}");
            let log = open_or_decide(&image, &what);
            let there = log.snapshot().unwrap().session("gone").unwrap();
            let deleted = there.as_ref().is_some_and(|s| s.deleted_unix_micros().is_some());
            if deleted {
                eventlog::sessions::restore(&log, "gone").unwrap();
                whole += 1;
            }
            let mut expected = model.clone();
            if there.is_none() && purge == Purge::Begun {
                // It had got through.
                expected.acknowledged.remove("gone");
                gone += 1;
            }
            expected.check(&log, &what);
            log.close().unwrap();
            count += 1;
        }
    }
    println!("{count} images");
    assert!(count > 500 && gone > 3 && whole > 20, "{count} images, {gone} {whole}");
}
