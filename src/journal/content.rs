//! The content of a segment, mapped or copied: the one place with `unsafe` code.
//!
//! A map is sound as long as the file is neither shortened nor changed under the reader. Recovery
//! alone maps, while this process holds the log's lock: nobody else writes to segments, recovery
//! writes to none while it reads one, and no code of this crate ever shortens one. Readers beside a
//! writer copy, as does a disk that has no file of the operating system.

use std::io;
use std::ops::Deref;

use crate::io::File;

/// The bytes of a segment.
pub(super) enum Content {
    Mapped(memmap2::Mmap),
    Copied(Vec<u8>),
}

impl Content {
    /// For recovery, under the log's lock.
    #[expect(unsafe_code, reason = "see the module's header")]
    pub(super) fn map(file: &dyn File) -> io::Result<Content> {
        let Some(std) = file.as_std() else { return Content::copy(file) };
        // SAFETY: the caller is recovery and holds the log's lock; see the module's header.
        let map = unsafe { memmap2::Mmap::map(std)? };
        Ok(Content::Mapped(map))
    }

    /// For readers.
    pub(super) fn copy(file: &dyn File) -> io::Result<Content> {
        let mut bytes = vec![0; file.len()? as usize];
        let filled = crate::io::read_full_at(file, &mut bytes, 0)?;
        bytes.truncate(filled);
        Ok(Content::Copied(bytes))
    }
}

impl Deref for Content {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Content::Mapped(map) => map,
            Content::Copied(bytes) => bytes,
        }
    }
}
