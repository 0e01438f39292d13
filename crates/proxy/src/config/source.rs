//! The source of a configuration, which a reload reads again.

use std::io;
use std::path::PathBuf;

use super::{Config, Input, Report};

/// The command line: a file, URLs, and flags, which override the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// The file, if there is one.
    pub file: Option<PathBuf>,
    /// The URLs of the command line.
    pub urls: Vec<String>,
    /// The options with the values of their flags.
    pub flags: Vec<(&'static str, Vec<String>)>,
}

/// The failure to read a configuration.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The file cannot be read.
    #[error("cannot read {file}: {error}")]
    Unreadable {
        /// The path of the file.
        file: String,
        /// The error of the system.
        error: io::Error,
    },
    /// The configuration has mistakes.
    #[error("{0}")]
    Mistakes(Report),
}

impl Source {
    /// Reads the configuration, as it is now.
    pub fn read(&self) -> Result<Config, SourceError> {
        let file = match &self.file {
            None => None,
            Some(path) => {
                let name = path.display().to_string();
                match std::fs::read_to_string(path) {
                    Ok(text) => Some((name, text)),
                    Err(error) => return Err(SourceError::Unreadable { file: name, error }),
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
