//! Where a configuration comes from, so that it can be read again.

use std::io;
use std::path::PathBuf;

use super::{Config, Input, Report};

/// What was typed: a file, urls, and flags, which override the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// The file, if there is one.
    pub file: Option<PathBuf>,
    /// The urls of the command line.
    pub urls: Vec<String>,
    /// An option's name, and what its flag was given.
    pub flags: Vec<(&'static str, Vec<String>)>,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The file cannot be read.
    #[error("cannot read {file}: {error}")]
    Unread {
        /// Which.
        file: String,
        /// What the system says.
        error: io::Error,
    },
    /// It was read, and something is wrong with it.
    #[error("{0}")]
    Mistakes(Report),
}

impl Source {
    /// Reads it, as it is now.
    pub fn read(&self) -> Result<Config, SourceError> {
        let file = match &self.file {
            None => None,
            Some(path) => {
                let name = path.display().to_string();
                match std::fs::read_to_string(path) {
                    Ok(text) => Some((name, text)),
                    Err(error) => return Err(SourceError::Unread { file: name, error }),
                }
            }
        };
        let file = file.as_ref();
        let input = Input {
            file: file.map(|(name, text)| (name.as_str(), text.as_str())),
            urls: &self.urls,
            flags: &self.flags,
        };
        let config = Config::read(input).and_then(Config::with_files);
        config.map_err(SourceError::Mistakes)
    }
}
