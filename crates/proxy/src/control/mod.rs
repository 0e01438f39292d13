//! Control of a running server.
//!
//! Owns the [`Handle`] through which operators see and change the server, the reload of its configuration, and the
//! upgrade of its process. Never serves a request: a reload replaces the shared state, an upgrade starts another
//! process. Start at [`Handle`], then `reload`.

mod commands;
mod handle;
mod reload;
mod upgrade;

pub(crate) use commands::MAX_WAITING;
pub use commands::{ReloadError, ReloadOutcome, UpgradeError};
pub use handle::Handle;
pub use reload::ServerStage;
pub(crate) use reload::{OnStage, Reloader};
