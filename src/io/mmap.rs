//! Read-only memory maps: the one place with `unsafe` code.
//!
//! What is mapped: segments of our own journal, during recovery, while this process holds the log's
//! lock. A map stays valid as long as the file is not shortened and is not changed under the
//! reader. Both hold because only the holder of the lock writes to segments, recovery writes to
//! none while it reads one, and no code of this crate ever shortens a segment. A user's file is
//! never mapped.

use std::fs::File;
use std::io;
use std::ops::Deref;

/// The bytes of a file, mapped or copied.
#[derive(Debug)]
pub struct Mapping(Kind);

#[derive(Debug)]
enum Kind {
    Mapped(memmap2::Mmap),
    #[cfg_attr(not(feature = "sim"), expect(dead_code, reason = "only the simulator copies"))]
    Copied(Vec<u8>),
}

impl Mapping {
    #[expect(unsafe_code, reason = "see the module's safety argument")]
    pub(super) fn of(file: &File) -> io::Result<Mapping> {
        // SAFETY: callers map journal segments only, under the log's lock; see the module's header.
        let map = unsafe { memmap2::Mmap::map(file)? };
        Ok(Mapping(Kind::Mapped(map)))
    }

    #[cfg(feature = "sim")]
    pub(super) fn copied(bytes: Vec<u8>) -> Mapping {
        Mapping(Kind::Copied(bytes))
    }
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Kind::Mapped(map) => map,
            Kind::Copied(bytes) => bytes,
        }
    }
}
