//! Servers that crash, hang and return, and the removals owed to them.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use microcache_store::redis::{Redis, RedisSettings};
use microcache_store::{Claim, EntryId, PutOutcome, SharedTier, Tier, TierError};
use microcache_testkit::{eventually_async, listen};

use crate::server::Server;
use crate::shared_log::{BEGINNING, append};
use crate::{HOUR, body, entry, id, in_service, pair, put, settings, start, win};

/// Timeout for a server that is known not to answer.
async fn impatient(server: &Server) -> Arc<Redis> {
    let settings = RedisSettings {
        deadline: Duration::from_millis(50),
        write_deadline: Duration::from_millis(50),
        max_removals: 2,
        ..settings(&server.address())
    };
    let redis = start(settings).await;
    in_service(&redis).await;
    redis
}

#[tokio::test]
async fn a_killed_server_that_returns() {
    let (mut server, redis) = pair().await;
    put(&redis, id(1), "body", None).await;
    server.kill();
    let lost = redis.get(id(1)).await.unwrap_err();
    assert!(
        matches!(lost, TierError::Failed(_) | TierError::Down),
        "{lost}"
    );
    assert_eq!(
        redis.get_or_claim(id(1), HOUR).await.unwrap_err(),
        TierError::Down
    );
    assert_eq!(redis.claim(id(1), HOUR).await, Err(TierError::Down));
    assert_eq!(redis.stats().degraded.len(), 1);
    server.restart();
    in_service(&redis).await;
    // Restarted empty, without scripts.
    let token = win(&redis, id(1)).await;
    assert_eq!(
        put(&redis, id(1), "body", Some(token)).await,
        PutOutcome::Stored
    );
}

#[tokio::test]
async fn a_server_that_stops_costs_some_deadlines_and_then_nothing() {
    let (server, patient) = pair().await;
    assert_eq!(put(&patient, id(1), "body", None).await, PutOutcome::Stored);
    let redis = impatient(&server).await;
    server.freeze();
    for _ in 0..3 {
        let late = redis.get_or_claim(id(1), HOUR).await.unwrap_err();
        assert_eq!(late, TierError::Timeout);
    }
    let left_alone = redis.get_or_claim(id(1), HOUR).await.unwrap_err();
    assert_eq!(left_alone, TierError::Down);
    server.thaw();
    in_service(&redis).await;
    eventually_async("found", async || redis.get(id(1)).await.is_ok()).await;
}

/// Too late for a look-up, or for the claim after it. Purges go on.
#[tokio::test]
async fn requests_do_without_a_slow_server() {
    let server = Server::start(&[]);
    let (port, delay) = slow_link(server.port());
    let redis = start(RedisSettings {
        deadline: Duration::from_millis(100),
        ..settings(&format!("redis://127.0.0.1:{port}"))
    })
    .await;
    for millis in [70, 250] {
        delay.store(millis, Ordering::SeqCst);
        let slow =
            format!("127.0.0.1:{port}: slow, used for purges only until it responds within 50 ms");
        eventually_async("bypassed", async || {
            // What goes on in the background does not make it healthy.
            let _ = redis.read_log(0, 0, BEGINNING).await;
            let asked = redis.get_or_claim(id(1), HOUR).await;
            matches!(asked, Err(TierError::Down)) && redis.stats().degraded == [slow.clone()]
        })
        .await;
        append(&*redis, &["b"]).await;
        redis.remove(id(2)).await.unwrap();
        delay.store(0, Ordering::SeqCst);
        in_service(&redis).await;
        eventually_async("used", async || redis.get(id(1)).await.is_ok()).await;
    }
}

#[tokio::test]
async fn an_unused_server_is_monitored() {
    let mut server = Server::start(&[]);
    let ping_every = Duration::from_millis(20);
    let redis = start(RedisSettings {
        ping_every,
        ..settings(&server.address())
    })
    .await;
    server.kill();
    eventually_async("out of service", async || {
        !redis.stats().degraded.is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_removal_is_delivered_when_the_server_is_back() {
    let (server, patient) = pair().await;
    assert_eq!(put(&patient, id(1), "old", None).await, PutOutcome::Stored);
    assert_eq!(
        put(&patient, id(2), "other", None).await,
        PutOutcome::Stored
    );
    let redis = impatient(&server).await;
    server.freeze();
    assert!(redis.remove(id(1)).await.is_err());
    let owed = redis.get(id(1)).await.unwrap_err();
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
async fn more_removals_than_the_limit_remove_all_own_records() {
    let (server, patient) = pair().await;
    for number in 0..50 {
        assert_eq!(
            put(&patient, id(number), "old", None).await,
            PutOutcome::Stored
        );
    }
    let () = server.say("SET theirs value");
    let redis = impatient(&server).await;
    server.freeze();
    for number in 0..3 {
        assert!(redis.remove(id(number)).await.is_err());
    }
    let all_owed = redis.get(id(49)).await.unwrap_err();
    assert_eq!(all_owed, TierError::Down);
    server.thaw();
    in_service(&redis).await;
    assert_eq!(body(&patient, id(49)).await, None);
    assert_eq!(server.say::<Vec<String>>("KEYS *"), ["theirs"]);
}

#[tokio::test]
async fn a_claim_with_a_late_reply_is_released() {
    let (server, patient) = pair().await;
    let redis = impatient(&server).await;
    server.freeze();
    assert_eq!(redis.claim(id(1), HOUR).await, Err(TierError::Timeout));
    server.thaw();
    eventually_async("somebody else has the claim", async || {
        matches!(patient.claim(id(1), HOUR).await, Ok(Claim::Granted(_)))
    })
    .await;
}

#[tokio::test]
async fn one_operation_more_than_the_bound_fails_at_once() {
    let server = Server::start(&[]);
    let redis = start(RedisSettings {
        max_in_flight: 1,
        ..settings(&server.address())
    })
    .await;
    server.freeze();
    let (one, two) = (redis.get(id(1)), redis.get(id(2)));
    tokio::pin!(one);
    // Polled once, which occupies the only slot.
    assert!(is_pending(&mut one).await);
    let expected = TierError::Failed("too many concurrent operations".to_owned());
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

/// Forwarder of all connections to a server, of which the first ones pass on nothing while the flag is set.
pub(crate) fn link(port: u16, mut swallowing: usize) -> (u16, Arc<AtomicBool>) {
    let swallows = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&swallows);
    let port = relay(port, move || {
        let hole = if swallowing > 0 {
            Arc::clone(&flag)
        } else {
            Arc::default()
        };
        swallowing = swallowing.saturating_sub(1);
        move || {
            while hole.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(5));
            }
        }
    });
    (port, swallows)
}

/// Forwarder that holds back each reply for this time, in milliseconds.
fn slow_link(port: u16) -> (u16, Arc<AtomicU64>) {
    let delay = Arc::<AtomicU64>::default();
    let each = Arc::clone(&delay);
    let wait = move || thread::sleep(Duration::from_millis(each.load(Ordering::SeqCst) / 2));
    (relay(port, move || wait.clone()), delay)
}

/// Forwarder of all connections to a server, with a wait before each piece in each direction.
fn relay<W: Fn() + Clone + Send + 'static>(
    port: u16,
    mut wait: impl FnMut() -> W + Send + 'static,
) -> u16 {
    let address = listen(move |client| {
        let server = TcpStream::connect(("127.0.0.1", port)).expect("it runs");
        let (from, to) = (client.try_clone(), server.try_clone());
        let (one, other) = (wait(), wait());
        thread::spawn(move || pass_on(client, to.expect("a socket"), one));
        thread::spawn(move || pass_on(server, from.expect("a socket"), other));
    });
    address.port()
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, wait: impl Fn()) {
    let mut piece = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut piece) {
        wait();
        if to.write_all(&piece[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

#[tokio::test]
async fn one_connection_that_leads_nowhere_is_found_out() {
    // Alternates between the connections, so that failures are not consecutive.
    let is_even = |id: &EntryId| id.to_bytes()[15].is_multiple_of(2);
    let (even, odd): (Vec<_>, Vec<_>) = (0..40).map(id).partition(is_even);
    let ids: Vec<EntryId> = even.into_iter().zip(odd).flat_map(<[_; 2]>::from).collect();
    assert!(ids.len() > 10);
    let server = Server::start(&[]);
    let (port, hole) = link(server.port(), 1);
    let redis = start(RedisSettings {
        deadline: Duration::from_millis(200),
        // Discovered only by requests.
        ping_every: Duration::from_hours(1),
        ..settings(&format!("redis://127.0.0.1:{port}"))
    })
    .await;
    for id in &ids {
        put(&redis, *id, "body", None).await;
    }
    hole.store(true, Ordering::SeqCst);
    eventually_async("all of them are read again", async || {
        let mut all = true;
        for id in &ids {
            all &= matches!(redis.get(*id).await, Ok(Some(_)));
        }
        all
    })
    .await;
}
