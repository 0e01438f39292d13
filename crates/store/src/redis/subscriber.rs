//! Subscription to the announcements: a connection of its own to the master of the log.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use redis::{Msg, RedisError, Value};
use tokio::time::timeout;

use super::RedisInner;
use super::address::ConnectError;
use super::record::{id_of_entry_key, log_id};
use crate::announcements::Announcements;

/// Silence after which the connection is checked.
const CHECK_AFTER: Duration = Duration::from_secs(2);
/// Pause after the server has refused to subscribe, which an operator has to change.
const REFUSED_PAUSE: Duration = Duration::from_mins(1);

impl RedisInner {
    /// Follows the announcements for as long as it is polled.
    pub(super) async fn keep_subscribed(self: Arc<Self>) {
        let mut returns = self.servers.returns();
        loop {
            returns.borrow_and_update();
            let ended = self.follow_announcements().await;
            self.announcements.set_subscribed(false);
            let pause = if let Err(ConnectError::Rejected(why)) = ended {
                self.announcements.set_refusal(Some(why));
                REFUSED_PAUSE
            } else {
                self.settings.retry_delay()
            };
            // A server that is back is followed at once.
            let _ = timeout(pause, returns.changed()).await;
        }
    }

    /// Has the log read as soon as a server is back, for as long as it is polled.
    pub(super) async fn note_returns(self: Arc<Self>) {
        let mut returns = self.servers.returns();
        while returns.changed().await.is_ok() {
            self.announcements.note_log_news();
        }
    }

    async fn follow_announcements(&self) -> Result<(), ConnectError> {
        let announcements = &self.announcements;
        let time_limit = self.settings.connect_deadline;
        let lost = |error: RedisError| ConnectError::of(&error);
        let Some(address) = self.servers.address(log_id()) else {
            return Ok(());
        };
        let channels = announcements.channels();
        let subscribed = timeout(time_limit, address.subscribe(&channels)).await;
        let subscribed = subscribed.map_err(|_| ConnectError::late())?;
        let (mut requests, mut messages) = subscribed.map_err(lost)?;
        announcements.set_subscribed(true);
        announcements.set_refusal(None);
        // The server may be another one, with other settings. A command that it lacks fails requests.
        let _ = self.check().await;
        loop {
            match timeout(CHECK_AFTER, messages.next()).await {
                Ok(Some(message)) => take(announcements, &message),
                Ok(None) => return Ok(()),
                Err(_) => {
                    let checked = timeout(time_limit, requests.ping::<Value>()).await;
                    checked.map_err(|_| ConnectError::late())?.map_err(lost)?;
                }
            }
        }
    }
}

fn take(announcements: &Announcements, message: &Msg) {
    if message.get_channel_name() == announcements.log_channel() {
        announcements.note_log_news();
    } else if let Some(id) = id_of_entry_key(message.get_payload_bytes()) {
        announcements.end(id);
    }
}
