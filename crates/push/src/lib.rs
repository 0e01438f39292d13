//! The push cache: documents are put in, and whoever subscribes is told of every change.
//!
//! Each document's latest version is kept. Every change gets a number from one sequence, and one ordered
//! index from numbers to changes is the queue of all subscribers: a subscriber is a pattern and the number
//! of the last change that it has seen. Nothing is queued for anybody, so a slow one costs nobody else
//! anything: when it reads on, it gets the latest versions of what has changed since.
//!
//! To the cache in front of it, it is an origin ([`Push`]) that has the answer to a GET at hand: a response
//! as memory holds it, with conditions, ranges and whatever else a hit has.

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
