//! Log events and traces for operators.
//!
//! Owns the rate limit of log events and the sampling of requests. Never counts, which `metrics` does, nor writes
//! anywhere: events go to `tracing`, spans to a callback. Start at [`Notices`].

mod notices;
pub(crate) mod traces;
mod visit;

pub(crate) use notices::TARGET;
#[cfg(test)]
pub(crate) use notices::collected;
pub use notices::{Kind, Notices};
pub use traces::{OriginSpan, TraceCounts, Traces, by_chance, shown_path};
pub(crate) use visit::ServerVisit;
pub use visit::VisitedServer;
