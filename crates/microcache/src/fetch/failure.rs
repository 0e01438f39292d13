//! Failures of the command, with its exit codes.

use microcache_client::Error;

use super::message::{deepest, without_secrets};
use crate::BAD_USAGE;
use crate::cli::{Fetch, Proxy};

/// Exit code: no response, or an incomplete one.
pub(super) const NO_ANSWER: u8 = 1;
/// Exit code: nothing is stored, and `--offline` forbids requests.
const NOT_STORED: u8 = 3;
/// Exit code: the server's response is an error.
const HTTP_ERROR: u8 = 4;
/// Exit code: the output cannot be written.
const NO_OUTPUT: u8 = 5;

/// Reason for which the command failed.
pub(super) enum FetchFailure {
    /// An argument cannot be used.
    Unusable(String),
    NoAnswer(String),
    NotStored(String),
    HttpError(String),
    NoOutput(String),
    /// The reader of standard output has closed it.
    OutputClosed,
    /// Interrupted by this signal.
    Interrupted(u8),
}

impl FetchFailure {
    pub(super) const fn code(&self) -> u8 {
        match self {
            Self::Unusable(_) => BAD_USAGE,
            Self::NoAnswer(_) => NO_ANSWER,
            Self::NotStored(_) => NOT_STORED,
            Self::HttpError(_) => HTTP_ERROR,
            Self::NoOutput(_) | Self::OutputClosed => NO_OUTPUT,
            // Exit code of shells.
            Self::Interrupted(signal) => 128 + *signal,
        }
    }

    pub(super) const fn what(&self) -> Option<&String> {
        match self {
            Self::Unusable(what)
            | Self::NoAnswer(what)
            | Self::NotStored(what)
            | Self::HttpError(what)
            | Self::NoOutput(what) => Some(what),
            Self::OutputClosed | Self::Interrupted(_) => None,
        }
    }
}

pub(super) fn not_stored(fetch: &Fetch) -> FetchFailure {
    FetchFailure::NotStored(format!(
        "no usable response is stored for {}; omit --offline to fetch it",
        without_secrets(&fetch.url)
    ))
}

/// Explains a failed request, with a remedy.
pub(super) fn unreached(fetch: &Fetch, error: &Error) -> String {
    let inner = error.inner::<reqwest::Error>();
    let url = inner.and_then(reqwest::Error::url);
    let url = without_secrets(url.unwrap_or(&fetch.url));
    let why = deepest(error);
    let remedy = if why.contains("certificate") {
        "; set its CA with --cacert FILE"
    } else {
        "; --offline prints a stored response, if there is one"
    };
    let way = match &fetch.proxy {
        Some(Proxy::At(proxy)) => format!(" through the proxy {}", without_secrets(proxy)),
        _ => String::new(),
    };
    if inner.is_some_and(reqwest::Error::is_timeout) {
        return format!("no answer from {url}{way} in time{remedy}");
    }
    format!("no answer from {url}{way}: {why}{remedy}")
}
