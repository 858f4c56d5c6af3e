//! Workloads that are made of a seed, and what a disk may make of them when the power goes.
//!
//! Seed, cut and variant are part of every failure's message and give the same disk again.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use eventlog::io::sim::{Fate, Item, SimDisk};
use eventlog::memory::Manager;
use eventlog::{Attributes, EventLog, Result, sessions};

use super::{Model, line, open};

/// Small and different every time, the same for the same seed.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        // Seeds that are near give rows that are not.
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        dice.roll(2);
        dice
    }

    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }
}

/// Something that a host does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// So many events of about this size, in one batch.
    Append {
        session: char,
        events: u64,
        bytes: usize,
    },
    /// More than is left of a segment.
    Rotate,
    Checkpoint,
    /// Close and open again.
    Reopen,
    /// Only attributes.
    Describe(char),
    /// Delete, and remove for good.
    Purge(char),
    /// Keep the memory.
    Memory(char),
}

/// The six of the exhaustive test.
pub const BASIC: [Step; 6] = [
    Step::Append { session: 'a', events: 1, bytes: 40 },
    Step::Append { session: 'a', events: 64, bytes: 40 },
    Step::Rotate,
    Step::Checkpoint,
    Step::Reopen,
    Step::Append { session: 'b', events: 3, bytes: 700 },
];

/// A workload of 3 to 10 steps.
pub fn workload(seed: u64) -> Vec<Step> {
    let mut dice = Dice::new(seed);
    if seed.is_multiple_of(4) {
        return full_segments(&mut dice);
    }
    let steps = 3 + dice.roll(8);
    let step = |dice: &mut Dice| {
        let session = ['a', 'b', 'c'][dice.roll(3) as usize];
        match dice.roll(16) {
            0..=7 => {
                let events = [1, 1, 1, 2, 5, 30][dice.roll(6) as usize];
                let bytes = [0, 20, 480, 700, 1500, 5000][dice.roll(6) as usize];
                Step::Append { session, events, bytes }
            }
            8 => Step::Rotate,
            9..=11 => Step::Checkpoint,
            12 | 13 => Step::Reopen,
            14 => [Step::Describe(session), Step::Memory(session)][dice.roll(2) as usize],
            _ => Step::Purge(session),
        }
    };
    (0..steps).map(|_| step(&mut dice)).collect()
}

/// Segments that are filled, written out and used again.
fn full_segments(dice: &mut Dice) -> Vec<Step> {
    let mut steps = Vec::new();
    for _ in 0..3 + dice.roll(3) {
        steps.extend([Step::Rotate, Step::Checkpoint]);
        for _ in 0..dice.roll(3) {
            steps.push(Step::Append { session: 'a', events: 1, bytes: 700 });
        }
    }
    steps
}

/// Does the steps; stops at the first error.
pub fn run(disk: &SimDisk, steps: &[Step], model: &mut Model) -> Result<()> {
    let mut log = open(disk)?;
    for (n, step) in steps.iter().enumerate() {
        match *step {
            Step::Append { session, events, bytes } => {
                let lines = (0..events).map(|at| line(n * 100 + at as usize, bytes)).collect();
                model.append(&log, &session.to_string(), lines)?;
            }
            Step::Rotate => {
                let lines = (0..40).map(|at| line(n * 100 + at, 1500)).collect();
                model.append(&log, "big", lines)?;
            }
            Step::Checkpoint => log.checkpoint()?,
            Step::Reopen => {
                log.close()?;
                log = open(disk)?;
            }
            Step::Describe(session) => {
                let mut attributes = Attributes::default();
                attributes.workspace = Some(format!("/w/{n}"));
                let session = session.to_string();
                model.describe(&log, &session, &attributes)?;
            }
            Step::Purge(session) => purge(&log, &session.to_string(), model)?,
            Step::Memory(session) => {
                Manager::open(log.session(&session.to_string())?)?.keep()?;
            }
        }
    }
    log.close()
}

fn purge(log: &EventLog, id: &str, model: &mut Model) -> Result<()> {
    if log.snapshot()?.session(id)?.is_none() {
        return Ok(());
    }
    sessions::delete(log, id)?;
    model.purging = Some(id.to_owned());
    sessions::purge(log, id)?;
    model.purging = None;
    model.acknowledged.remove(id);
    Ok(())
}

/// How many operations a workload has.
pub fn operations(steps: &[Step]) -> u64 {
    let disk = SimDisk::new();
    run(&disk, steps, &mut Model::default()).unwrap();
    disk.trace().len() as u64
}

/// The disk and the model after a cut behind so many operations.
pub fn cut(steps: &[Step], operations: u64) -> (SimDisk, Model) {
    let disk = SimDisk::new();
    disk.cut_after(operations);
    let mut model = Model::default();
    let _ = run(&disk, steps, &mut model);
    (disk, model)
}

/// What is not on the disk for certain.
fn unsynced(disk: &SimDisk) -> Vec<Item> {
    let mut items = Vec::new();
    disk.crash(&mut |item| {
        items.push(item.clone());
        Fate::Kept
    });
    items
}

/// Up to so many unsynced items every subset is tried.
const SUBSETS_OF: usize = 10;
/// The size of what a disk writes whole; in the other mode a single byte.
const SECTOR: usize = 512;

/// A name for each variant, and the fates of the unsynced items in it.
pub fn variants(disk: &SimDisk, seed: u64) -> Vec<(String, Vec<Fate>)> {
    let items = unsynced(disk);
    let count = items.len();
    let keep = |yes| if yes { Fate::Kept } else { Fate::Dropped };
    let mut all: Vec<(String, Vec<Fate>)> = Vec::new();
    let mut add = |name: String, fates: Vec<Fate>| all.push((name, fates));
    if count <= SUBSETS_OF {
        for subset in 0u32..1 << count {
            let fates = (0..count).map(|n| keep(subset >> n & 1 == 1)).collect();
            add(format!("subset {subset:#b} of {count}"), fates);
        }
    } else {
        add("none".to_owned(), vec![Fate::Dropped; count]);
        add("all".to_owned(), vec![Fate::Kept; count]);
        for at in 0..count {
            add(format!("up to {at}"), (0..count).map(|n| keep(n <= at)).collect());
            add(format!("all but {at}"), (0..count).map(|n| keep(n != at)).collect());
        }
        let mut dice = Dice::new(seed);
        for random in 0..32 {
            let fates = (0..count).map(|_| keep(dice.roll(2) == 1)).collect();
            add(format!("random {random}"), fates);
        }
    }
    // A write that is torn, with all before it and none behind it, or with all others.
    let mut dice = Dice::new(seed ^ 0xA3);
    for (at, item) in items.iter().enumerate() {
        let Item::Write(_, offset, len) = item else { continue };
        let to_sector = SECTOR - *offset as usize % SECTOR;
        let mut tears = vec![1, len / 2, len.saturating_sub(1)];
        tears.extend([to_sector, to_sector + SECTOR * dice.roll(8) as usize]);
        tears.push(dice.roll(*len as u64 + 1) as usize);
        tears.retain(|tear| (1..*len).contains(tear));
        tears.sort_unstable();
        tears.dedup();
        for tear in tears {
            for others in [false, true] {
                let fate = |n| match n == at {
                    true => Fate::Torn(tear),
                    false => keep(n < at || others),
                };
                let name = format!("{at} torn at {tear}, those behind it {others}");
                add(name, (0..count).map(fate).collect());
            }
        }
    }
    all
}

/// What became of the unsynced items of a cut, as a whole. A start finds each of these in another way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// There was nothing unsynced.
    Whole,
    AllLost,
    AllKept,
    /// The first ones kept, the rest lost.
    Beginning,
    /// One kept although one before it is lost.
    OutOfOrder,
    /// All before the torn one kept, none behind it.
    TornEnd,
    /// All others kept.
    TornAmongKept,
}

pub fn outcome(fates: &[Fate]) -> Outcome {
    let kept = |fate: &Fate| *fate == Fate::Kept;
    let first = fates.iter().take_while(|fate| kept(fate)).count();
    let behind = &fates[first..];
    match behind.first() {
        None if fates.is_empty() => Outcome::Whole,
        None => Outcome::AllKept,
        Some(Fate::Torn(_)) if behind[1..].iter().any(kept) => Outcome::TornAmongKept,
        Some(Fate::Torn(_)) => Outcome::TornEnd,
        Some(_) if behind.iter().any(kept) => Outcome::OutOfOrder,
        Some(_) if first == 0 => Outcome::AllLost,
        Some(_) => Outcome::Beginning,
    }
}

/// One in so many of the variants of a cut, at least one, beginning at another one for each seed
/// and cut. With a stride of 1 all of them.
pub fn some_variants(
    disk: &SimDisk,
    seed: u64,
    at: u64,
    stride: usize,
) -> Vec<(String, Vec<Fate>)> {
    let mut all = variants(disk, seed ^ at);
    let first = Dice::new(seed.wrapping_mul(1_000_003) ^ at).roll(all.len() as u64) as usize;
    all.rotate_left(first);
    all.into_iter().step_by(stride).collect()
}

/// One in so many of the numbers up to `last`, beginning at another one for each seed.
pub fn some_cuts(last: u64, seed: u64, stride: u64) -> impl Iterator<Item = u64> {
    let first = Dice::new(seed ^ 0xC05).roll(stride.min(last + 1));
    (first..=last).step_by(stride as usize)
}

/// Every subset of the names that are not flushed, with all bytes on the disk.
pub fn name_variants(disk: &SimDisk) -> Vec<(String, Vec<Fate>)> {
    let items = unsynced(disk);
    let is_name = |item: &Item| matches!(item, Item::Name(_));
    let names = items.iter().filter(|item| is_name(item)).count().min(SUBSETS_OF);
    let variant = |subset: u32| {
        let mut at = 0;
        let fate = |item: &Item| {
            at += usize::from(is_name(item));
            match is_name(item) && at <= names && subset >> (at - 1) & 1 == 0 {
                true => Fate::Dropped,
                false => Fate::Kept,
            }
        };
        (format!("names {subset:#b} of {names}"), items.iter().map(fate).collect())
    };
    (0u32..1 << names).map(variant).collect()
}

/// The disk in which the unsynced items have these fates.
pub fn image(disk: &SimDisk, fates: &[Fate]) -> SimDisk {
    let mut fates = fates.iter();
    disk.crash(&mut |_| fates.next().copied().unwrap_or(Fate::Kept))
}

/// The amount that `name` asks for, else `default`. What is no amount is never taken for the default.
pub fn amount(name: &str, default: u64) -> u64 {
    let Some(amount) = std::env::var_os(name) else { return default };
    let digits = amount.to_str().map(|amount| amount.replace('_', ""));
    let amount = digits.and_then(|digits| digits.parse().ok()).filter(|amount| *amount > 0);
    amount.unwrap_or_else(|| panic!("{name} is no amount"))
}

/// Works on seeds from `EVENTLOG_PROOF_SEED` on, on all processors, until so many images have been
/// looked at. `work` says how many it has looked at.
pub fn until(images: u64, work: impl Fn(u64) -> u64 + Sync) -> (u64, u64) {
    let first = amount("EVENTLOG_PROOF_SEED", 1);
    let (next, done) = (AtomicU64::new(first), AtomicU64::new(0));
    let failed: Mutex<Option<Box<dyn std::any::Any + Send>>> = Mutex::new(None);
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while done.load(Ordering::Relaxed) < images && failed.lock().unwrap().is_none() {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let looked_at =
                        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(seed)));
                    match looked_at {
                        Ok(count) => _ = done.fetch_add(count, Ordering::Relaxed),
                        Err(panic) => _ = failed.lock().unwrap().get_or_insert(panic),
                    }
                }
            });
        }
    });
    if let Some(panic) = failed.into_inner().unwrap() {
        std::panic::resume_unwind(panic);
    }
    (done.into_inner(), next.into_inner() - first)
}
