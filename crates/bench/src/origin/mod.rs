//! Simulated slow origin, for testing caches and servers.
//!
//! Render time, cacheability and rate of change of its pages are configurable, and requests and renders are
//! counted, per URL and in total, at [`COUNTERS`].

mod application;
mod body;
mod conditional;
mod counters;
mod options;
mod page;
mod preset;
mod server;
mod settings;
mod url_hash;
mod values;
mod workers;

pub use counters::{COUNTERS, MAX_COUNTED_URLS, OriginCounters, OriginTotals};
pub use options::{ORIGIN_OPTIONS, OriginOption};
pub use preset::PRESETS;
pub use server::{Error, OriginServer, RunningOrigin};
pub use settings::{InvalidOption, Settings, WorkKind};
