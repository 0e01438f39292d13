//! Configuration of an origin that serves a directory.

use std::path::PathBuf;

/// Configuration of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// Path of the directory.
    pub folder: PathBuf,
    /// Name of the index file.
    pub index: String,
    /// Serve precompressed files next to the plain ones: `.br`, `.zst`, `.gz`.
    pub precompressed: bool,
}
