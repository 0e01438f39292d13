//! A hub on several nodes: Redis or Valkey stores the history and the presence list, and every node has a full copy.
//!
//! A publication is a Lua script in Redis, which appends to a stream that all nodes follow. An update is delivered on a
//! node when its reader reaches it, whichever node it was published to, so that all nodes deliver the same updates in the
//! same order. The same holds for presence, in a stream beside it: nodes share the subscriptions of their own
//! subscribers, and end those of nodes that have gone.

mod foreign_key;
mod hub_reader;
mod hub_record;
mod presence_sharing;
mod scripts;

use std::sync::Arc;

use microcache_engine::OriginResponse;
use microcache_store::TierError;
use microcache_store::random;
use microcache_store::redis::NoReply;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use self::hub_reader::HubReader;
use self::presence_sharing::PresenceSharing;
use self::scripts::{PUBLISH, call, version};
use super::history::History;
use super::local_presence::LocalPresence;
use super::update::Update;
use crate::answer;
use crate::fleet::connection::{FleetConnection, MAX_CONCURRENT, TARGET};
use crate::fleet::state::{APPLY_TIMEOUT, FIRST_LOAD, FleetStats, OutageTexts, State};
use crate::fleet::thread::{FleetError, start_thread};
use crate::settings::FleetSettings;

/// The messages about the hub.
const UPDATES: OutageTexts = OutageTexts {
    during: "subscribers of the Mercure hub stay connected, and publications are rejected",
    after: "the Mercure hub accepts publications again",
    rejection: "publications to the Mercure hub, or its presence lists, fail",
    foreign: "an update of the Mercure hub",
};

/// The part of a hub that is shared with other nodes.
pub(crate) struct SharedHub {
    connection: FleetConnection,
    state: Arc<State>,
    in_progress: Semaphore,
    /// Stops the thread when dropped.
    _thread_alive: oneshot::Sender<()>,
}

/// Error publishing an update to all nodes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SharedPublishError {
    #[error("nothing was published: too many publications are in progress")]
    Busy,
    #[error("nothing was published: push_redis: {0}; publish it again later")]
    Unreachable(String),
    #[error(
        "it is unknown whether the update was published: push_redis: {0}; published again, it may be delivered twice"
    )]
    Unknown(String),
    #[error("nothing was published: push_redis is out of memory (maxmemory)")]
    Full,
}

impl SharedPublishError {
    /// Converts to a response.
    pub(super) fn answer(&self) -> OriginResponse {
        match self {
            Self::Busy | Self::Unreachable(_) | Self::Unknown(_) => {
                answer::later(answer::problem(503, self))
            }
            Self::Full => answer::problem(507, self),
        }
    }
}

impl From<NoReply> for SharedPublishError {
    fn from(why: NoReply) -> Self {
        match why {
            NoReply::Full => Self::Full,
            why if why.is_unknown() => Self::Unknown(why.to_string()),
            why => Self::Unreachable(why.to_string()),
        }
    }
}

impl SharedHub {
    /// Uses the users and passwords of these URLs for connections from now on.
    pub(super) async fn change_login(&self, urls: &[String]) -> Result<(), TierError> {
        self.connection.line.change_login(urls.to_vec()).await
    }

    /// Connects, and waits up to [`FIRST_LOAD`] for the history.
    pub(super) fn start(
        settings: FleetSettings,
        history: &Arc<Mutex<History>>,
    ) -> Result<Self, FleetError> {
        let presence = LocalPresence::new(random::number());
        let wake = presence.wake();
        let mut shared = history.lock();
        shared.is_loaded = false;
        shared.local_presence = Some(presence);
        drop(shared);
        let state = Arc::new(State::new(&UPDATES));
        let (history, states) = (Arc::clone(history), Arc::clone(&state));
        let (connection, alive) =
            start_thread("hub", settings, move |reading, sharing| async move {
                let sharing =
                    PresenceSharing::new(sharing, Arc::clone(&history), Arc::clone(&states), wake);
                let reader = HubReader::new(reading, history, states);
                tokio::join!(reader.run(), sharing.run());
            })?;
        if !state.wait_for_documents(FIRST_LOAD) {
            tracing::error!(
                target: TARGET,
                "no history of the Mercure hub yet: subscriptions are answered 503 until push_redis is reachable"
            );
        }
        Ok(Self {
            connection,
            state,
            in_progress: Semaphore::new(MAX_CONCURRENT),
            _thread_alive: alive,
        })
    }

    pub(super) fn stats(&self) -> FleetStats {
        self.state.stats()
    }

    /// Publishes an update to all nodes, and evicts the oldest ones beyond a limit of bytes.
    pub(super) async fn publish(
        &self,
        update: &Update,
        capacity: u64,
    ) -> Result<(), SharedPublishError> {
        let place = self.in_progress.try_acquire();
        let _place = place.map_err(|_| SharedPublishError::Busy)?;
        let arguments = [
            capacity.to_string().into_bytes(),
            update.size().to_string().into_bytes(),
            update.topic_lines().into_bytes(),
            update.media_type().into(),
            update.event.to_vec(),
        ];
        let reply = call(&self.connection, &PUBLISH, arguments.into()).await;
        self.state.record_reply(reply.as_ref().err());
        let number = reply?.first().and_then(|word| word.parse().ok());
        let number = number.ok_or(NoReply::Unreadable)?;
        self.state.lost_writes.record(version(number));
        let applied = self.state.wait_until_applied(0, number);
        // The other nodes deliver it even if this one is behind.
        let _ = timeout(APPLY_TIMEOUT, applied).await;
        Ok(())
    }
}
