//! Errors of subscribed URLs.

use microcache_engine::OriginResponse;

use crate::answer;
use crate::name::MAX_NAME;

/// Limits of one subscription: URLs, and patterns among them.
pub(crate) const MAX_URLS: usize = 100;
pub(crate) const MAX_PATTERNS: usize = 8;

/// Rejection of a URL, with its HTTP status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UrlError {
    pub(crate) status: u16,
    pub(crate) message: String,
}

impl UrlError {
    pub(crate) fn new(status: u16, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
        }
    }

    /// The URL is too long, and is not repeated in the message.
    pub(crate) fn too_long() -> Self {
        Self::new(400, format!("a URL may have at most {MAX_NAME} bytes"))
    }

    /// The subscription has too many URLs.
    pub(crate) fn too_many_urls() -> Self {
        Self::new(
            400,
            format!("a subscription may have at most {MAX_URLS} URLs"),
        )
    }

    /// The subscription has too many patterns.
    pub(crate) fn too_many_patterns() -> Self {
        let message = format!(
            "a subscription may have at most {MAX_PATTERNS} patterns (URLs with `*` or braces)"
        );
        Self::new(400, message)
    }

    /// Converts to a response.
    pub(crate) fn answer(self) -> OriginResponse {
        let mut answer = answer::problem(self.status, self.message);
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
