//! Announcements of new purges and of the ends of claims.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use microcache_store::redis::{Redis, RedisSettings};
use microcache_store::{Claim, EntryId, SharedTier, Tier};
use microcache_testkit::{WAIT_TIMEOUT, eventually_async};
use tokio::time::timeout;

use crate::faults::link;
use crate::server::Server;
use crate::shared_log::{BEGINNING, append, read, texts};
use crate::{HOUR, ask, id, pair, put, settings, start, win};

pub(crate) async fn is_subscribed(redis: &Redis) {
    eventually_async("subscribed", async || redis.log_news(0).is_some()).await;
}

/// Waits for an announcement of new records.
pub(crate) async fn log_news(redis: &Redis) {
    let news = redis.log_news(0).expect("a subscription");
    timeout(WAIT_TIMEOUT, news).await.expect("an announcement");
}

/// Waits for the end of a claim that was refused.
async fn claim_end(redis: &Redis, id: EntryId) {
    let end = redis.claim_end(id).expect("a subscription");
    timeout(WAIT_TIMEOUT, end).await.expect("an announcement");
}

/// Refuses a claim held by `one` to `two`, ends it, and returns whether the end is announced in time.
pub(crate) async fn is_end_announced(
    (one, two): (&Redis, &Redis),
    id: EntryId,
    within: Duration,
) -> bool {
    let token = win(one, id).await;
    assert_eq!(ask(two, id, HOUR).await, Claim::HeldElsewhere);
    let mut end = two.claim_end(id).expect("a subscription");
    assert!(timeout(Duration::ZERO, &mut end).await.is_err());
    put(one, id, "body", Some(token)).await;
    timeout(within, end).await.is_ok()
}

#[tokio::test]
async fn new_records_are_announced() {
    let (server, one) = pair().await;
    let two = start(settings(&server.address())).await;
    is_subscribed(&two).await;
    // With each subscription once, since earlier announcements may have been missed.
    log_news(&two).await;
    append(&*one, &["a"]).await;
    log_news(&two).await;
    assert_eq!(texts(&read(&*two, 0).await), ["beginning", "a"]);
}

#[tokio::test]
async fn each_end_of_a_claim_is_announced() {
    let (server, one) = pair().await;
    let two = start(settings(&server.address())).await;
    is_subscribed(&two).await;
    assert!(is_end_announced((&one, &two), id(1), WAIT_TIMEOUT).await);
    // Nothing is left of the wait.
    assert_eq!(server.say::<u64>("DBSIZE"), 1);
    let token = win(&one, id(2)).await;
    assert_eq!(ask(&two, id(2), HOUR).await, Claim::HeldElsewhere);
    one.release(id(2), token).await.unwrap();
    claim_end(&two, id(2)).await;
    let Ok(Claim::Granted(token)) = one.claim(id(1), HOUR).await else {
        panic!("it was free");
    };
    assert_eq!(two.claim(id(1), HOUR).await, Ok(Claim::HeldElsewhere));
    let (from, head) = (Bytes::from("head"), Bytes::from("next"));
    one.renew(id(1), from, head, HOUR, Some(token))
        .await
        .unwrap();
    claim_end(&two, id(1)).await;
    // Without a claim that is awaited, the caller looks at once.
    claim_end(&two, id(3)).await;
}

#[tokio::test]
async fn a_foreign_value_in_place_of_the_channels_disturbs_nothing() {
    let (server, one) = pair().await;
    let two = start(settings(&server.address())).await;
    is_subscribed(&two).await;
    for foreign in ["SET K text", "SADD K x mc1:0", "RPUSH K x"] {
        let key = format!("mc1:{{{}}}:w", id(1));
        let () = server.say(&foreign.replace('K', &key));
        let token = win(&one, id(1)).await;
        assert_eq!(ask(&two, id(1), HOUR).await, Claim::HeldElsewhere);
        put(&one, id(1), "body", Some(token)).await;
        assert_eq!(server.say::<u64>("DBSIZE"), 1, "{foreign}");
        one.remove(id(1)).await.unwrap();
    }
}

#[tokio::test]
async fn the_log_of_a_server_that_is_back_is_read_at_once() {
    let mut server = Server::start(&[]);
    let redis = start(RedisSettings {
        // Only the return of the server is a reason to look again.
        ping_every: HOUR,
        ..settings(&server.address())
    })
    .await;
    is_subscribed(&redis).await;
    server.kill();
    eventually_async("noticed", async || {
        read_fails(&redis).await && redis.log_news(0).is_none()
    })
    .await;
    server.restart();
    let is_read = async {
        loop {
            redis.log_wake(0).expect("it notices that").await;
            if !read_fails(&redis).await {
                break;
            }
        }
    };
    timeout(WAIT_TIMEOUT, is_read).await.expect("it is waked");
    is_subscribed(&redis).await;
}

async fn read_fails(redis: &Redis) -> bool {
    redis.read_log(0, 0, BEGINNING).await.is_err()
}

#[tokio::test]
async fn a_link_that_swallows_packets_is_noticed() {
    let server = Server::start(&[]);
    let (port, swallows) = link(server.port(), usize::MAX);
    let redis = start(RedisSettings {
        connect_deadline: Duration::from_millis(200),
        ..settings(&format!("redis://127.0.0.1:{port}"))
    })
    .await;
    is_subscribed(&redis).await;
    swallows.store(true, Ordering::SeqCst);
    eventually_async("noticed", async || redis.log_news(0).is_none()).await;
    swallows.store(false, Ordering::SeqCst);
    is_subscribed(&redis).await;
}
