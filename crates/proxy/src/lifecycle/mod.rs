//! The end of a process, and its handover to the next one.
//!
//! Owns the state that says whether the server leaves, drains, is replaced or is in maintenance mode, the messages between the two
//! processes of an upgrade, and the purges that both apply meanwhile. Never starts a process nor stops a thread,
//! which `control` and `server` do. Start at [`Lifecycle`].

mod handover;
mod maintenance;
mod predecessor;
mod state;

pub use handover::InheritedSockets;
pub(crate) use handover::{HandoverChannel, MAINTENANCE, TICKETS, VARIABLE, admin_label, label};
pub use maintenance::{MAX_ALLOWED, Maintenance};
pub(crate) use predecessor::{Predecessor, follow_successor};
pub(crate) use state::Lifecycle;
