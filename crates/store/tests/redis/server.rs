//! Redis server, with commands that bypass the tier.

use std::ops::{Deref, DerefMut};

use microcache_testkit::{TierKind, TierServer, eventually};
use redis::{Cmd, FromRedisValue, RedisResult};

pub(crate) struct Server(TierServer);

impl Server {
    /// Starts a server without persistence, with further arguments.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self(TierServer::start_with(TierKind::Redis, arguments))
    }

    /// Starts a member of a cluster, which answers although other members are missing.
    pub(crate) fn cluster_member() -> Self {
        let alone = ["--cluster-require-full-coverage", "no"];
        Self(TierServer::cluster_member(&alone))
    }

    /// Starts a sentinel for this master, called `mymaster`, with further settings.
    pub(crate) fn sentinel(master: &Self, settings: &[&str]) -> Self {
        Self(TierServer::sentinel(master.port(), settings))
    }

    pub(crate) fn start_at(port: u16) -> Self {
        Self(TierServer::start_at(port, TierKind::Redis, &[]))
    }

    /// Sends a command of words and returns its reply.
    pub(crate) fn say<T: FromRedisValue>(&self, command: &str) -> T {
        let mut cmd = Cmd::new();
        for word in command.split(' ') {
            cmd.arg(word);
        }
        self.send(&cmd)
    }

    pub(crate) fn send<T: FromRedisValue>(&self, command: &Cmd) -> T {
        let reply = self.try_send(command);
        reply.unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn try_send<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        let client = redis::Client::open(self.address()).expect("an address");
        // A server that changes its role closes connections.
        let mut connection = eventually("a connection", || client.get_connection().ok());
        command.query(&mut connection)
    }
}

impl Deref for Server {
    type Target = TierServer;

    fn deref(&self) -> &TierServer {
        &self.0
    }
}

impl DerefMut for Server {
    fn deref_mut(&mut self) -> &mut TierServer {
        &mut self.0
    }
}
