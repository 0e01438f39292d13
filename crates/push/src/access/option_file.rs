//! Files named by options.

use std::fs;
use std::path::{Path, PathBuf};

/// Error reading the file of an option.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {option} {}: {error}", path.display())]
pub struct OptionFileError {
    option: &'static str,
    path: PathBuf,
    error: std::io::Error,
}

/// Reads the file of an option.
pub(crate) fn read(path: &Path, option: &'static str) -> Result<Vec<u8>, OptionFileError> {
    fs::read(path).map_err(|error| OptionFileError {
        option,
        path: path.to_owned(),
        error,
    })
}
