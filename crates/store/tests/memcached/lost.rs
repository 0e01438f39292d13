//! Servers that crash, hang, miss removals and return.

use std::time::Duration;

use microcache_store::memcached::{LostServerPolicy, MemcachedSettings};
use microcache_store::{Claim, GetOutcome, PutOutcome, SharedTier, Tier, TierError};
use microcache_testkit::{TierServer, eventually_async};

use crate::pool::{HOLD, LONG, Pool, entry, found, id, is_missing, mine, quick};

#[tokio::test]
async fn a_killed_server_costs_its_keys_and_returns() {
    const KEYS: usize = 400;
    let mut nodes = [(); 4].map(|()| TierServer::memcached());
    let pool = Pool::new(&nodes, quick());
    for number in 0..KEYS {
        let stored = pool.put(id(number), entry(b"h", b"b"), LONG, None).await;
        assert_eq!(stored, Ok(PutOutcome::Stored));
    }
    nodes[2].kill();
    let mut hits = 0;
    for number in 0..KEYS {
        match pool.get(id(number)).await {
            Ok(Some(_)) => hits += 1,
            Ok(None) | Err(_) => {
                // Lost records are stored by the next server once this one is out of service.
                let _ = pool.put(id(number), entry(b"h", b"b"), LONG, None).await;
            }
        }
    }
    assert!(hits >= KEYS / 2, "{hits} of {KEYS}");
    eventually_async("the server is missed", async || {
        pool.stats().degraded.len() == 1
    })
    .await;
    let line = &pool.stats().degraded[0];
    assert!(
        line.starts_with(&format!("127.0.0.1:{}: ", nodes[2].port())),
        "{line}"
    );
    for number in 0..KEYS {
        if is_missing(&pool.get(id(number)).await) {
            let stored = pool.put(id(number), entry(b"h", b"b"), LONG, None).await;
            assert_eq!(stored, Ok(PutOutcome::Stored));
        }
        assert!(found(pool.get(id(number)).await).is_some());
    }
    nodes[2].restart();
    eventually_async("the server is back", async || {
        pool.stats().degraded.is_empty()
    })
    .await;
    let mut hits = 0;
    for number in 0..KEYS {
        hits += usize::from(found(pool.get(id(number)).await).is_some());
    }
    assert!(
        (KEYS / 2..KEYS).contains(&hits),
        "{hits} of {KEYS}: it came back empty"
    );
}

#[tokio::test]
async fn keys_of_a_lost_server_can_stay_misses() {
    let mut nodes = [(); 2].map(|()| TierServer::memcached());
    let settings = MemcachedSettings {
        when_lost: LostServerPolicy::Miss,
        ..quick()
    };
    let pool = Pool::new(&nodes, settings);
    nodes[0].kill();
    eventually_async("the server is missed", async || {
        pool.stats().degraded.len() == 1
    })
    .await;
    let mut down = 0;
    for number in 0..100 {
        match pool.put(id(number), entry(b"h", b"b"), LONG, None).await {
            Ok(PutOutcome::Stored) => {}
            Err(TierError::Down) => down += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!((10..90).contains(&down), "{down} of 100");
}

#[tokio::test]
async fn a_server_that_hangs_is_left_out_after_its_deadline() {
    let node = TierServer::memcached();
    let pool = Pool::new([&node], quick());
    pool.put(id(1), entry(b"head", b"body"), LONG, None)
        .await
        .unwrap();
    node.freeze();
    let mut late = 0;
    loop {
        match pool.get(id(1)).await {
            Err(TierError::Timeout) => late += 1,
            Err(TierError::Failed(_)) => {}
            Err(TierError::Down) => break,
            other => panic!("{other:?}"),
        }
        assert!(late < 10, "never left out");
    }
    assert!(late >= 1);
    assert_eq!(pool.stats().degraded.len(), 1);
    node.thaw();
    eventually_async("the server is back", async || {
        pool.stats().degraded.is_empty()
    })
    .await;
    assert!(
        found(pool.get(id(1)).await).is_some(),
        "it had not forgotten"
    );
}

/// A hanging server reads pending requests when it resumes, long after the caller has given up.
#[tokio::test]
async fn a_claim_that_was_given_too_late_is_not_waited_for() {
    let node = TierServer::memcached();
    let patient_with_failures = MemcachedSettings {
        failures: 100,
        ..quick()
    };
    let pool = Pool::new([&node], patient_with_failures);
    let stored = pool.put(id(2), entry(b"h", b"b"), LONG, None).await;
    assert_eq!(stored, Ok(PutOutcome::Stored));
    node.freeze();
    assert!(pool.get_or_claim(id(1), HOLD).await.is_err());
    assert!(pool.claim(id(2), HOLD).await.is_err());
    node.thaw();
    eventually_async("the server is back", async || {
        pool.stats().degraded.is_empty()
    })
    .await;
    let got = pool.get_or_claim(id(1), HOLD).await;
    assert!(
        matches!(got, Ok(GetOutcome::Missing(Claim::Granted(_)))),
        "{got:?}"
    );
    let first = pool.claim(id(2), HOLD).await;
    let second = pool.claim(id(2), HOLD).await;
    let is_mine = |claim: &_| matches!(claim, Ok(Claim::Granted(_)));
    assert!(is_mine(&first) || is_mine(&second), "{first:?}, {second:?}");
}

/// A server is lost while a fill that it granted is in progress, and another one takes its place.
#[tokio::test]
async fn a_claim_on_a_server_that_was_lost_meanwhile_is_given_back() {
    let nodes = [(); 2].map(|()| TierServer::memcached());
    let pool = Pool::new(&nodes, quick());
    let claimed = id(1);
    let token = mine(pool.get_or_claim(claimed, HOLD).await);
    let look = format!("mg mc1:{claimed}\r\n");
    let has_it = |node: &&TierServer| node.command(&look).starts_with(b"HD");
    let giver = nodes.iter().find(has_it).expect("it is there");
    giver.freeze();
    for number in 2.. {
        if !pool.stats().degraded.is_empty() {
            break;
        }
        let _ = pool.get(id(number)).await;
    }
    let stored = pool
        .put(claimed, entry(b"head", b"body"), LONG, Some(token))
        .await;
    assert_eq!(
        stored,
        Ok(PutOutcome::Superseded),
        "it is another server's now"
    );
    giver.thaw();
    eventually_async("the server is back", async || {
        pool.stats().degraded.is_empty()
    })
    .await;
    mine(pool.get_or_claim(claimed, HOLD).await);
}

#[tokio::test]
async fn a_removal_missed_by_a_server_precedes_all_other_commands() {
    let nodes = [(); 2].map(|()| TierServer::memcached());
    let pool = Pool::new(&nodes, quick());
    for number in 0..40 {
        pool.put(id(number), entry(b"head", b"body"), LONG, None)
            .await
            .unwrap();
    }
    nodes[0].freeze();
    for number in 0..20 {
        assert_eq!(pool.remove(id(number)).await, Ok(()));
    }
    assert!(!pool.stats().degraded.is_empty(), "it owes a confirmation");
    nodes[0].thaw();
    eventually_async("the server is back", async || {
        pool.stats().degraded.is_empty()
    })
    .await;
    for number in 0..20 {
        assert!(
            is_missing(&pool.get(id(number)).await),
            "{number} was removed"
        );
    }
    for number in 20..40 {
        assert!(found(pool.get(id(number)).await).is_some());
    }
}

#[tokio::test]
async fn a_server_that_missed_too_much_has_to_be_restarted() {
    let mut node = TierServer::memcached();
    let settings = MemcachedSettings {
        max_missed_removals: 5,
        ..quick()
    };
    let pool = Pool::new([&node], settings);
    pool.put(id(1), entry(b"head", b"body"), LONG, None)
        .await
        .unwrap();
    eventually_async("it was looked at", async || pool.stats().entries.is_some()).await;
    node.freeze();
    for number in 0..6 {
        pool.remove(id(number)).await.unwrap();
    }
    node.thaw();
    eventually_async("it is known to be useless", async || {
        let degraded = pool.stats().degraded;
        degraded
            .iter()
            .any(|line| line.contains("out of service until restarted"))
    })
    .await;
    assert_eq!(pool.get(id(1)).await.err(), Some(TierError::Down));
    node.kill();
    // Uptime starts at two seconds, and only a start that is certainly later than the last removal counts.
    tokio::time::sleep(Duration::from_secs(4)).await;
    node.restart();
    eventually_async("the server is back", async || {
        pool.stats().degraded.is_empty()
    })
    .await;
    assert!(is_missing(&pool.get(id(1)).await));
}

#[tokio::test]
async fn a_server_that_is_not_there_at_the_start_is_awaited() {
    let mut node = TierServer::memcached();
    node.kill();
    let pool = Pool::new([&node], quick());
    eventually_async("the server is missed", async || {
        pool.stats().degraded.len() == 1
    })
    .await;
    assert_eq!(pool.get(id(1)).await.err(), Some(TierError::Down));
    node.restart();
    eventually_async("the server is there", async || {
        pool.stats().degraded.is_empty()
    })
    .await;
    mine(pool.get_or_claim(id(1), HOLD).await);
}
