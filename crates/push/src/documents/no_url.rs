//! Why a url stands for nothing that somebody may be told of.

use microcache_engine::OriginResponse;

use crate::answer;
use crate::name::MAX_NAME;

/// The most urls of one subscription, and how many of them may have a star.
pub(crate) const MAX_URLS: usize = 100;
pub(crate) const MAX_STARS: usize = 8;

/// What is wrong with it.
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

    /// What is longer names nothing, and is not repeated.
    pub(crate) fn too_long() -> Self {
        Self::new(400, format!("a url has {MAX_NAME} bytes at most"))
    }

    /// There are bounds of each subscription.
    pub(crate) fn too_many() -> Self {
        Self::new(400, format!("one subscription has {MAX_URLS} urls at most"))
    }

    /// And of the dearer ones.
    pub(crate) fn too_many_stars() -> Self {
        let why =
            format!("one subscription has {MAX_STARS} urls with a `*` at most, or with braces");
        Self::new(400, why)
    }

    /// The same as an answer.
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
