//! Reserved paths.

/// Path of subscriptions to documents and pages.
pub const WATCH_PATH: &str = "/.well-known/microcache/watch";
/// Paths of the scripts for pages: one keeps the page up to date, the other one documents in it.
pub const SCRIPT_PATHS: [&str; 2] = [
    "/.well-known/microcache/live.js",
    "/.well-known/microcache/client.js",
];
/// Path of the Mercure hub.
pub const MERCURE_PATH: &str = "/.well-known/mercure";
/// Path of the hub's list of active subscriptions.
pub const SUBSCRIPTIONS_PATH: &str = "/.well-known/mercure/subscriptions";
