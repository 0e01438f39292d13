//! Stores, lookups, rejections and removals.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use microcache_store::redis::RedisSettings;
use microcache_store::{Content, Entry, FileBody, GetOutcome, PutOutcome, SharedTier, Tier};

use crate::server::Server;
use crate::{HOUR, body, entry, id, pair, put, settings, start, win};

#[tokio::test]
async fn records_are_found_by_another_process_until_removed() {
    let (server, one) = pair().await;
    let two = start(settings(&server.address())).await;
    assert_eq!(one.name(), "redis");
    assert_eq!(body(&two, id(1)).await, None);

    assert_eq!(put(&one, id(1), "body", None).await, PutOutcome::Stored);
    let Ok(GetOutcome::Entry(found)) = two.get_or_claim(id(1), HOUR).await else {
        panic!("not found");
    };
    assert_eq!(
        (&found.head[..], &found.body.bytes().unwrap()[..]),
        (&b"head"[..], &b"body"[..])
    );
    assert_eq!(body(&two, id(2)).await, None);

    two.remove(id(1)).await.unwrap();
    assert_eq!(body(&one, id(1)).await, None);
    assert_eq!(server.say::<u64>("DBSIZE"), 0);
}

#[tokio::test]
async fn any_bytes_come_back() {
    let (_server, redis) = pair().await;
    let large: Vec<u8> = (0..3_000_000u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let cases = [vec![], b"\0\r\n$-1\r\n".to_vec(), large];
    for (number, bytes) in (0..).zip(cases) {
        let body = Content::Bytes(bytes.clone().into());
        let head = Bytes::from(bytes);
        let entry = Entry {
            head: head.clone(),
            body,
        };
        assert_eq!(
            redis.put(id(number), entry, HOUR, None).await,
            Ok(PutOutcome::Stored)
        );
        let Ok(Some(found)) = redis.get(id(number)).await else {
            panic!("not found");
        };
        assert_eq!(found.head, head);
        assert_eq!(found.body.bytes(), Some(&head));
    }
}

#[tokio::test]
async fn the_server_forgets_a_record_in_its_time() {
    let (server, redis) = pair().await;
    let key = format!("mc1:{{{}}}", id(1));
    let forever = Duration::MAX;
    for (expires, at_most) in [(HOUR, HOUR), (forever, Duration::from_hours(366 * 24))] {
        let token = win(&redis, id(1)).await;
        for token in [Some(token), None] {
            let entry = entry("head", "body");
            let stored = redis.put(id(1), entry, expires, token).await;
            assert_eq!(stored, Ok(PutOutcome::Stored));
            let left = server.say::<u64>(&format!("PTTL {key}"));
            assert!(
                left > 0 && u128::from(left) <= at_most.as_millis(),
                "{left}"
            );
        }
        redis.remove(id(1)).await.unwrap();
    }
    let stored = redis
        .put(id(1), entry("head", "body"), Duration::ZERO, None)
        .await;
    assert_eq!(stored, Ok(PutOutcome::Stored));
}

#[tokio::test]
async fn records_that_are_too_large_are_refused() {
    let server = Server::start(&[]);
    let bounded = RedisSettings {
        max_object: 10,
        ..settings(&server.address())
    };
    let redis = start(bounded).await;
    assert_eq!(put(&redis, id(1), "123456", None).await, PutOutcome::Stored);
    assert_eq!(
        put(&redis, id(2), "1234567", None).await,
        PutOutcome::Refused
    );
    assert_eq!(redis.stats().refused, 1);
    assert_eq!(body(&redis, id(1)).await.as_deref(), Some("123456"));

    // A record of a process with a higher limit is left alone.
    let other = start(settings(&server.address())).await;
    assert_eq!(
        put(&other, id(3), "1234567", None).await,
        PutOutcome::Stored
    );
    assert!(redis.get(id(3)).await.is_err());
    assert!(redis.get_or_claim(id(3), HOUR).await.is_err());
    assert_eq!(body(&other, id(3)).await.as_deref(), Some("1234567"));
    assert_eq!(redis.stats().corrupt, 0);
}

#[tokio::test]
async fn a_body_in_a_file_is_refused() {
    let (_server, redis) = pair().await;
    let file = File::open("/dev/null").unwrap();
    let file = FileBody::new(file, 0, 0, Box::default()).unwrap();
    let entry = Entry {
        head: Bytes::new(),
        body: Content::File(Arc::new(file)),
    };
    assert_eq!(
        redis.put(id(1), entry, HOUR, None).await,
        Ok(PutOutcome::Refused)
    );
}

#[tokio::test]
async fn a_server_without_memory_refuses_and_stays_in_service() {
    let (server, redis) = pair().await;
    assert_eq!(put(&redis, id(1), "body", None).await, PutOutcome::Stored);
    let token = win(&redis, id(2)).await;
    let () = server.say("CONFIG SET maxmemory 1");
    for token in [None, Some(token)] {
        for _ in 0..5 {
            assert_eq!(put(&redis, id(2), "body", token).await, PutOutcome::Refused);
        }
    }
    assert_eq!(redis.stats().refused, 10);
    assert_eq!(body(&redis, id(1)).await.as_deref(), Some("body"));
}
