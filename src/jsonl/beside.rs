//! What is known of a transcript from its place and from the files beside it.
//!
//! These files are derived and may be stale, damaged or gone: what they say becomes attributes of
//! the session and findings, and never changes what the transcript says.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::finding::{Code, Finding};
use crate::format::recursive::Meta;
use crate::format::recursive::place::{self, Lock};
use crate::log::commit::{ATTRIBUTE_BYTES_MAX, META_BYTES_MAX};
use crate::memtable::Attributes;

/// What is known of a transcript from its place and the files beside it.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Beside {
    /// The session's id, for formats whose lines do not have it.
    pub session: Option<String>,
    /// What the session is beside its events.
    pub attributes: Attributes,
    /// The session's description.
    pub meta: Option<Meta>,
    /// What is odd about these files.
    pub findings: Vec<Finding>,
}

/// A file beside a transcript is not read beyond this.
const BYTES_MAX: u64 = 1 << 20;

impl Beside {
    /// Looks around the transcript at `path`: in a session's directory at `.meta.json` and `.lock`,
    /// elsewhere at `NAME.meta.json` and `NAME.lock`, and upwards for the workspace. Nothing is
    /// followed out of there, and nothing is changed.
    ///
    /// ```
    /// use eventlog::jsonl::Beside;
    ///
    /// let beside = Beside::of("/nowhere/transcript-s-1.jsonl".as_ref());
    /// assert_eq!(beside.session.as_deref(), Some("s-1"));
    /// ```
    pub fn of(path: &Path) -> Beside {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let mut beside = Beside::default();
        beside.attributes.origin = text(&path);
        let dir = path.parent().unwrap_or(Path::new("/"));
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let in_own_dir = name == place::TRANSCRIPT;
        let lock = match in_own_dir {
            true => dir.join(place::LOCK),
            false => dir.join(format!("{stem}.lock")),
        };
        beside.session = match in_own_dir {
            true => dir.file_name().map(|name| name.to_string_lossy().into_owned()),
            false => Some(stem.strip_prefix("transcript-").unwrap_or(&stem).to_owned()),
        };
        let fits = |text: &String| text.len() <= ATTRIBUTE_BYTES_MAX;
        beside.attributes.workspace = workspace(dir, in_own_dir).filter(fits);
        beside.attributes.origin = beside.attributes.origin.take().filter(fits);
        beside.read_meta(&Beside::meta_path(&path));
        beside.read_lock(&lock);
        beside.check_mode(&path);
        beside
    }

    /// Where the description of the transcript at `path` stands, if there is one.
    pub(super) fn meta_path(path: &Path) -> PathBuf {
        match path.file_name().is_some_and(|name| name == place::TRANSCRIPT) {
            true => path.with_file_name(place::META),
            false => path.with_extension("meta.json"),
        }
    }

    fn note(&mut self, code: Code, message: String) {
        self.findings.push(Finding::new(code, message));
    }

    fn read_meta(&mut self, path: &Path) {
        let bytes = match read(path) {
            None => return,
            Some(Err(error)) => {
                return self.note(Code::MetaUnreadable, format!("{}: {error}", path.display()));
            }
            Some(Ok(bytes)) => bytes,
        };
        match Meta::parse(&bytes) {
            Ok(meta) => {
                if !meta.session_id.is_empty() {
                    self.session = Some(meta.session_id.clone());
                }
                self.attributes.meta =
                    String::from_utf8(bytes).ok().filter(|text| text.len() <= META_BYTES_MAX);
                self.meta = Some(meta);
                self.check_workspace();
            }
            Err(error) => {
                let message = format!("{}: {error}; the transcript is enough", path.display());
                self.note(Code::MetaUnreadable, message);
            }
        }
    }

    /// A session that is to go on needs a place to go on in.
    fn check_workspace(&mut self) {
        let message = match &self.attributes.workspace {
            None => "the directory that the session worked in is not known".to_owned(),
            Some(workspace) if !Path::new(workspace).is_dir() => {
                format!("the directory that the session worked in is not there: {workspace}")
            }
            Some(_) => return,
        };
        self.note(Code::CwdMissing, message);
    }

    fn read_lock(&mut self, path: &Path) {
        let Some(bytes) = read(path) else { return };
        let text = bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let lock = text.ok().and_then(|text| Lock::parse(&text));
        let path = path.display();
        match lock {
            Some(lock) if lock.is_proved_held(&place::host_name()) => {
                let message = format!("{path}: process {} is writing the session", lock.pid);
                self.note(Code::LockHeld, message);
            }
            Some(lock) => {
                let message = format!("{path}: left by process {} of host {}", lock.pid, lock.host);
                self.note(Code::LockStale, message);
            }
            None => self.note(Code::LockStale, format!("{path}: cannot be understood")),
        }
    }

    #[cfg(unix)]
    fn check_mode(&mut self, path: &Path) {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(path).map_or(0, |meta| meta.permissions().mode() & 0o777);
        if mode & 0o077 != 0 {
            let message = format!("others than the owner may use the file (mode {mode:03o})");
            self.note(Code::PermTooOpen, message);
        }
    }

    #[cfg(not(unix))]
    fn check_mode(&mut self, _: &Path) {}
}

/// The workspace of a session, from where its transcript stands.
fn workspace(dir: &Path, in_own_dir: bool) -> Option<String> {
    let named = |dir: &Path, name: &str| dir.file_name().is_some_and(|found| found == name);
    if in_own_dir {
        let sessions = dir.ancestors().nth(2).filter(|dir| named(dir, "sessions"))?;
        let above = sessions.parent()?;
        if named(above, ".recursive") {
            return above.parent().and_then(text);
        }
        let path_txt = read(&above.join(place::PATH_TXT))?.ok()?;
        return Some(String::from_utf8(path_txt).ok()?.trim_end_matches(['\r', '\n']).to_owned());
    }
    let memory = dir.parent().filter(|memory| named(dir, "transcripts") && named(memory, "memory"));
    memory?.parent().and_then(text)
}

fn text(path: &Path) -> Option<String> {
    path.to_str().map(str::to_owned)
}

/// The content of a regular file; `None` when there is none. Links are not followed.
fn read(path: &Path) -> Option<std::io::Result<Vec<u8>>> {
    let found: PathBuf = path.to_owned();
    if !fs::symlink_metadata(&found).ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    let read = fs::File::open(&found).and_then(|file| file.take(BYTES_MAX).read_to_end(&mut bytes));
    Some(read.map(|_| bytes))
}
