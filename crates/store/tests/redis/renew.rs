//! Renewal of heads.

use std::time::Duration;

use bytes::Bytes;
use microcache_store::redis::{Redis, RedisSettings};
use microcache_store::{Claim, EntryId, PutOutcome, SharedTier, Tier, Token};

use crate::server::Server;
use crate::{HOUR, body, entry, id, pair, put, settings, start};

const SOON: Duration = Duration::from_mins(1);

async fn renew(
    redis: &Redis,
    id: EntryId,
    from: &str,
    head: &str,
    token: Option<Token>,
) -> PutOutcome {
    let (from, head) = (
        Bytes::copy_from_slice(from.as_bytes()),
        Bytes::copy_from_slice(head.as_bytes()),
    );
    let renewed = redis.renew(id, from, head, HOUR, token).await;
    renewed.unwrap_or_else(|error| panic!("{error}"))
}

async fn head(redis: &Redis, id: EntryId) -> Option<Bytes> {
    redis
        .head(id)
        .await
        .unwrap_or_else(|error| panic!("{error}"))
}

async fn claim(redis: &Redis, id: EntryId) -> Token {
    match redis.claim(id, HOUR).await {
        Ok(Claim::Granted(token)) => token,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_body_stays_and_gets_another_head_for_longer() {
    let (server, redis) = pair().await;
    let large = "b".repeat(3_000_000);
    let stored = redis.put(id(1), entry("head 0", &large), SOON, None).await;
    assert_eq!(stored, Ok(PutOutcome::Stored));
    let long = "x".repeat(20_000);
    let heads = ["head 0", "head 1", "a longer head", &long, "short"];
    for (from, to) in heads.iter().zip(&heads[1..]) {
        let token = (*to == "head 1").then_some(claim(&redis, id(1)).await);
        assert_eq!(
            renew(&redis, id(1), from, to, token).await,
            PutOutcome::Stored
        );
        assert_eq!(head(&redis, id(1)).await.as_deref(), Some(to.as_bytes()));
        assert!(body(&redis, id(1)).await.as_ref() == Some(&large));
        let left = server.say::<u64>(&format!("PTTL mc1:{{{}}}", id(1)));
        assert!(u128::from(left) > SOON.as_millis(), "{left}");
        let claim = format!("mc1:{{{}}}:c", id(1));
        let () = server.say(&format!("DEL {claim}"));
    }
}

#[tokio::test]
async fn a_record_changed_meanwhile_is_not_renewed() {
    let (_server, redis) = pair().await;
    assert_eq!(head(&redis, id(1)).await, None);
    let superseded = PutOutcome::Superseded;
    assert_eq!(renew(&redis, id(1), "head", "new", None).await, superseded);
    put(&redis, id(1), "body", None).await;
    assert_eq!(renew(&redis, id(1), "hea", "new", None).await, superseded);
    assert_eq!(renew(&redis, id(1), "heads", "new", None).await, superseded);
    // The claim has expired.
    let token = claim(&redis, id(1)).await;
    let another = Some(Token(token.0 ^ 1));
    assert_eq!(
        renew(&redis, id(1), "head", "new", another).await,
        superseded
    );
    redis.remove(id(1)).await.unwrap();
    put(&redis, id(1), "body", None).await;
    let token = Some(token);
    assert_eq!(renew(&redis, id(1), "head", "new", token).await, superseded);
    assert_eq!(head(&redis, id(1)).await.as_deref(), Some(&b"head"[..]));
    assert_eq!(body(&redis, id(1)).await.as_deref(), Some("body"));
}

#[tokio::test]
async fn a_claim_ends_with_its_purpose() {
    let (server, redis) = pair().await;
    put(&redis, id(1), "body", None).await;
    let token = claim(&redis, id(1)).await;
    // A failed renewal leaves the claim for a store.
    assert_eq!(
        renew(&redis, id(1), "other", "new", Some(token)).await,
        PutOutcome::Superseded
    );
    assert_eq!(
        renew(&redis, id(1), "head", "new", Some(token)).await,
        PutOutcome::Stored
    );
    assert_eq!(server.say::<u64>("DBSIZE"), 1);
}

#[tokio::test]
async fn a_record_that_would_become_too_large_is_not_renewed() {
    let server = Server::start(&[]);
    let bounded = RedisSettings {
        max_object: 10,
        ..settings(&server.address())
    };
    let redis = start(bounded).await;
    put(&redis, id(1), "12345", None).await;
    assert_eq!(
        renew(&redis, id(1), "head", "longer", None).await,
        PutOutcome::Superseded
    );
    assert_eq!(
        renew(&redis, id(1), "head", "hello", None).await,
        PutOutcome::Stored
    );
    assert_eq!(body(&redis, id(1)).await.as_deref(), Some("12345"));
}
