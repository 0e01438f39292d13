//! Servers that die, stop and come back, and what is owed to them meanwhile.

use std::sync::Arc;
use std::time::Duration;

use microcache_store::redis::{Redis, RedisSettings};
use microcache_store::{Claim, Put, Tier, TierError};

use crate::server::Server;
use crate::{HOUR, body, entry, eventually, id, in_service, pair, put, settings, start, win};

/// For a server that will not answer, and only for that: a machine may be slow, too.
async fn impatient(server: &Server) -> Arc<Redis> {
    let settings = RedisSettings {
        deadline: Duration::from_millis(50),
        write_deadline: Duration::from_millis(50),
        max_removals: 2,
        ..settings(&server.url())
    };
    let redis = start(settings).await;
    in_service(&redis).await;
    redis
}

#[tokio::test]
async fn a_server_that_is_killed_and_comes_back() {
    let (mut server, redis) = pair().await;
    put(&redis, id(1), "body", None).await;
    server.kill();
    let lost = redis.get(id(1), None).await.unwrap_err();
    assert!(
        matches!(lost, TierError::Failed(_) | TierError::Down),
        "{lost}"
    );
    assert_eq!(
        redis.get(id(1), Some(HOUR)).await.unwrap_err(),
        TierError::Down
    );
    assert_eq!(redis.claim(id(1), HOUR).await, Err(TierError::Down));
    assert_eq!(redis.stats().degraded.len(), 1);
    server.restart();
    in_service(&redis).await;
    // It has forgotten everything, scripts included.
    let token = win(&redis, id(1)).await;
    assert_eq!(put(&redis, id(1), "body", Some(token)).await, Put::Stored);
}

#[tokio::test]
async fn a_server_that_stops_costs_some_deadlines_and_then_nothing() {
    let (server, patient) = pair().await;
    assert_eq!(put(&patient, id(1), "body", None).await, Put::Stored);
    let redis = impatient(&server).await;
    server.freeze();
    for _ in 0..3 {
        let late = redis.get(id(1), Some(HOUR)).await.unwrap_err();
        assert_eq!(late, TierError::Timeout);
    }
    let left_alone = redis.get(id(1), Some(HOUR)).await.unwrap_err();
    assert_eq!(left_alone, TierError::Down);
    server.thaw();
    in_service(&redis).await;
    eventually("found", async || redis.get(id(1), None).await.is_ok()).await;
}

#[tokio::test]
async fn a_server_nobody_uses_is_watched() {
    let mut server = Server::start(&[]);
    let ping_every = Duration::from_millis(20);
    let redis = start(RedisSettings {
        ping_every,
        ..settings(&server.url())
    })
    .await;
    server.kill();
    eventually("out of service", async || {
        !redis.stats().degraded.is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_removal_is_delivered_when_the_server_is_back() {
    let (server, patient) = pair().await;
    assert_eq!(put(&patient, id(1), "old", None).await, Put::Stored);
    assert_eq!(put(&patient, id(2), "other", None).await, Put::Stored);
    let redis = impatient(&server).await;
    server.freeze();
    assert!(redis.remove(id(1)).await.is_err());
    let owed = redis.get(id(1), None).await.unwrap_err();
    assert_eq!(owed, TierError::Down);
    let new = redis.put(id(1), entry("head", "new"), HOUR, None).await;
    assert_eq!(new, Err(TierError::Down));
    server.thaw();
    in_service(&redis).await;
    assert_eq!(body(&patient, id(1)).await, None);
    assert_eq!(body(&patient, id(2)).await.as_deref(), Some("other"));
    assert_eq!(server.say::<u64>("DBSIZE"), 1);
}

#[tokio::test]
async fn more_removals_than_are_remembered_remove_everything_of_ours() {
    let (server, patient) = pair().await;
    for number in 0..50 {
        assert_eq!(put(&patient, id(number), "old", None).await, Put::Stored);
    }
    let () = server.say("SET theirs value");
    let redis = impatient(&server).await;
    server.freeze();
    for number in 0..3 {
        assert!(redis.remove(id(number)).await.is_err());
    }
    let all_owed = redis.get(id(49), None).await.unwrap_err();
    assert_eq!(all_owed, TierError::Down);
    server.thaw();
    in_service(&redis).await;
    assert_eq!(body(&patient, id(49)).await, None);
    assert_eq!(server.say::<Vec<String>>("KEYS *"), ["theirs"]);
}

#[tokio::test]
async fn a_claim_whose_answer_comes_too_late_is_given_back() {
    let (server, patient) = pair().await;
    let redis = impatient(&server).await;
    server.freeze();
    assert_eq!(redis.claim(id(1), HOUR).await, Err(TierError::Timeout));
    server.thaw();
    eventually("somebody else has the claim", async || {
        matches!(patient.claim(id(1), HOUR).await, Ok(Claim::Mine(_)))
    })
    .await;
}

#[tokio::test]
async fn one_operation_more_than_the_bound_fails_at_once() {
    let server = Server::start(&[]);
    let redis = start(RedisSettings {
        max_in_flight: 1,
        ..settings(&server.url())
    })
    .await;
    server.freeze();
    let (one, two) = (redis.get(id(1), None), redis.get(id(2), None));
    tokio::pin!(one);
    // Polled once, which takes the only place.
    assert!(is_pending(&mut one).await);
    let expected = TierError::Failed("too many operations under way".to_owned());
    assert_eq!(two.await.unwrap_err(), expected);
    server.thaw();
    assert!(one.await.is_ok());
    assert_eq!(body(&redis, id(2)).await, None);
}

async fn is_pending(future: &mut (impl Future + Unpin)) -> bool {
    std::future::poll_fn(|context| {
        let polled = std::pin::Pin::new(&mut *future).poll(context);
        std::task::Poll::Ready(polled.is_pending())
    })
    .await
}
