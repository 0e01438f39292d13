//! A simulated slow application, for any server or cache that wants one to stand behind it.
//!
//! Its pages cost what they are told to cost, change when they are told to change, and are counted:
//! [`COUNTERS`] says how many requests and renders there were, per url and in total.

mod application;
mod body;
mod conditional;
mod counters;
mod options;
mod page;
mod preset;
mod server;
mod settings;
mod spread;
mod values;
mod workers;

pub use counters::{COUNTERS, Counters, MAX_COUNTED_URLS, Totals};
pub use options::{ORIGIN_OPTIONS, OriginOption};
pub use preset::PRESETS;
pub use server::{Error, Origin, Running};
pub use settings::{Settings, WorkKind, Wrong};
