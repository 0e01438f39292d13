//! Renewal of heads.

use std::time::Duration;

use bytes::Bytes;
use microcache_store::memcached::value::{ItemValue, Manifest};
use microcache_store::{Claim, EntryId, PutOutcome, SharedTier, Tier, Token};
use microcache_testkit::{TierServer, eventually_async};

use crate::pool::{HOLD, LONG, Pool, entry, found, id, is_missing, patient};

const SOON: Duration = Duration::from_mins(1);

fn large() -> Vec<u8> {
    (0..2_500_000_u32).map(|n| (n % 251) as u8).collect()
}

async fn renew(
    pool: &Pool,
    id: EntryId,
    from: &str,
    head: &str,
    token: Option<Token>,
) -> PutOutcome {
    let (from, head) = (
        Bytes::copy_from_slice(from.as_bytes()),
        Bytes::copy_from_slice(head.as_bytes()),
    );
    let renewed = pool.renew(id, from, head, LONG, token).await;
    renewed.expect("a pool that works")
}

async fn claim(pool: &Pool, id: EntryId) -> Token {
    match pool.claim(id, HOLD).await {
        Ok(Claim::Granted(token)) => token,
        other => panic!("{other:?}"),
    }
}

/// Items of a record in pieces.
fn items(node: &TierServer, id: EntryId) -> Vec<String> {
    let record = format!("mc1:{id}");
    let value = ItemValue::decode(&node.value(&record).into(), u64::MAX);
    let Some(ItemValue::Manifest(Manifest {
        generation, sums, ..
    })) = value
    else {
        panic!("not in pieces");
    };
    let piece = |number| format!("{record}:{generation:032x}:{number}");
    let mut items: Vec<String> = (0..sums.len()).map(piece).collect();
    items.push(record);
    items
}

/// Remaining lifetime of an item, in seconds.
fn left(node: &TierServer, item: &str) -> u64 {
    let answer = String::from_utf8(node.command(&format!("mg {item} t\r\n"))).expect("text");
    let seconds = answer.trim_end().strip_prefix("HD t");
    seconds.expect("it is there").parse().expect("a number")
}

#[tokio::test]
async fn a_body_in_pieces_stays_and_gets_another_head_for_longer() {
    let node = TierServer::memcached();
    let pool = Pool::new([&node], patient());
    let (id, body) = (id(1), large());
    let stored = pool.put(id, entry(b"head 0", &body), SOON, None).await;
    assert_eq!(stored, Ok(PutOutcome::Stored));
    let before = items(&node, id);
    for (from, to) in [("head 0", "head 1"), ("head 1", "a longer head")] {
        let token = claim(&pool, id).await;
        assert_eq!(
            renew(&pool, id, from, to, Some(token)).await,
            PutOutcome::Stored
        );
        let lock = format!("mc1:{id}:r");
        eventually_async("the lock is gone", async || !node.has(&lock)).await;
        assert_eq!(pool.head(id).await, Ok(Some(Bytes::from(to))));
        let expected = Some((to.as_bytes().to_vec(), body.clone()));
        assert!(found(pool.get(id).await) == expected);
        assert_eq!(items(&node, id), before);
        for item in &before {
            assert!(left(&node, item) > SOON.as_secs() + 60, "{item}");
        }
    }
}

#[tokio::test]
async fn a_small_record_has_another_head() {
    let node = TierServer::memcached();
    let pool = Pool::new([&node], patient());
    for body in [&b""[..], b"body"] {
        pool.put(id(1), entry(b"head", body), SOON, None)
            .await
            .unwrap();
        assert_eq!(
            renew(&pool, id(1), "head", "new", None).await,
            PutOutcome::Stored
        );
        let expected = Some((b"new".to_vec(), body.to_vec()));
        assert_eq!(found(pool.get(id(1)).await), expected);
        assert!(left(&node, &format!("mc1:{}", id(1))) > SOON.as_secs() + 60);
    }
}

#[tokio::test]
async fn a_record_changed_meanwhile_is_not_renewed() {
    let node = TierServer::memcached();
    let pool = Pool::new([&node], patient());
    let superseded = PutOutcome::Superseded;
    for body in [b"body".to_vec(), large()] {
        assert_eq!(renew(&pool, id(1), "head", "new", None).await, superseded);
        assert!(is_missing(&pool.get(id(1)).await));
        let old = || entry(b"head", &body);
        pool.put(id(1), old(), LONG, None).await.unwrap();
        assert_eq!(renew(&pool, id(1), "other", "new", None).await, superseded);
        // An equal record stored again is not the claimed one.
        let token = Some(claim(&pool, id(1)).await);
        pool.put(id(1), old(), LONG, None).await.unwrap();
        assert_eq!(renew(&pool, id(1), "head", "new", token).await, superseded);
        let expected = Some((b"head".to_vec(), body.clone()));
        assert!(found(pool.get(id(1)).await) == expected);
        pool.remove(id(1)).await.unwrap();
        assert_eq!(renew(&pool, id(1), "head", "new", token).await, superseded);
        assert!(is_missing(&pool.get(id(1)).await));
    }
}

#[tokio::test]
async fn a_body_with_a_missing_piece_is_stored_again() {
    let node = TierServer::memcached();
    let pool = Pool::new([&node], patient());
    let (id, body) = (id(1), large());
    pool.put(id, entry(b"head", &body), LONG, None)
        .await
        .unwrap();
    let token = claim(&pool, id).await;
    node.command(&format!("md {}\r\n", items(&node, id)[1]));
    assert_eq!(
        renew(&pool, id, "head", "new", Some(token)).await,
        PutOutcome::Superseded
    );
    let stored = pool.put(id, entry(b"new", &body), LONG, Some(token)).await;
    assert_eq!(
        stored,
        Ok(PutOutcome::Stored),
        "the claim was left for that"
    );
    assert!(found(pool.get(id).await) == Some((b"new".to_vec(), body)));
}
