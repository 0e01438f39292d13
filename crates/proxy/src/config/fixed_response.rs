//! Responses that a route gives itself.

use std::path::PathBuf;

use bytes::Bytes;

use super::place::Place;

/// A response that is the same for all requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedResponse {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
    /// The file with the body.
    pub(super) file: Option<(PathBuf, Place)>,
    pub(crate) content_type: String,
    pub(crate) cache_control: String,
}

impl FixedResponse {
    /// Returns true if the route keeps requests away from the application.
    pub(crate) const fn is_refusal(&self) -> bool {
        matches!(self.status, 400..=499)
    }
}
