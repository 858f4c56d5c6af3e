//! Where files of sessions stand, in the documented layouts, and what they are called.
//!
//! ```text
//! transcripts/transcript-ID.jsonl                                    MyCodeAgent, below memory/
//! workspaces/HASH/sessions/SLUG/ID/{transcript.jsonl,.meta.json}     recursive-agent, below its home
//! workspaces/HASH/path.txt
//! ```

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::format::Format;
use crate::format::recursive::place::{self, PATH_TXT, TRANSCRIPT};
use crate::io::Dir;
use crate::log::SessionInfo;

/// Where a session's file stands below the directory of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// The directories that lead to it.
    pub dirs: Vec<String>,
    /// The file's name.
    pub file: String,
    /// The workspace whose path is kept beside the sessions, two directories down.
    pub workspace: Option<String>,
}

impl Place {
    /// The place of a session in the layout of `format`.
    pub fn of(session: &SessionInfo, format: Option<&dyn Format>) -> Place {
        let name = file_name(&session.id);
        if format.is_none_or(|format| format.name() != "recursive") {
            let file = format!("transcript-{name}.jsonl");
            return Place { dirs: vec!["transcripts".to_owned()], file, workspace: None };
        }
        let workspace = session.attributes.workspace.clone();
        let (hash, slug) = match &workspace {
            Some(path) => (place::workspace_hash(path.as_ref()), place::slug(path)),
            None => ("unknown".to_owned(), "unknown".to_owned()),
        };
        let slug = if slug.is_empty() { "root".to_owned() } else { slug };
        let dirs = ["workspaces", &hash, "sessions", &slug, &name].map(str::to_owned);
        Place { dirs: dirs.to_vec(), file: TRANSCRIPT.to_owned(), workspace }
    }

    /// Its path below the export's directory.
    pub fn path(&self) -> PathBuf {
        self.dirs.iter().chain([&self.file]).collect()
    }

    /// The directory of the file, made where it is missing, with the workspace's path beside the
    /// sessions.
    pub(super) fn create(&self, root: &Arc<dyn Dir>) -> io::Result<Arc<dyn Dir>> {
        let mut dir = root.clone();
        for (depth, name) in self.dirs.iter().enumerate() {
            refuse_link(&*dir, name)?;
            let is_new = dir.subdir(name, false).is_err();
            let next = dir.subdir(name, true)?;
            if is_new {
                // DURABILITY: the new directory's name belongs to the one above.
                dir.sync()?;
            }
            dir = next;
            refuse_link(&*dir, &self.file)?;
            if let (1, Some(workspace)) = (depth, &self.workspace)
                && dir.open(PATH_TXT, crate::io::OpenMode::Read).is_err()
            {
                let mut file = crate::io::Replacement::create(dir.clone(), PATH_TXT)?;
                io::Write::write_all(&mut file, workspace.as_bytes())?;
                file.commit()?;
            }
        }
        Ok(dir)
    }
}

/// Nothing is written through a link that stands below an export's directory: it could lead
/// anywhere.
fn refuse_link(dir: &dyn Dir, name: &str) -> io::Result<()> {
    let path = dir.path().join(name);
    match path.symlink_metadata() {
        Ok(found) if found.is_symlink() => {
            let message = format!("{} is a symbolic link", path.display());
            Err(io::Error::new(io::ErrorKind::InvalidInput, message))
        }
        _ => Ok(()),
    }
}

/// A session's id as a file name. Ids of letters, digits and a few signs stay as they are; any
/// other byte becomes `%` and two hex digits, so that different ids have different names. A name
/// that would be too long ends with a digest of the id instead.
///
/// ```
/// use eventlog::jsonl::layout::file_name;
///
/// assert_eq!(file_name("2026-01-02T03-04-05Z-app"), "2026-01-02T03-04-05Z-app");
/// assert_eq!(file_name("../../x"), "%2E%2E%2F%2E%2E%2Fx");
/// ```
pub fn file_name(id: &str) -> String {
    const BYTES_MAX: usize = 160;
    let is_plain =
        |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'=' | b'@' | b'+');
    // A dot is plain where it cannot hide a file or lead out of the directory.
    let dots = id.starts_with('.') || id.contains("..");
    let mut name = String::new();
    for byte in id.bytes() {
        match byte {
            b'.' if dots => name.push_str("%2E"),
            byte if is_plain(byte) => name.push(byte as char),
            byte => name.push_str(&format!("%{byte:02X}")),
        }
    }
    if name.len() > BYTES_MAX {
        let digest = blake3::hash(id.as_bytes()).to_hex();
        let mut end = BYTES_MAX - 33;
        while name
            .get(..end)
            .is_some_and(|head| head.ends_with('%') || head.get(end - 2..end - 1) == Some("%"))
        {
            end -= 1;
        }
        name.truncate(end);
        name.push('~');
        name.extend(digest.as_str().chars().take(32));
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_id_has_a_harmless_name_of_its_own(a in any::<String>(), b in any::<String>()) {
            for id in [&a, &b] {
                let name = file_name(id);
                prop_assert!(name.len() <= 160 && !name.starts_with('.'), "{name}");
                prop_assert!(name.bytes().all(|b| b.is_ascii_graphic() && !b"/\\:*?\"<>|".contains(&b)));
            }
            prop_assert_eq!(a == b, file_name(&a) == file_name(&b));
        }
    }

    #[test]
    fn long_ids_that_differ_at_the_end_have_different_names() {
        let long = "x/".repeat(200);
        let (a, b) = (file_name(&format!("{long}a")), file_name(&format!("{long}b")));
        assert!(a != b && a.len() <= 160 && !a.contains("%~") && !a.contains("%2~"), "{a} {b}");
    }
}
