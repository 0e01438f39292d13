//! Redis tier against real servers, each test with its own.

mod announcements;
mod claims;
mod cluster;
mod faults;
mod hostile;
mod log;
mod records;
mod renew;
mod sentinel;
mod server;
#[path = "../shared/log.rs"]
mod shared_log;
mod start;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use microcache_store::redis::{Redis, RedisSettings};
use microcache_store::{
    Claim, Content, Entry, EntryId, GetOutcome, PutOutcome, SharedTier, Tier, Token,
};
use microcache_testkit::eventually_async;
use tokio::runtime::Handle;

use crate::server::Server;

const HOUR: Duration = Duration::from_hours(1);

/// Settings for a machine busy with other tests.
fn settings(url: &str) -> RedisSettings {
    RedisSettings {
        urls: vec![url.to_owned()],
        deadline: Duration::from_secs(5),
        write_deadline: Duration::from_secs(5),
        connect_deadline: Duration::from_secs(5),
        retry_after: Duration::from_millis(50),
        ..RedisSettings::default()
    }
}

async fn start(settings: RedisSettings) -> Arc<Redis> {
    let started = Redis::start(settings, &Handle::current()).await;
    started.unwrap_or_else(|error| panic!("{error}"))
}

/// Server with a tier.
async fn pair() -> (Server, Arc<Redis>) {
    let server = Server::start(&[]);
    let redis = start(settings(&server.address())).await;
    (server, redis)
}

fn id(number: u32) -> EntryId {
    EntryId::of(&number.to_le_bytes())
}

fn entry(head: &str, body: &str) -> Entry {
    Entry {
        head: Bytes::copy_from_slice(head.as_bytes()),
        body: Content::Bytes(Bytes::copy_from_slice(body.as_bytes())),
    }
}

async fn put(redis: &Redis, id: EntryId, body: &str, token: Option<Token>) -> PutOutcome {
    let entry = entry("head", body);
    let put = redis.put(id, entry, HOUR, token).await;
    put.unwrap_or_else(|error| panic!("{error}"))
}

/// Body under an id, if there is one.
async fn body(redis: &Redis, id: EntryId) -> Option<String> {
    match redis.get(id).await {
        Ok(Some(entry)) => {
            let body = entry.body.bytes().expect("in memory").to_vec();
            Some(String::from_utf8(body).expect("text"))
        }
        Ok(None) => None,
        other => panic!("{other:?}"),
    }
}

/// Result of a claiming lookup of a missing record.
async fn ask(redis: &Redis, id: EntryId, hold: Duration) -> Claim {
    match redis.get_or_claim(id, hold).await {
        Ok(GetOutcome::Missing(claim)) => claim,
        other => panic!("{other:?}"),
    }
}

async fn win(redis: &Redis, id: EntryId) -> Token {
    match ask(redis, id, HOUR).await {
        Claim::Granted(token) => token,
        other => panic!("the claim was not granted: {other:?}"),
    }
}

async fn in_service(redis: &Redis) {
    eventually_async("all in service", async || redis.stats().degraded.is_empty()).await;
}
