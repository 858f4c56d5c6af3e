//! The receipt for an event that is on its way to the disk.

use std::future::Future;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::entry::Seq;
use crate::error::Result;
use crate::journal::group::Completion;

use super::Handle;

/// The receipt of [`Session::submit`](super::Session::submit): resolves to the seqs of the
/// submitted events when they are durable.
///
/// Wait with [`Ticket::wait`], look with [`Ticket::poll`], or `.await` it on any runtime: polling
/// never blocks, except on a log without [background threads](crate::Builder::background), where
/// the first poll does the writing. Dropping it takes nothing back; the events are written all the
/// same.
#[must_use = "an event is durable only when its ticket says so"]
pub struct Ticket {
    pub(super) handle: Arc<Handle>,
    pub(super) completion: Arc<Completion>,
    pub(super) seqs: RangeInclusive<Seq>,
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ticket").field("seqs", &self.seqs).finish_non_exhaustive()
    }
}

impl Ticket {
    /// The seqs that the events will have if they become durable.
    pub fn seqs(&self) -> RangeInclusive<Seq> {
        self.seqs.clone()
    }

    /// Blocks until the events are durable.
    ///
    /// # Errors
    ///
    /// Those of [`Session::append`](super::Session::append).
    pub fn wait(self) -> Result<RangeInclusive<Seq>> {
        let shared = self.handle.shared();
        shared.group.wait(&**shared, &self.completion).map(|()| self.seqs)
    }

    /// The outcome, if there is one yet. Never blocks.
    pub fn poll(&self) -> Option<Result<RangeInclusive<Seq>>> {
        self.completion.result().map(|result| result.map(|()| self.seqs.clone()))
    }
}

impl Future for Ticket {
    type Output = Result<RangeInclusive<Seq>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let shared = self.handle.shared();
        if !shared.options.background {
            // Without threads nobody else would ever write it.
            _ = shared.group.flush(&**shared);
        }
        self.completion.poll(context).map(|result| result.map(|()| self.seqs.clone()))
    }
}
