//! Progress of long work, on stderr, where that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

use super::output::Output;

/// A bar, or nothing.
pub(crate) struct Progress(Option<ProgressBar>);

impl Progress {
    /// Progress through `total` bytes of `what`.
    pub(crate) fn bytes(output: &Output, what: &str, total: u64) -> Progress {
        const TEMPLATE: &str =
            "{msg} {bar:30} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}";
        Progress::new(output, what, total, TEMPLATE)
    }

    /// Progress through an unknown number of blocks.
    pub(crate) fn blocks(output: &Output, what: &str) -> Progress {
        Progress::new(output, what, 0, "{msg} {human_pos} blocks {per_sec}")
    }

    fn new(output: &Output, what: &str, total: u64, template: &str) -> Progress {
        if output.quiet {
            return Progress(None);
        }
        let bar = ProgressBar::new(total);
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        Progress(Some(bar))
    }

    pub(crate) fn set(&self, position: u64) {
        if let Some(bar) = &self.0 {
            bar.set_position(position);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
