//! Reserved paths.

/// Path of subscriptions to documents and pages.
pub const WATCH_PATH: &str = "/.well-known/microcache/watch";
/// Path of the script that keeps a page up to date.
pub const LIVE_PATH: &str = "/.well-known/microcache/live.js";
/// Path of the Mercure hub.
pub const MERCURE_PATH: &str = "/.well-known/mercure";
/// Path of the hub's list of active subscriptions.
pub const SUBSCRIPTIONS_PATH: &str = "/.well-known/mercure/subscriptions";
