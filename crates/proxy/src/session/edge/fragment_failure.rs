//! The reasons that a fragment is left out of its page.

use microcache_engine::BodyError;
use microcache_policy::edge::FragmentRefusal;

/// The reason that a URL of a tag brings no fragment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FragmentFailure {
    #[error("{}", .0.as_str())]
    Refused(FragmentRefusal),
    #[error("pages are nested too deeply, or the page has too many fragments")]
    Bound,
    #[error("it was answered {0}")]
    Status(u16),
    #[error("its response is encoded, although the identity coding was asked for")]
    Encoded,
    #[error("it has no end, or is too large")]
    TooLarge,
    #[error("it is not complete: {0}")]
    Body(BodyError),
    #[error("it has not arrived within `edge_timeout`")]
    Timeout,
    #[error("its request failed inside")]
    Panic,
}
