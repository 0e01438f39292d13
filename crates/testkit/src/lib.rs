//! Utilities for the tests of several crates: waiting for a state, seeded randomness, temporary folders, child
//! processes, memcached and Redis servers.
//!
//! The other crates have it as a development dependency only, and it depends on none of them.

mod chance;
mod folder;
mod left_out;
mod loopback;
mod noise;
mod process;
mod tier_server;
mod wait;

pub use chance::Chance;
pub use folder::Folder;
pub use left_out::{has_python_module, is_installed, left_out};
pub use loopback::{free_port, listen};
pub use noise::noise;
pub use process::{Process, signal};
pub use rustix::process::Signal;
pub use tier_server::{TierKind, TierServer};
pub use wait::{WAIT_TIMEOUT, eventually, eventually_async};
