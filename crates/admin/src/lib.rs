//! The operators' interface: purges, entries, statistics, health, metrics, and a dashboard.
//!
//! It listens on an address of its own (`server`), on a thread of its own, and depends on the proxy, which does not
//! depend on it: all access goes through `microcache_proxy::Handle`. `access` controls who may use it, `api` lists
//! the endpoints, and `openapi.json` describes them; a test compares the two.
//!
//! - A purge by URL takes the path of a request as far as its key, so query parameters that a route ignores are ignored
//!   by purges too (`scopes`, `purges`).
//! - `stream` builds one snapshot per second for all viewers of the dashboard, and `live` waits for none of them; `windows` keeps the
//!   latencies of the last minutes. The dashboard's files are in `assets`, served by `dashboard` under a policy that
//!   lets them load nothing else.
//! - `explain` reports the decisions of the serving path about a hypothetical request.

mod access;
mod api;
mod certificates;
mod configuration;
mod connections;
mod dashboard;
mod entries;
mod explain;
mod health;
mod interface;
mod latency;
mod live;
mod maintenance;
mod mercure;
mod metrics;
mod node_list;
mod nodes;
mod patient;
mod problem;
mod purges;
mod push;
mod scopes;
mod server;
mod stats;
mod stream;
mod top;
mod warming;
mod windows;

pub use server::Admin;
