//! An interrupt ends the command with exit code 130. Everything acknowledged is durable at any
//! moment, so a command may be ended anywhere; long ones finish what they are at and close the log.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use eventlog::io::{Changed, Watch};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static ATTENTIVE: AtomicBool = AtomicBool::new(false);

/// Catches interrupts from now on.
pub(crate) fn install() {
    // Without a handler an interrupt ends the process as it always does.
    _ = ctrlc::set_handler(|| {
        let again = INTERRUPTED.swap(true, Ordering::SeqCst);
        if again || !ATTENTIVE.load(Ordering::SeqCst) {
            std::process::exit(super::Exit::Interrupted as i32);
        }
    });
}

/// From now on the command looks at [`interrupted`] itself.
pub(crate) fn attend() {
    ATTENTIVE.store(true, Ordering::SeqCst);
}

/// Whether the user wants to stop.
pub(crate) fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

/// Waits for a change, but not longer than an interrupt may be left waiting.
pub(crate) fn wait(watch: &Watch, timeout: Duration) -> Changed {
    const PATIENCE: Duration = Duration::from_millis(250);
    let end = Instant::now() + timeout;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let changed = watch.wait(left.min(PATIENCE));
        if changed != Changed::Nothing || left.is_zero() || interrupted() {
            return changed;
        }
    }
}
