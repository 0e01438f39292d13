//! The server around the engine: configuration, listeners, client connections, origin groups.
//!
//! - **Connections**: `server` accepts, one listening socket per thread and address, within the limits of `admission`;
//!   `connection` carries HTTP/1 and TLS, `h2` HTTP/2, both with the formats of [`microcache_wire`]. They hand requests
//!   to `session`, which knows no wire format.
//! - **Origins**: [`upstream`] queues requests, balances them over servers and pools connections; `files` serves a
//!   directory; `rewriting` changes paths before either; the push crate serves documents and the Mercure hub; `watched` refreshes pages that have subscribers,
//!   `warming` fetches pages before clients ask.
//! - **Configuration**: [`config`] defines every option once. A reload (`control`) builds new shared state (`shared`)
//!   with the same cache, permits and counters; a connection compares one number between two requests and switches then.
//! - **Upgrade**: `control` starts another process and hands it the sockets over its standard input (`lifecycle`). The old
//!   process drains once the new one serves.
//! - **Limits and TLS**: `rates` limits the rate of requests; `passwords` verifies those of Basic authentication, `forward_auth`
//!   asks an authentication server; `tls` holds certificates and session tickets.
//! - **Observability**: `metrics` counts every request once; `observe` limits the rate of log events, and samples
//!   traces.

mod admission;
pub mod config;
mod connection;
mod control;
mod files;
mod fingerprints;
mod forward_auth;
mod h2;
mod lifecycle;
mod metrics;
mod observe;
mod page_edits;
mod passwords;
mod rates;
mod rewriting;
mod server;
mod session;
mod shared;
mod tls;
pub mod upstream;
mod warming;
mod watched;

use observe::traces;

pub use admission::ConnectionUsage;
pub use control::{Handle, ReloadError, ReloadOutcome, ServerStage, UpgradeError};
pub use lifecycle::{InheritedSockets, MAX_ALLOWED, Maintenance};
pub use metrics::{
    Amount, CompactLatencies, ErrorKind, FragmentOutcome, Latencies, Measure, MetricsSnapshot,
    OriginSnapshot, RecentError, Refusal, RouteSnapshot, SAMPLED_ONE_IN, TopUrl, TopUrls,
};
pub use microcache_push::{
    FleetStats, MercureStats, PushStats, SharedSecret, SharedSecretError, redacted_target,
};
pub use microcache_store::TierReport;
pub use observe::{
    Kind, Notices, OriginSpan, TraceCounts, Traces, VisitedServer, by_chance, shown_path,
};
pub use server::{Server, ServerError, Started, Summary};
pub use session::explaining::{
    BuiltinService, FetchedResponse, InvalidRequest, ParsedRequest, RateLimitState,
    RequestExplanation, RouteResponse, SimulatedRequest,
};
pub use session::explaining_fragments::{ExplainedFragment, FragmentDecision};
pub use session::{FinalResponse, FinishedRequest, TraceState, request_id};
pub use tls::{
    CertificateFiles, CertificateReport, IssuedCertificate, IssuedCertificates, OriginTls,
    PendingChallenge, RenewalState,
};
pub use warming::{TooManyJobs, WarmCounts, WarmPage, WarmProgress, WarmResult, WarmSource};
