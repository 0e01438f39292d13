//! Dedicated connection to a Redis server, for ordered commands on keys that share one slot.

use redis::{Cmd, ErrorKind, Value};
use tokio::time::Duration;

use super::address::{self, RedisStartError};
use super::deadline::Deadline;
use super::endpoint::{self, Endpoint};
use super::node::CommandError;
use super::scripts::Script;
use super::servers::ServerSet;
use super::settings::RedisSettings;
use crate::tier::{EntryId, TierError};

/// Dedicated connection for the keys of one slot, maintained on the runtime that it was started on.
pub struct DedicatedConnection {
    /// Configured servers, which have their users and passwords in common with those of `servers`.
    endpoints: Vec<Endpoint>,
    settings: RedisSettings,
    servers: ServerSet,
    id: EntryId,
    /// Task that follows the slot map of a cluster.
    _follows: Option<FollowTask>,
}

/// Task that is aborted on drop.
struct FollowTask(tokio::task::JoinHandle<()>);

/// Reasons why a command has no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoReply {
    /// The server is out of service; the command was not sent.
    #[error("the server is unreachable")]
    Down,
    /// Timeout; the command may have been executed.
    #[error("response timeout")]
    Late,
    /// The connection was lost; the command may have been executed.
    #[error("connection lost: {0}")]
    Broken(String),
    /// The server is out of memory; the command was not executed.
    #[error("the server is out of memory (maxmemory)")]
    Full,
    /// The server returned an error.
    #[error("server error: {0}")]
    Refused(String),
    /// The reply has an unexpected type.
    #[error("unexpected reply")]
    Unreadable,
}

impl DedicatedConnection {
    /// Connects to the server of the slot derived from `name`. An unreachable server is retried in the
    /// background.
    ///
    /// # Errors
    ///
    /// [`RedisStartError`] for invalid settings or a rejected connection.
    pub async fn start(settings: RedisSettings, name: &[u8]) -> Result<Self, RedisStartError> {
        let settings = settings.clamped();
        let endpoints = endpoint::read(&settings)?;
        Self::connect(endpoints, settings, name).await
    }

    /// Does the same as [`Self::start`] for three connections, which have one user and password in common.
    ///
    /// # Errors
    ///
    /// Those of [`Self::start`].
    pub async fn start_three(
        settings: RedisSettings,
        name: &[u8],
    ) -> Result<[Self; 3], RedisStartError> {
        let settings = settings.clamped();
        let endpoints = endpoint::read(&settings)?;
        let connect = || Self::connect(endpoints.clone(), settings.clone(), name);
        let all = tokio::try_join!(connect(), connect(), connect())?;
        Ok(all.into())
    }

    async fn connect(
        endpoints: Vec<Endpoint>,
        settings: RedisSettings,
        name: &[u8],
    ) -> Result<Self, RedisStartError> {
        let servers = ServerSet::start(endpoints.clone(), &settings).await?;
        let follows = match &servers {
            ServerSet::One(_) => None,
            ServerSet::Cluster(cluster) => {
                Some(tokio::spawn(std::sync::Arc::clone(cluster).follow()))
            }
        };
        Ok(Self {
            endpoints,
            settings,
            servers,
            id: EntryId::of(name),
            _follows: follows.map(FollowTask),
        })
    }

    /// Uses the user and password of these URLs for connections from now on, also for those that were started with
    /// this one.
    ///
    /// # Errors
    ///
    /// [`TierError`] if the URLs are those of other servers, or the server rejects the password.
    pub async fn change_login(&self, urls: Vec<String>) -> Result<(), TierError> {
        endpoint::change_login(&self.endpoints, &self.settings, urls).await
    }

    /// Builds a key in the slot of this connection.
    pub fn key(&self, part: &str) -> String {
        format!("{part}:{{{}}}", self.id)
    }

    /// Sends a command and waits for its reply, for at most `timeout`.
    ///
    /// # Errors
    ///
    /// [`NoReply`] if there is none.
    pub async fn request(&self, command: &Cmd, timeout: Duration) -> Result<Value, NoReply> {
        let deadline = Deadline::in_background(timeout);
        let reply = self.servers.send_following(self.id, command, deadline);
        reply.await.map_err(NoReply::of)
    }

    /// Calls a script, sending its text if the server does not know it, for example after a restart.
    ///
    /// # Errors
    ///
    /// [`NoReply`] if there is no reply in time.
    pub async fn call(
        &self,
        script: &Script,
        keys: &[String],
        arguments: &[impl AsRef<[u8]> + std::marker::Sync],
        timeout: Duration,
    ) -> Result<Value, NoReply> {
        let deadline = Deadline::in_background(timeout);
        let (servers, by_hash) = (&self.servers, script.by_hash(keys, arguments));
        let reply = match servers.send_following(self.id, &by_hash, deadline).await {
            Err(fault) if fault.is_unknown_script() => {
                let by_text = script.by_text(keys, arguments);
                servers.send_following(self.id, &by_text, deadline).await
            }
            reply => reply,
        };
        reply.map_err(NoReply::of)
    }

    /// Describes the servers that are out of service.
    pub fn degraded(&self) -> Vec<String> {
        self.servers.degraded()
    }
}

impl NoReply {
    fn of(fault: CommandError) -> Self {
        if fault.is_full() {
            return Self::Full;
        }
        match fault {
            CommandError::Down | CommandError::Full => Self::Down,
            CommandError::Late => Self::Late,
            CommandError::Server(error) if error.is_io_error() => {
                Self::Broken(address::one_line(&error))
            }
            CommandError::Server(error) if error.kind() == ErrorKind::Parse => Self::Unreadable,
            CommandError::Server(error) => Self::Refused(address::one_line(&error)),
        }
    }

    /// Returns whether the command may have been executed.
    pub const fn is_unknown(&self) -> bool {
        matches!(self, Self::Late | Self::Broken(_) | Self::Unreadable)
    }
}

impl Drop for FollowTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use redis::RedisError;

    use super::*;

    #[test]
    fn only_commands_reported_as_not_executed_are_retried() {
        let of = |kind| NoReply::of(CommandError::Server(RedisError::from((kind, "why"))));
        assert!(!of(ErrorKind::Extension).is_unknown());
        for kind in [ErrorKind::Io, ErrorKind::Parse] {
            assert!(of(kind).is_unknown(), "{kind:?}");
        }
        assert!(
            NoReply::of(CommandError::Late).is_unknown()
                && !NoReply::of(CommandError::Down).is_unknown()
        );
    }
}
