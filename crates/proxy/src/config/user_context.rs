//! The user context of a route's requests: pages that are shared by users of the same role.

use std::time::Duration;

use super::place::Place;

/// The user context of a route's requests.
#[derive(Clone, Debug)]
pub struct UserContext {
    /// The place of the option.
    pub(super) place: Place,
    pub(super) target: String,
    pub(super) cookies: Vec<String>,
    pub(super) kept_for: Duration,
    pub(super) timeout: Duration,
}

impl UserContext {
    pub(super) fn new(place: Place) -> Self {
        Self {
            place,
            target: String::new(),
            cookies: Vec::new(),
            kept_for: Duration::ZERO,
            timeout: Duration::ZERO,
        }
    }

    /// The path and query that the application answers with the hash.
    pub(crate) fn target(&self) -> &str {
        &self.target
    }

    /// The names of the cookies by which the application knows its users.
    pub(crate) fn cookies(&self) -> &[String] {
        &self.cookies
    }

    /// The time for which a hash is kept.
    pub(crate) const fn kept_for(&self) -> Duration {
        self.kept_for
    }

    /// The maximum time that a request waits for its hash.
    pub(crate) const fn timeout(&self) -> Duration {
        self.timeout
    }
}
