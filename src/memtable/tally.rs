//! Counting events, so that a count at any position of a session is found without walking it.

use crate::entry::{Flags, Kind};

/// What can be found by number. The store holds the first of each kind in every block; the others
/// are found from there by reading on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Mark {
    Message = 0,
    Checkpoint = 1,
    UserTurn = 2,
    Run = 3,
}

impl Mark {
    pub(crate) const ALL: [Mark; 4] = [Mark::Message, Mark::Checkpoint, Mark::UserTurn, Mark::Run];

    /// Whether the mark numbers such an event.
    pub(crate) fn is_on(self, kind: Kind, flags: Flags) -> bool {
        match self {
            Mark::Message => kind == Kind::Message,
            Mark::Checkpoint => kind == Kind::Checkpoint,
            Mark::UserTurn => flags.has(Flags::USER_TURN),
            Mark::Run => flags.has(Flags::RUN_START),
        }
    }
}

/// Sums over a row of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) events: u64,
    /// By [`Kind`].
    pub(crate) counts: [u64; Kind::ALL.len()],
    pub(crate) user_turns: u64,
    pub(crate) runs: u64,
    /// Bytes of all lines with their line ends.
    pub(crate) bytes: u64,
}

impl Tally {
    /// Counts one event of `line_len` bytes.
    pub(crate) fn add(&mut self, kind: Kind, flags: Flags, line_len: u64) {
        self.events += 1;
        if let Some(count) = self.counts.get_mut(kind as usize) {
            *count += 1;
        }
        self.user_turns += u64::from(flags.has(Flags::USER_TURN));
        self.runs += u64::from(flags.has(Flags::RUN_START));
        self.bytes += line_len;
    }

    /// Returns the sums over the events of `self` that are not those of `start`, which is a
    /// beginning of the same row.
    pub(crate) fn since(&self, start: &Tally) -> Tally {
        let mut counts = self.counts;
        counts.iter_mut().zip(start.counts).for_each(|(count, before)| *count -= before);
        Tally {
            events: self.events - start.events,
            counts,
            user_turns: self.user_turns - start.user_turns,
            runs: self.runs - start.runs,
            bytes: self.bytes - start.bytes,
        }
    }

    /// How many of the events `mark` numbers.
    pub(crate) fn marked(&self, mark: Mark) -> u64 {
        let count = |kind: Kind| self.counts.get(kind as usize).copied().unwrap_or_default();
        match mark {
            Mark::Message => count(Kind::Message),
            Mark::Checkpoint => count(Kind::Checkpoint),
            Mark::UserTurn => self.user_turns,
            Mark::Run => self.runs,
        }
    }
}
