//! What a failure of HTTP/2 means for the request that met it.

use h2::Reason;
use microcache_engine::body::BodyError;
use microcache_engine::origin::OriginError;

/// What breaks the rules of the protocol; the crate that reads frames does not say which.
const RULES: &str = "it breaks the rules of HTTP/2";

/// What became of a request without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::upstream) enum Fate {
    /// The server has not begun to work on it, and never will: RFC 9113 §8.7. Any request may be sent again.
    Untouched,
    /// The connection was lost before a word of the answer, as it happens to one that the server closes in the same moment.
    Lost,
    /// The server wants it by HTTP/1.
    ForHttp1,
    /// It was worked on, or may have been.
    Worked,
}

/// Why there is no answer on a stream.
#[derive(Debug)]
pub(in crate::upstream) struct Broken {
    pub(in crate::upstream) error: OriginError,
    pub(in crate::upstream) fate: Fate,
}

impl Broken {
    /// The failure of a request that was worked on.
    pub(super) const fn worked(error: OriginError) -> Self {
        Self {
            error,
            fate: Fate::Worked,
        }
    }

    /// What the library says happened before the answer.
    pub(super) fn of(error: &h2::Error) -> Self {
        let (fate, error) = if error.is_go_away() && error.is_remote() {
            // Streams below the last one that the server names go on; to those above nothing will happen.
            (Fate::Untouched, OriginError::Disconnected)
        } else if error.is_reset() && error.is_remote() {
            match error.reason() {
                Some(Reason::REFUSED_STREAM) => (Fate::Untouched, OriginError::Disconnected),
                Some(Reason::HTTP_1_1_REQUIRED) => (Fate::ForHttp1, OriginError::Disconnected),
                _ => (Fate::Worked, OriginError::Disconnected),
            }
        } else if error.is_reset() {
            (Fate::Worked, OriginError::Malformed(RULES))
        } else if error.is_go_away() {
            // Somebody's answer broke the rules of the connection. It may be another one.
            (Fate::Lost, OriginError::Malformed(RULES))
        } else {
            (Fate::Lost, OriginError::Disconnected)
        };
        Self { error, fate }
    }

    /// What is said of it in the end. What was not worked on may go to another server, if it `can_begin` there.
    pub(in crate::upstream) fn error_for(self, can_begin: bool) -> OriginError {
        match self.fate {
            Fate::Untouched if can_begin => {
                OriginError::Connect("it turned the request away twice".into())
            }
            _ => self.error,
        }
    }
}

/// What the library says happened within the answer. However it ended, it is not whole.
pub(super) fn broke_off(error: &h2::Error) -> BodyError {
    if error.is_library() {
        BodyError::Malformed(RULES)
    } else if let Some(reason) = error
        .reason()
        .filter(|_| error.is_reset() && error.is_remote())
    {
        BodyError::Reset(reason.into())
    } else {
        BodyError::Disconnected
    }
}
