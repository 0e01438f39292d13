//! Retry classification: decides by the HTTP/2 error whether a request may be sent again.

use h2::Reason;
use microcache_engine::body::BodyError;
use microcache_engine::origin::OriginError;

/// Protocol errors; the `h2` crate does not say which rule was broken.
const RULES: &str = "it breaks the rules of HTTP/2";

/// Retry class of a request without a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::upstream) enum RetryClass {
    /// Not processed by the server (RFC 9113 §8.7): any request may be sent again.
    NotProcessed,
    /// The connection was lost before the response began, as when the server closes an idle one.
    ConnectionLost,
    /// The server requires HTTP/1 (`HTTP_1_1_REQUIRED`).
    RequiresHttp1,
    /// The server has processed the request, or may have.
    Processed,
}

/// Failure of a stream before its response.
#[derive(Debug)]
pub(in crate::upstream) struct StreamFailure {
    pub(in crate::upstream) error: OriginError,
    pub(in crate::upstream) retry: RetryClass,
}

impl StreamFailure {
    /// Failure of a request that the server may have processed.
    pub(super) const fn processed(error: OriginError) -> Self {
        Self {
            error,
            retry: RetryClass::Processed,
        }
    }

    /// Classifies an error before the response.
    pub(super) fn of(error: &h2::Error) -> Self {
        let (retry, error) = if error.is_go_away() && error.is_remote() {
            // This stream is above the last one that GOAWAY names, so it was not processed; those up to it continue.
            (RetryClass::NotProcessed, OriginError::Disconnected)
        } else if error.is_reset() && error.is_remote() {
            match error.reason() {
                Some(Reason::REFUSED_STREAM) => {
                    (RetryClass::NotProcessed, OriginError::Disconnected)
                }
                Some(Reason::HTTP_1_1_REQUIRED) => {
                    (RetryClass::RequiresHttp1, OriginError::Disconnected)
                }
                _ => (RetryClass::Processed, OriginError::Disconnected),
            }
        } else if error.is_reset() {
            (RetryClass::Processed, OriginError::Malformed(RULES))
        } else if error.is_go_away() {
            // The protocol error may concern another stream of the connection.
            (RetryClass::ConnectionLost, OriginError::Malformed(RULES))
        } else {
            (RetryClass::ConnectionLost, OriginError::Disconnected)
        };
        Self { error, retry }
    }

    /// The error to report. A request that was not processed may go to another server if it `can_begin`
    /// there.
    pub(in crate::upstream) fn error_for(self, can_begin: bool) -> OriginError {
        match self.retry {
            RetryClass::NotProcessed if can_begin => {
                OriginError::Connect("it refused the stream twice".into())
            }
            _ => self.error,
        }
    }
}

/// Classifies an error within the response, which is truncated in any case.
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
