//! The server around the engine: configuration, listeners, client connections, upstreams.

mod addresses;
pub mod config;
mod connection;
mod connections;
mod descriptors;
mod figures;
mod files;
pub mod h1;
pub mod h2;
mod handle;
mod handover;
mod in_force;
mod lent;
mod listener;
mod newcomer;
mod notices;
mod predecessor;
pub mod proxy_protocol;
mod rates;
mod reload;
mod room;
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

pub use figures::{
    Amount, ErrorKind, FiguresSnapshot, KeptLatencies, Latencies, Measure, OriginSnapshot,
    RecentError, Refusal, RouteSnapshot, SAMPLED_ONE_IN, TopUrl, TopUrls,
};
pub use handle::Handle;
pub use handover::Inherited;
pub use microcache_push::{
    FleetStats, MercureStats, PushStats, SharedSecret, SharedSecretError, redacted_target,
};
pub use microcache_store::TierReport;
pub use notices::{Kind, Notices};
pub use reload::{NotReloaded, Reloaded, Stage};
pub use room::Taken;
pub use server::{Server, ServerError, Started, Summary};
pub use session::explaining::{Fetched, Hosted, Imagined, Outlook, Rated, Read, Refused};
pub use session::{FinalResponse, Finished, Traced};
pub use tls::{CertificateFiles, CertificateReport, Expected, Issue, Issued, OriginTls, Standing};
pub use traces::{OriginSpan, TraceCounts, Traces, by_chance, shown_path};
pub use upgrade::NotUpgraded;
