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
mod bell;
mod changes;
mod documents;
mod fleet;
mod form;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod keeper;
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
mod waiting;
mod watch;

pub use access::key::{Key, KeyError};
pub use access::presented::shown;
pub use access::readers::PushKeys;
pub use access::sites::Site;
pub use access::token::{Token, TokenError};
pub use changes::journal::{JournalError, Sync};
pub use documents::monitor::{Has, monitor_link};
pub use fleet::{FleetError, FleetStats};
pub use keeper::KeepError;
pub use mercure::{Hub, Mercure, MercureSettings, MercureStats};
pub use name::{NameError, Prefix};
pub use origin::Push;
pub use paths::{LIVE_PATH, MERCURE_PATH, SUBSCRIPTIONS_PATH, WATCH_PATH};
pub use settings::{FleetSettings, PushSettings};
pub use stats::PushStats;
pub use subscribing::page::{FindContent, MAX_INLINE, News, Page};
pub use subscribing::urls::{FindPage, NoPage};
pub use watch::Watch;
