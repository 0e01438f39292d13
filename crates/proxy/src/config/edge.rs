//! Settings of pages that are composed of fragments.

use std::time::Duration;

use microcache_policy::edge::FragmentPaths;

/// The composition of the pages of a route. Which responses are composed is a rule of the cache
/// ([`Rules::edge`](microcache_policy::Rules)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeSettings {
    /// The paths of fragments.
    pub paths: FragmentPaths,
    /// A page without one of its fragments is an error.
    pub is_strict: bool,
    /// The time limit of one fragment.
    pub timeout: Duration,
}

impl Default for EdgeSettings {
    fn default() -> Self {
        Self {
            paths: FragmentPaths::default(),
            is_strict: false,
            timeout: Duration::from_secs(2),
        }
    }
}
