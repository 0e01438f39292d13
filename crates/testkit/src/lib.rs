//! Means of the tests of several crates: waiting for a state, folders that are removed, processes that are ended.
//!
//! The other crates depend on it for their tests only, and it depends on none of them.

mod folder;
mod left_out;
mod loopback;
mod noise;
mod process;
mod tier_server;
mod wait;

pub use folder::Folder;
pub use left_out::{has_python_module, is_installed, left_out};
pub use loopback::{free_port, listen};
pub use noise::noise;
pub use process::{Process, signal};
pub use rustix::process::Signal;
pub use tier_server::{TierKind, TierServer};
pub use wait::{PATIENCE, eventually, eventually_async};
