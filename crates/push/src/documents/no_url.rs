//! Errors of subscribed URLs.

use microcache_engine::OriginResponse;

use crate::answer;
use crate::name::MAX_NAME;

/// Limits of one subscription: URLs, and patterns among them.
pub(crate) const MAX_URLS: usize = 100;
pub(crate) const MAX_STARS: usize = 8;

/// Rejection of a URL, with its HTTP status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoUrl {
    pub(crate) status: u16,
    pub(crate) why: String,
}

impl NoUrl {
    pub(crate) fn new(status: u16, why: impl Into<String>) -> Self {
        Self {
            status,
            why: why.into(),
        }
    }

    /// The URL is too long, and is not repeated in the message.
    pub(crate) fn too_long() -> Self {
        Self::new(400, format!("a url has {MAX_NAME} bytes at most"))
    }

    /// The subscription has too many URLs.
    pub(crate) fn too_many() -> Self {
        Self::new(400, format!("one subscription has {MAX_URLS} urls at most"))
    }

    /// The subscription has too many patterns.
    pub(crate) fn too_many_stars() -> Self {
        let why =
            format!("one subscription has {MAX_STARS} urls with a `*` at most, or with braces");
        Self::new(400, why)
    }

    /// Converts to a response.
    pub(crate) fn answer(self) -> OriginResponse {
        let mut answer = answer::problem(self.status, self.why);
        match self.status {
            401 => {
                answer.fields.push("WWW-Authenticate", "Bearer");
                answer
            }
            503 => answer::later(answer),
            _ => answer,
        }
    }
}
