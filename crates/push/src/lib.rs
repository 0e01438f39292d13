//! The push cache: publishers put documents and subscribers receive every change.
//!
//! Only the latest version of each document is stored. Changes are numbered from one sequence, and one
//! ordered index from number to change is the queue of all subscribers: a subscriber is a pattern plus the
//! number of the last change delivered to it. There are no per-subscriber queues, so a slow subscriber costs
//! the others nothing: when it reads on, it receives the latest version of every document that changed
//! meanwhile.
//!
//! To the cache, it is an origin ([`Push`]) that answers GET synchronously with a response in the form in
//! which the memory store holds it, so conditional requests and ranges work as for any hit.

mod access;
mod answer;
mod backend;
mod changes;
mod documents;
mod fleet;
mod form;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod last_event_id;
#[cfg(test)]
mod laws;
mod mercure;
mod name;
mod origin;
mod paths;
mod publishing;
mod settings;
mod socket;
mod stats;
mod subscribing;
mod template;
mod wait_list;
mod wake_batch;
mod watch;

pub use access::cors::AllowedOrigin;
pub use access::read_grant::{PushKeys, READ_FIELD, READ_TTL_FIELD};
pub use access::request_token::redacted_target;
pub use access::shared_secret::{SharedSecret, SharedSecretError};
pub use access::token_key::{TokenKey, TokenKeyError};
pub use backend::BackendError;
pub use changes::journal::{JournalError, SyncPolicy};
pub use documents::monitor::{MonitorValidator, monitor_link};
pub use fleet::{FleetError, FleetStats};
pub use mercure::{Hub, MercureOrigin, MercureSettings, MercureStats};
pub use name::{NameError, Prefix};
pub use origin::Push;
pub use paths::{MERCURE_PATH, SCRIPT_PATHS, SUBSCRIPTIONS_PATH, WATCH_PATH};
pub use settings::{FleetSettings, PushSettings};
pub use stats::PushStats;
pub use subscribing::page::{FindContent, MAX_INLINE, PageStatus, PageTopic};
pub use subscribing::urls::{FindPage, PageError};
pub use watch::WatchOrigin;
