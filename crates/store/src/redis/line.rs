//! A server for something else than responses: commands about keys that all lie in one place, in the order in which they are sent.

use redis::{Cmd, ErrorKind, Value};
use tokio::time::{Duration, Instant};

use super::address::{self, RedisStartError};
use super::node::Fault;
use super::scripts::Script;
use super::servers::Servers;
use super::settings::RedisSettings;
use crate::tier::EntryId;

/// Connections to where some keys are. They are kept up on the runtime that they were started on.
pub struct Line {
    servers: Servers,
    id: EntryId,
    /// In a cluster, somebody looks where they are.
    _follows: Option<Follows>,
}

/// Ends with the line.
struct Follows(tokio::task::JoinHandle<()>);

/// Why there is no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoReply {
    /// Nothing was asked.
    #[error("it cannot be reached")]
    Down,
    /// It may have been done all the same.
    #[error("it does not answer in time")]
    Late,
    /// The connection broke. It may have been done all the same.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// It has no memory for it, and nothing was done.
    #[error("it has no memory left (maxmemory)")]
    Full,
    /// It was refused.
    #[error("it says: {0}")]
    Refused(String),
    /// The reply is something else than was asked for.
    #[error("its reply cannot be read")]
    Unreadable,
}

impl Line {
    /// Connects, for keys of this name. A server that cannot be reached is tried again until it is there.
    pub async fn start(settings: RedisSettings, name: &[u8]) -> Result<Self, RedisStartError> {
        let settings = settings.within_reason();
        let servers = Servers::start(address::read(&settings)?, &settings).await?;
        let follows = match &servers {
            Servers::One(_) => None,
            Servers::Cluster(cluster) => {
                Some(tokio::spawn(std::sync::Arc::clone(cluster).follow()))
            }
        };
        Ok(Self {
            servers,
            id: EntryId::of(name),
            _follows: follows.map(Follows),
        })
    }

    /// A key, which lies where the others are.
    pub fn key(&self, part: &str) -> String {
        format!("{part}:{{{}}}", self.id)
    }

    /// Sends a command, and waits for its reply so long.
    pub async fn ask(&self, command: &Cmd, patience: Duration) -> Result<Value, NoReply> {
        let reply = self.send(command, Instant::now() + patience).await;
        reply.map_err(NoReply::of)
    }

    /// Calls a script; the server may have forgotten it, after a restart for example.
    pub async fn call(
        &self,
        script: &Script,
        keys: &[String],
        arguments: &[impl AsRef<[u8]> + std::marker::Sync],
        patience: Duration,
    ) -> Result<Value, NoReply> {
        let deadline = Instant::now() + patience;
        let reply = match self.send(&script.by_hash(keys, arguments), deadline).await {
            Err(fault) if fault.is_unknown_script() => {
                self.send(&script.by_text(keys, arguments), deadline).await
            }
            reply => reply,
        };
        reply.map_err(NoReply::of)
    }

    /// While a cluster moves the keys, they may be where they are moved to already.
    async fn send(&self, command: &Cmd, deadline: Instant) -> Result<Value, Fault> {
        let reply = self.servers.send(self.id, command, deadline).await;
        if let Err(fault) = &reply
            && let Some(node) = self.servers.moved_to(fault)
        {
            return node.send_asking(command, deadline).await;
        }
        reply
    }

    /// What is not in service, in words.
    pub fn degraded(&self) -> Vec<String> {
        self.servers.degraded()
    }
}

impl NoReply {
    fn of(fault: Fault) -> Self {
        if fault.is_full() {
            return Self::Full;
        }
        match fault {
            Fault::Down | Fault::Full => Self::Down,
            Fault::Late => Self::Late,
            Fault::Said(error) if error.is_io_error() => Self::Broken(address::one_line(&error)),
            Fault::Said(error) if error.kind() == ErrorKind::Parse => Self::Unreadable,
            Fault::Said(error) => Self::Refused(address::one_line(&error)),
        }
    }

    /// Whether it may have been done all the same.
    pub const fn is_unknown(&self) -> bool {
        matches!(self, Self::Late | Self::Broken(_) | Self::Unreadable)
    }
}

impl Drop for Follows {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use redis::RedisError;

    use super::*;

    #[test]
    fn only_what_the_server_says_was_not_done() {
        let of = |kind| NoReply::of(Fault::Said(RedisError::from((kind, "why"))));
        assert!(!of(ErrorKind::Extension).is_unknown());
        for kind in [ErrorKind::Io, ErrorKind::Parse] {
            assert!(of(kind).is_unknown(), "{kind:?}");
        }
        assert!(NoReply::of(Fault::Late).is_unknown() && !NoReply::of(Fault::Down).is_unknown());
    }
}
