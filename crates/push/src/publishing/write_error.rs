//! Rejections of write requests.

use microcache_engine::OriginResponse;

use crate::answer;

/// Rejection of a write request; the document is unchanged, except possibly for `Unknown`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WriteError {
    #[error("there is no such document")]
    Missing,
    #[error("the document's current version does not satisfy the condition of the request")]
    ConditionFailed,
    #[error("writes require If-Match or If-None-Match")]
    ConditionRequired,
    #[error("the memory for documents is full (push_memory)")]
    Full,
    #[error("the document would be too large (push_max_document)")]
    TooLarge,
    #[error("only a JSON document can be patched")]
    NotJson,
    #[error("a test operation of the patch failed")]
    TestFailed,
    #[error("the patch cannot be applied: {0}")]
    InvalidPatch(String),
    #[error("the change could not be written to the log: {0}")]
    LogFailure(String),
    #[error("too many writes are queued")]
    Busy,
    #[error("nothing was changed: push_redis: {0}")]
    Unreachable(String),
    #[error(
        "it is unknown whether the change was made: push_redis: {0}; check the document, or repeat the request"
    )]
    Unknown(String),
    #[error("nothing was changed: push_redis is out of memory (maxmemory)")]
    BackendFull,
    #[error("nothing was changed: concurrent writes prevented the patch")]
    Contended,
}

impl WriteError {
    /// Returns the HTTP status.
    pub(crate) const fn status(&self) -> u16 {
        match self {
            Self::Missing => 404,
            Self::TestFailed => 409,
            Self::ConditionFailed => 412,
            Self::TooLarge => 413,
            Self::NotJson => 415,
            Self::InvalidPatch(_) => 422,
            Self::ConditionRequired => 428,
            Self::LogFailure(_)
            | Self::Busy
            | Self::Unreachable(_)
            | Self::Unknown(_)
            | Self::Contended => 503,
            Self::Full | Self::BackendFull => 507,
        }
    }

    /// Converts to a response.
    pub(crate) fn answer(&self) -> OriginResponse {
        let answer = answer::problem(self.status(), self);
        if self.status() == 503 {
            answer::later(answer)
        } else {
            answer
        }
    }
}
