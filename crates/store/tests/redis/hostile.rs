//! Foreign data under the keys of records, and servers that violate the protocol.

use std::time::Duration;

use microcache_store::redis::RedisSettings;
use microcache_store::{Entry, GetOutcome, PutOutcome, SharedTier, Tier, TierError};
use redis::Cmd;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::server::Server;
use crate::{HOUR, body, id, in_service, pair, put, settings, start, win};

/// Result of a lookup, with or without a claim.
async fn look(
    redis: &microcache_store::redis::Redis,
    is_claimed: bool,
) -> Result<Option<Entry>, TierError> {
    if !is_claimed {
        return redis.get(id(1)).await;
    }
    Ok(match redis.get_or_claim(id(1), HOUR).await? {
        GetOutcome::Entry(entry) => Some(entry),
        GetOutcome::Missing(_) => None,
    })
}

/// Damages the keys of a record and expects that it is reported as corrupt and removed.
async fn check(server: &Server, redis: &microcache_store::redis::Redis, setup: &Cmd) {
    let before = redis.stats().corrupt;
    for is_claimed in [false, true] {
        let _: redis::Value = server.send(setup);
        match look(redis, is_claimed).await {
            Err(TierError::Corrupt(_)) => {}
            other => panic!("{other:?}"),
        }
        in_service(redis).await;
        assert_eq!(server.say::<u64>("DBSIZE"), 0);
    }
    assert_eq!(redis.stats().corrupt, before + 2);
    assert_eq!(put(redis, id(1), "good", None).await, PutOutcome::Stored);
    assert_eq!(body(redis, id(1)).await.as_deref(), Some("good"));
    redis.remove(id(1)).await.unwrap();
}

fn key() -> String {
    format!("mc1:{{{}}}", id(1))
}

#[tokio::test]
async fn values_of_other_types() {
    let (server, redis) = pair().await;
    for (command, rest) in [
        ("LPUSH", &["a"][..]),
        ("HSET", &["a", "b"]),
        ("SADD", &["a"]),
        ("ZADD", &["1", "a"]),
        ("XADD", &["*", "a", "b"]),
    ] {
        check(&server, &redis, redis::cmd(command).arg(key()).arg(rest)).await;
    }
}

#[tokio::test]
async fn values_that_are_no_records() {
    let (server, redis) = pair().await;
    for value in [
        &b"x"[..],
        b"abc",
        b"\xff\xff\xff\xff",
        b"\x05\0\0\0head",
        b"\x01\0\0\x80body",
    ] {
        check(&server, &redis, redis::cmd("SET").arg(key()).arg(value)).await;
    }
}

#[tokio::test]
async fn an_empty_value_is_a_miss_that_can_be_claimed() {
    let (server, redis) = pair().await;
    let () = server.send(redis::cmd("SET").arg(key()).arg(""));
    assert_eq!(body(&redis, id(1)).await, None);
    let token = win(&redis, id(1)).await;
    assert_eq!(
        put(&redis, id(1), "good", Some(token)).await,
        PutOutcome::Stored
    );
    assert_eq!(body(&redis, id(1)).await.as_deref(), Some("good"));
}

#[tokio::test]
async fn a_claim_of_another_type() {
    let (server, redis) = pair().await;
    let token = win(&redis, id(1)).await;
    let claim = format!("{}:c", key());
    let () = server.send(redis::cmd("DEL").arg(&claim));
    let () = server.send(redis::cmd("LPUSH").arg(&claim).arg("a"));
    let stored = redis
        .put(id(1), crate::entry("head", "body"), HOUR, Some(token))
        .await;
    assert!(matches!(stored, Err(TierError::Corrupt(_))), "{stored:?}");
    in_service(&redis).await;
    win(&redis, id(1)).await;
}

/// Server that answers pings, and everything else with `reply`.
async fn liar(reply: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut bytes = [0; 4096];
                while let Ok(read @ 1..) = stream.read(&mut bytes).await {
                    let ping = bytes[..read].ends_with(b"PING\r\n");
                    let reply = if ping { b"+PONG\r\n" } else { reply };
                    if stream.write_all(reply).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    url
}

#[tokio::test]
async fn servers_that_lie() {
    for reply in [
        &b"*1000000000\r\n"[..],
        b"*9223372036854775807\r\n",
        b"$99999999999\r\nabc",
        b"$-7\r\n",
        b":1\r\n",
        b"+OK\r\n",
        b"*1\r\n*1\r\n*1\r\n:1\r\n",
        b">2\r\n$7\r\nmessage\r\n:1\r\n",
        b"\0\0\0",
        b"-\r\n",
        b"-WRONG \x1b[2J\r\n",
        b"-MOVED 1 nowhere:1\r\n",
    ] {
        let settings = RedisSettings {
            deadline: Duration::from_millis(50),
            write_deadline: Duration::from_millis(50),
            ..settings(&liar(reply).await)
        };
        let redis = start(settings).await;
        for is_claimed in [false, true] {
            match look(&redis, is_claimed).await {
                Err(error) => assert!(!error.to_string().contains(char::is_control)),
                Ok(None) => {}
                Ok(Some(entry)) => panic!("{entry:?}"),
            }
        }
        let _ = redis
            .put(id(1), crate::entry("head", "body"), HOUR, None)
            .await;
        let _ = redis.remove(id(1)).await;
    }
}
