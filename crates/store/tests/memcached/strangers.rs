//! Servers that are not memcached, or that violate its protocol.

use std::time::Duration;

use microcache_store::memcached::{MemcachedSettings, ServerAddress};
use microcache_store::{Tier, TierError};
use microcache_testkit::eventually_async;

use crate::fake::Fake;
use crate::pool::{LONG, Pool, entry, found, id, patient, quick};

#[tokio::test]
async fn a_server_that_is_no_memcached_is_reported_in_one_line() {
    let http = Fake::answering(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    let old = Fake::answering(b"ERROR\r\n");
    let silent = Fake::answering(b"");
    let cut = Fake::closing();
    let unresolvable: ServerAddress = "no-such-host.invalid:11211".parse().unwrap();
    for (address, says) in [
        (http.address(), "HTTP/1.1 400 Bad Request"),
        (
            old.address(),
            "memcached 1.6 or later without authentication",
        ),
        (silent.address(), "timeout"),
        (cut.address(), "connection closed by the server"),
        (unresolvable, "no-such-host.invalid:11211: "),
    ] {
        let pool = Pool::at(vec![address], quick());
        eventually_async("it is left out", async || pool.stats().degraded.len() == 1).await;
        let line = pool.stats().degraded.remove(0);
        assert!(line.contains(says) && !line.contains('\n'), "{line}");
        assert_eq!(pool.get(id(1)).await.err(), Some(TierError::Down));
        let put = pool.put(id(1), entry(b"h", b"b"), LONG, None).await;
        assert_eq!(put, Err(TierError::Down));
        assert_eq!(pool.remove(id(1)).await, Ok(()));
    }
}

#[tokio::test]
async fn a_lost_server_is_not_stormed() {
    let fake = Fake::closing();
    let settings = MemcachedSettings {
        retry_after: Duration::from_hours(1),
        retry_after_max: Duration::from_hours(1),
        ..quick()
    };
    let connections = settings.connections + settings.failures as usize + 1;
    let pool = Pool::at(vec![fake.address()], settings);
    for number in 0..1000 {
        assert!(pool.get(id(number)).await.is_err());
    }
    assert!(
        fake.accepted() <= connections,
        "{} connections",
        fake.accepted()
    );
}

#[tokio::test]
async fn a_late_reply_is_given_to_no_other_request() {
    let fake = Fake::late(
        b"VA 9 c1 f0\r\n\x6dcW\x01\0\0\0\0A\r\n",
        b"VA 9 c1 f0\r\n\x6dcW\x01\0\0\0\0B\r\n",
    );
    let settings = MemcachedSettings {
        connections: 1,
        failures: 1000,
        ..quick()
    };
    let pool = Pool::at(vec![fake.address()], settings);
    assert_eq!(pool.get(id(1)).await.err(), Some(TierError::Timeout));
    for _ in 0..5 {
        let got = found(pool.get(id(2)).await);
        assert_eq!(got, Some((Vec::new(), b"B".to_vec())));
    }
}

#[tokio::test]
async fn waiting_requests_have_a_bound() {
    let fake = Fake::answering(b"");
    let settings = MemcachedSettings {
        max_outstanding: 2,
        failures: 1000,
        ..patient()
    };
    let pool = Pool::at(vec![fake.address()], settings);
    let (mut one, mut two) = (pool.get(id(1)), pool.get(id(2)));
    for waiting in [&mut one, &mut two] {
        let soon = tokio::time::timeout(Duration::ZERO, waiting).await;
        assert!(soon.is_err(), "{soon:?}");
    }
    match pool.get(id(3)).await {
        Err(TierError::Failed(why)) => {
            assert!(why.contains("too many outstanding requests"), "{why}");
        }
        other => panic!("{other:?}"),
    }
}
