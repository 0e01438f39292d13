//! The Lua scripts of the hub, and their calls.

use std::sync::LazyLock;

use microcache_store::random;
use microcache_store::redis::{NoReply, Script, from_redis_value};

use super::foreign_key::explained;
use crate::changes::version::DocumentVersion;
use crate::fleet::connection::{FleetConnection, REPLY_TIMEOUT, transfer_time};

/// Publishes an update.
pub(super) static PUBLISH: LazyLock<Script> = LazyLock::new(|| script(include_str!("publish.lua")));
/// Records subscriptions and a sign of life of a node.
pub(super) static PRESENCE: LazyLock<Script> =
    LazyLock::new(|| script(include_str!("presence.lua")));
/// Reads the ids of the newest entries.
pub(super) static NEWEST: LazyLock<Script> = LazyLock::new(|| script(include_str!("newest.lua")));

/// Calls a script of the hub, which replies with words.
pub(super) async fn call(
    connection: &FleetConnection,
    script: &Script,
    mut arguments: Vec<Vec<u8>>,
) -> Result<Vec<String>, NoReply> {
    let jump = random::number() % 1000 + 1;
    arguments.insert(0, jump.to_string().into_bytes());
    let bytes: usize = arguments.iter().map(Vec::len).sum();
    let time_limit = REPLY_TIMEOUT + transfer_time(bytes as u64);
    let (line, keys) = (&connection.line, &connection.hub);
    match line.call(script, keys, &arguments, time_limit).await {
        Ok(reply) => from_redis_value(reply).map_err(|_| NoReply::Unreadable),
        Err(why) => Err(explained(connection, why).await),
    }
}

/// Returns a number as the state of a node counts them. Streams have no epochs: a reader notices missing entries.
pub(super) const fn version(number: u64) -> DocumentVersion {
    DocumentVersion { epoch: 0, number }
}

fn script(part: &str) -> Script {
    Script::new(format!("{}\n{part}", include_str!("begin.lua")))
}
