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
mod asked;
mod batch;
mod bell;
mod books;
mod change;
mod client;
mod coming;
mod documents;
mod encodings;
mod events;
mod fleet;
mod form;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod joining;
mod journal;
mod json;
mod keeper;
mod key;
#[cfg(test)]
mod laws;
mod mercure;
mod monitor;
mod name;
mod named;
mod no_url;
mod numbers;
mod origin;
mod page;
mod pages;
mod patch;
mod paths;
mod presented;
mod privacy;
mod readers;
mod records;
mod settings;
mod sites;
mod socket;
mod sockets;
mod stats;
mod stream;
mod subscription;
mod template;
mod topics;
mod urls;
mod version;
mod waiting;
mod watch;
mod wish;
mod writer;

pub use access::{Token, TokenError};
pub use fleet::{FleetError, FleetStats};
pub use journal::{JournalError, Sync};
pub use keeper::KeepError;
pub use key::{Key, KeyError};
pub use mercure::{Hub, Mercure, MercureSettings, MercureStats};
pub use monitor::{Has, monitor_link};
pub use name::{NameError, Prefix};
pub use origin::Push;
pub use page::{FindContent, MAX_INLINE, News, Page};
pub use paths::{LIVE_PATH, MERCURE_PATH, SUBSCRIPTIONS_PATH, WATCH_PATH};
pub use presented::shown;
pub use readers::PushKeys;
pub use settings::{FleetSettings, PushSettings};
pub use sites::Site;
pub use stats::PushStats;
pub use urls::{FindPage, NoPage};
pub use watch::Watch;
