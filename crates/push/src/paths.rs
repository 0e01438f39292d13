//! The paths that are ours.

/// Where documents and pages are subscribed to.
pub const WATCH_PATH: &str = "/.well-known/microcache/watch";
/// Where the script is that makes a page update itself.
pub const LIVE_PATH: &str = "/.well-known/microcache/live.js";
/// Where the Mercure hub is.
pub const MERCURE_PATH: &str = "/.well-known/mercure";
/// Where it lists who subscribes.
pub const SUBSCRIPTIONS_PATH: &str = "/.well-known/mercure/subscriptions";
