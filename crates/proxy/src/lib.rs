//! The server around the engine: configuration, listeners, client connections, origin groups.
//!
//! - **Connections**: `listener` accepts, one listening socket per thread and address; `connection` carries HTTP/1 and TLS,
//!   [`h2`] HTTP/2. Both hand requests to `session`, which knows no wire format.
//! - **Origins**: [`upstream`] queues, balances and pools; `files` is an origin that is a directory; documents and the
//!   Mercure hub are origins of the push crate; `watched` follows pages with subscribers.
//! - **Configuration**: [`config`] defines every option once. A reload (`reload`) builds new shared state with the same
//!   cache, permits and counters; a connection compares one number between two requests and switches then.
//! - **Upgrade**: `upgrade` starts another process and hands it the sockets over its standard input (`handover`). The old
//!   process drains once the new one serves.
//! - **Observability**: `metrics` counts every request once; `notices` bounds what is logged; `traces` samples.

mod accepted;
mod active;
mod activity;
mod admission;
mod commands;
pub mod config;
mod connection;
mod connections;
mod descriptors;
mod files;
pub mod h1;
pub mod h2;
mod handle;
mod handover;
mod lifecycle;
mod listener;
mod metrics;
mod notices;
mod per_address;
mod pinned;
mod predecessor;
pub mod proxy_protocol;
mod rates;
mod reload;
mod routing;
mod server;
mod session;
mod shared;
mod signals;
mod tiers;
mod tls;
mod traces;
mod upgrade;
pub mod upstream;
mod watch;
mod watched;

pub use admission::ConnectionUsage;
pub use commands::{ReloadError, ReloadOutcome, UpgradeError};
pub use handle::Handle;
pub use handover::InheritedSockets;
pub use metrics::{
    Amount, CompactLatencies, ErrorKind, Latencies, Measure, MetricsSnapshot, OriginSnapshot,
    RecentError, Refusal, RouteSnapshot, SAMPLED_ONE_IN, TopUrl, TopUrls,
};
pub use microcache_push::{
    FleetStats, MercureStats, PushStats, SharedSecret, SharedSecretError, redacted_target,
};
pub use microcache_store::TierReport;
pub use notices::{Kind, Notices};
pub use reload::ServerStage;
pub use server::{Server, ServerError, Started, Summary};
pub use session::explaining::{
    BuiltinService, FetchedResponse, InvalidRequest, ParsedRequest, RateLimitState,
    RequestExplanation, SimulatedRequest,
};
pub use session::{FinalResponse, FinishedRequest, TraceState};
pub use tls::{
    CertificateFiles, CertificateReport, IssuedCertificate, IssuedCertificates, OriginTls,
    PendingChallenge, RenewalState,
};
pub use traces::{OriginSpan, TraceCounts, Traces, by_chance, shown_path};
