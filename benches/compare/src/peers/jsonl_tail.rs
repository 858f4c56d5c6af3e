//! JSONL whose end is looked at before each append.

use std::path::Path;

use super::jsonl::{Before, Jsonl, open_with};
use crate::peer::Result;

pub fn open(dir: &Path) -> Result<Jsonl> {
    open_with(dir, Before::Tail)
}
