//! Files that options name.

use std::fs;
use std::path::{Path, PathBuf};

/// Why there is nothing in one: it cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {option} {}: {error}", path.display())]
pub struct Unreadable {
    option: &'static str,
    path: PathBuf,
    error: std::io::Error,
}

/// What is in the file that this option names.
pub(crate) fn read(path: &Path, option: &'static str) -> Result<Vec<u8>, Unreadable> {
    fs::read(path).map_err(|error| Unreadable {
        option,
        path: path.to_owned(),
        error,
    })
}
