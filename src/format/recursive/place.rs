//! Where recursive-agent keeps its sessions, and who holds one.
//!
//! ```text
//! HOME/workspaces/HASH/path.txt                  the workspace's path
//! HOME/workspaces/HASH/sessions/SLUG/ID/         transcript.jsonl  .meta.json  .lock
//! ```

use std::path::Path;

/// The transcript in a session's directory.
pub const TRANSCRIPT: &str = "transcript.jsonl";
/// The session's description.
pub const META: &str = ".meta.json";
/// The lock of the process that writes the session.
pub const LOCK: &str = ".lock";
/// The workspace's path, two levels above the sessions.
pub const PATH_TXT: &str = "path.txt";

/// The directory of a workspace: the first 12 hex digits of BLAKE3 over its path, resolved when it
/// exists, else as given. So the same workspace has another hash before it is created than after,
/// where the path has links or a trailing slash.
///
/// ```
/// use eventlog::format::recursive::place;
///
/// assert_eq!(place::workspace_hash("/srv/golden-demo/app".as_ref()), "56cd3e6f9a60");
/// ```
pub fn workspace_hash(workspace: &Path) -> String {
    let path = workspace.canonicalize().unwrap_or_else(|_| absolute(workspace));
    let hash = blake3::hash(path.as_os_str().as_encoded_bytes()).to_hex();
    hash.as_str().chars().take(12).collect()
}

fn absolute(path: &Path) -> std::path::PathBuf {
    match std::env::current_dir() {
        Ok(current) if path.is_relative() => current.join(path),
        _ => path.to_owned(),
    }
}

/// The name that sessions of a workspace go by: its path with everything but letters, digits, `_`
/// and `.` replaced by `-`, without `-` at the start, at most 80 bytes.
///
/// ```
/// use eventlog::format::recursive::place;
///
/// assert_eq!(place::slug("/srv/My Project (v2)"), "srv-My-Project--v2-");
/// ```
pub fn slug(workspace: &str) -> String {
    let keep = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
    let slug: String = workspace.chars().map(|c| if keep(c) { c } else { '-' }).collect();
    slug.trim_start_matches('-').chars().take(80).collect()
}

/// Who wrote a lock file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lock {
    /// The process.
    pub pid: u32,
    /// Its host.
    pub host: String,
    /// When it took the lock, in seconds since the Unix epoch; 0 if that cannot be read.
    pub since_unix_seconds: u64,
}

impl Lock {
    /// The lock in the text of a `.lock` file; `None` where it cannot be understood.
    ///
    /// ```
    /// use eventlog::format::recursive::place::Lock;
    ///
    /// assert_eq!(Lock::parse("17\nhost-a\n1760000000\n").unwrap().pid, 17);
    /// assert_eq!(Lock::parse("hello\n"), None);
    /// ```
    pub fn parse(text: &str) -> Option<Lock> {
        let mut lines = text.lines().map(str::trim);
        let pid = lines.next()?.parse().ok()?;
        let host = lines.next()?.to_owned();
        let since = lines.next().and_then(|line| line.parse().ok()).unwrap_or_default();
        Some(Lock { pid, host, since_unix_seconds: since })
    }

    /// Whether the original program takes the session for held: by another host, whose processes
    /// cannot be seen, or by a process of this host that is running.
    ///
    /// ```
    /// use eventlog::format::recursive::place::Lock;
    ///
    /// let lock = Lock::parse("4294967295\nhost-a\n1760000000\n").unwrap();
    /// assert!(!lock.is_held("host-a"));
    /// assert!(lock.is_held("host-b"));
    /// ```
    pub fn is_held(&self, this_host: &str) -> bool {
        self.host != this_host || self.is_running()
    }

    /// Whether the process can be seen to be the one that wrote the lock: it is running, and was
    /// before the lock was taken. A number is used again; another process may have it now.
    pub fn is_proved_held(&self, this_host: &str) -> bool {
        self.host == this_host && self.is_running() && !self.is_recycled()
    }

    /// Whether the process can be seen to be gone: it was one of this host, and is not running, or
    /// another process has its number now.
    pub fn is_proved_stale(&self, this_host: &str) -> bool {
        let recycled = self.since_unix_seconds > 0 && self.is_recycled();
        self.host == this_host && (!self.is_running() || recycled)
    }

    fn is_running(&self) -> bool {
        // Where there is no /proc a process is taken to be running.
        !Path::new("/proc/self").exists() || self.proc().exists()
    }

    fn is_recycled(&self) -> bool {
        const SLACK_SECONDS: u64 = 2;
        let started = std::fs::metadata(self.proc()).and_then(|meta| meta.modified());
        let started = started.ok().and_then(|time| {
            time.duration_since(std::time::UNIX_EPOCH).ok().map(|since| since.as_secs())
        });
        started
            .is_some_and(|started| started > self.since_unix_seconds.saturating_add(SLACK_SECONDS))
    }

    fn proc(&self) -> std::path::PathBuf {
        Path::new("/proc").join(self.pid.to_string())
    }
}

/// This host's name as recursive-agent takes it: `$HOSTNAME`, else the kernel's.
pub fn host_name() -> String {
    let kernel = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty()).or_else(kernel);
    name.unwrap_or_default().trim().to_owned()
}
