//! Admission of connections, and limits of what they may hold.
//!
//! Owns the permits of connections and of long responses, the number of connections per address, the descriptors of
//! the process, and the memory that slow readers pin. Knows a connection by its [`Activity`] alone; never reads or
//! writes a socket. Start at [`ConnectionLimits`].

mod activity;
mod connections;
pub(crate) mod descriptors;
mod limits;
mod per_address;
mod pinned;

pub(crate) use activity::Activity;
pub(crate) use connections::{FIRST_REQUEST, ThreadConnections};
pub use limits::ConnectionUsage;
pub(crate) use limits::{
    ConnectionLimits, ConnectionPermit, LimitSettings, PermitKind, ResponsePermits,
    TunnelLimitReached,
};
pub(crate) use pinned::{PinGuard, PinnedBytes};
