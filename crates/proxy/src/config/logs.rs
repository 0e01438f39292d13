//! The configuration of logs and traces.

use std::fmt;
use std::path::PathBuf;

use super::log_field::LogField;

/// The configuration of logs and traces.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogConfig {
    /// The destination of the access log; `None` if it is off.
    pub access: Option<LogPlace>,
    /// The format of the access log.
    pub access_form: LogForm,
    /// The fraction of requests logged, from 0 to 1.
    pub access_sample: f64,
    /// The fields of a line; empty for those of the format.
    pub access_fields: Vec<LogField>,
    /// Query strings are logged.
    pub access_query: bool,
    /// The destination of the server log.
    pub place: LogPlace,
    /// The format of the server log.
    pub form: LogForm,
    /// The minimum level of the server log.
    pub level: LogLevel,
    /// The buffer of each log, in bytes.
    pub buffer: usize,
    /// The URL of the trace collector (OTLP over HTTP); `None` if traces are off.
    pub otlp: Option<String>,
    /// The fraction of requests traced, from 0 to 1.
    pub otlp_sample: f64,
}

/// The destination of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LogPlace {
    /// Standard output.
    Stdout,
    /// Standard error.
    #[default]
    Stderr,
    /// A file, which is appended to.
    File(PathBuf),
}

/// The format of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogForm {
    /// Text, as Apache and nginx write it.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// The level of a log; each includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// A failure that persists until it is repaired.
    Error,
    /// A failure that affected some requests.
    Warn,
    /// Changes of state.
    #[default]
    Info,
    /// Individual requests.
    Debug,
}

impl fmt::Display for LogPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdout => f.write_str("standard output"),
            Self::Stderr => f.write_str("standard error"),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}
