//! Masters that sentinels know.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use microcache_store::redis::{Redis, RedisSettings};
use microcache_store::{EntryId, PutOutcome, Tier};
use microcache_testkit::{eventually_async, free_port};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::announcements::is_subscribed;
use crate::server::Server;
use crate::shared_log::{append, last, read, texts};
use crate::start::refuse;
use crate::{HOUR, body, entry, id, in_service, put, settings, start};

/// Starts a sentinel that names the server at this port of loopback; with port zero it knows no master. Its password
/// is `other`, if it is given one.
async fn sentinel(named: u16) -> (u16, Arc<AtomicU16>) {
    let named = Arc::new(AtomicU16::new(named));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let shared = Arc::clone(&named);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, Arc::clone(&shared)));
        }
    });
    (port, named)
}

async fn answer(mut stream: TcpStream, named: Arc<AtomicU16>) {
    let mut piece = [0; 1024];
    while let Ok(length @ 1..) = stream.read(&mut piece).await {
        let asked = String::from_utf8_lossy(&piece[..length]).into_owned();
        let mut reply = String::new();
        if asked.contains("AUTH") {
            let is_right = asked.contains("other");
            reply += if is_right {
                "+OK\r\n"
            } else {
                "-WRONGPASS invalid\r\n"
            };
        }
        if asked.contains("PING") {
            reply += "+PONG\r\n";
        }
        if asked.contains("SENTINEL") {
            let port = named.load(Ordering::SeqCst).to_string();
            let address = match &*port {
                "0" => "*-1\r\n".to_owned(),
                _ => format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len()),
            };
            reply.push_str(&address);
        }
        if stream.write_all(reply.as_bytes()).await.is_err() {
            return;
        }
    }
}

fn url(sentinels: &[u16]) -> String {
    let sentinels: Vec<_> = sentinels
        .iter()
        .map(|port| format!("127.0.0.1:{port}"))
        .collect();
    format!("redis-sentinel://{}/mymaster", sentinels.join(","))
}

/// Waits until this server has got a record from the tier.
async fn until_stored_on(server: &Server, redis: &Redis, id: EntryId) {
    let key = format!("mc1:{{{id}}}");
    eventually_async("stored on the present master", async || {
        let stored = redis.put(id, entry("head", "body"), HOUR, None).await;
        stored == Ok(PutOutcome::Stored) && server.say::<bool>(&format!("EXISTS {key}"))
    })
    .await;
}

#[tokio::test]
async fn the_master_is_asked_for_again_when_it_becomes_a_replica() {
    let (one, two) = (Server::start(&[]), Server::start(&[]));
    let (port, named) = sentinel(one.port()).await;
    // The first of them does not run.
    let redis = start(settings(&url(&[free_port(), port]))).await;
    assert_eq!(redis.stats().degraded, Vec::<String>::new());
    is_subscribed(&redis).await;
    until_stored_on(&one, &redis, id(1)).await;
    named.store(two.port(), Ordering::SeqCst);
    let () = one.say(&format!("REPLICAOF 127.0.0.1 {}", two.port()));
    until_stored_on(&two, &redis, id(2)).await;
    in_service(&redis).await;
}

#[tokio::test]
async fn an_old_master_that_goes_on_is_left() {
    let (one, two) = (Server::start(&[]), Server::start(&[]));
    let (port, named) = sentinel(one.port()).await;
    let redis = start(RedisSettings {
        ping_every: Duration::from_millis(50),
        ..settings(&url(&[port]))
    })
    .await;
    until_stored_on(&one, &redis, id(1)).await;
    named.store(two.port(), Ordering::SeqCst);
    until_stored_on(&two, &redis, id(2)).await;
}

#[tokio::test]
async fn wrong_answers_are_reported_with_the_remedy() {
    let (nowhere, server) = (free_port(), Server::start(&["--requirepass", "secret"]));
    let (port, named) = sentinel(nowhere).await;
    let with = |login: &str, more: &str| {
        let url = url(&[port]).replace("://", &format!("://{login}"));
        settings(&format!("{url}{more}"))
    };
    let redis = start(with("", "")).await;
    let degraded = redis.stats().degraded.join("\n");
    for part in [
        &*format!("127.0.0.1:{port}/mymaster: the master 127.0.0.1:{nowhere}: "),
        &format!("sentinel 127.0.0.1:{port} gives an address that does not lead there"),
        "replica-announce-ip",
    ] {
        assert!(degraded.contains(part), "{degraded}");
    }
    named.store(0, Ordering::SeqCst);
    refuse(with("", ""), "no master is called mymaster").await;
    named.store(server.port(), Ordering::SeqCst);
    refuse(with("", ""), "password required").await;
    refuse(with(":secret2@", ""), "invalid username or password").await;
    let wrong = with(":secret@", "?sentinel_password=secret");
    refuse(
        wrong,
        &format!("sentinel 127.0.0.1:{port}: invalid username or password"),
    )
    .await;
    let redis = start(with(":secret@", "?sentinel_user=s&sentinel_password=other")).await;
    put(&redis, id(1), "body", None).await;
    drop(redis);
    let client =
        redis::Client::open(format!("redis://:secret@127.0.0.1:{}", server.port())).unwrap();
    let mut connection = client.get_connection().unwrap();
    let mut follow = redis::cmd("REPLICAOF");
    let () = follow
        .arg("127.0.0.1")
        .arg(nowhere)
        .query(&mut connection)
        .unwrap();
    let redis = start(with(":secret@", "?sentinel_password=other")).await;
    let degraded = redis.stats().degraded.join("\n");
    assert!(
        degraded.contains("is a replica: a failover is in progress"),
        "{degraded}"
    );
}

/// The real ones.
#[tokio::test]
async fn a_failover_by_sentinel() {
    let one = Server::start(&["--repl-diskless-sync-delay", "0"]);
    let port = one.port().to_string();
    let two = Server::start(&["--replicaof", "127.0.0.1", &port]);
    eventually_async("a copy", async || {
        two.say::<String>("INFO replication")
            .contains("master_link_status:up")
    })
    .await;
    let sentinel = Server::sentinel(&one, &["sentinel failover-timeout mymaster 5000"]);
    let redis = start(settings(&url(&[sentinel.port()]))).await;
    append(&*redis, &["a"]).await;
    until_stored_on(&one, &redis, id(1)).await;
    eventually_async("a copy", async || {
        two.say::<u64>("DBSIZE") == one.say::<u64>("DBSIZE")
    })
    .await;
    let before = last(&read(&*redis, 0).await);
    let mut failover = redis::cmd("SENTINEL");
    failover.arg("FAILOVER").arg("mymaster");
    eventually_async("a replica that the sentinel promotes", async || {
        sentinel.try_send::<()>(&failover).is_ok()
    })
    .await;
    // From then on it copies nothing.
    eventually_async("the promotion", async || {
        two.say::<String>("INFO replication")
            .contains("role:master")
    })
    .await;
    until_stored_on(&two, &redis, id(2)).await;
    in_service(&redis).await;
    assert_eq!(body(&redis, id(1)).await.as_deref(), Some("body"));
    append(&*redis, &["b"]).await;
    let page = read(&*redis, before).await;
    assert!(page.is_gapless && texts(&page) == ["b"]);
}
