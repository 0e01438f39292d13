//! What is written down, where, and in which form.

use std::fmt;
use std::path::PathBuf;

/// What is written down.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogConfig {
    /// Where each request gets a line; `None`: nowhere.
    pub access: Option<LogPlace>,
    /// What such a line looks like.
    pub access_form: LogForm,
    /// The share of requests that get one, from 0 to 1.
    pub access_sample: f64,
    /// Whether it has what stands behind the `?` of urls.
    pub access_query: bool,
    /// Where the server says how it is.
    pub place: LogPlace,
    /// What such a line looks like.
    pub form: LogForm,
    /// What is worth one.
    pub level: LogLevel,
    /// What may wait to be written to one log, in bytes.
    pub buffer: usize,
    /// The url that spans are sent to (OTLP over HTTP); `None`: nowhere.
    pub otlp: Option<String>,
    /// The share of requests that have one, from 0 to 1.
    pub otlp_sample: f64,
}

/// Where a log goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LogPlace {
    /// Standard output.
    Stdout,
    /// Standard error.
    #[default]
    Stderr,
    /// A file, which is added to.
    File(PathBuf),
}

/// What a line looks like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogForm {
    /// For people, and for programs that have read such lines for thirty years.
    #[default]
    Text,
    /// One JSON object.
    Json,
}

/// What is worth a line; each level has those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Something does not work, and does not mend itself.
    Error,
    /// Something did not work for somebody.
    Warn,
    /// How things stand.
    #[default]
    Info,
    /// What is done, request by request.
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
