//! Claims: one fetch per fleet, also across purges.

use std::time::{Duration, Instant};

use microcache_store::{Claim, GetOutcome, PutOutcome, SharedTier, Tier};
use microcache_testkit::{TierServer, eventually_async};

use crate::pool::{HOLD, LONG, Pool, entry, found, id, is_missing, mine, patient};

#[tokio::test]
async fn of_concurrent_misses_one_gets_the_claim() {
    let nodes = [(); 3].map(|()| TierServer::memcached());
    let pools = [(); 4].map(|()| Pool::new(&nodes, patient()));
    for number in 0..50 {
        let id = id(number);
        let [a, b, c, d] = &pools;
        let requested = tokio::join!(
            a.get_or_claim(id, HOLD),
            b.get_or_claim(id, HOLD),
            c.get_or_claim(id, HOLD),
            d.get_or_claim(id, HOLD),
        );
        let mut tokens = Vec::new();
        for answer in [requested.0, requested.1, requested.2, requested.3] {
            match answer {
                Ok(GetOutcome::Missing(Claim::Granted(token))) => tokens.push(token),
                Ok(GetOutcome::Missing(Claim::HeldElsewhere)) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(tokens.len(), 1);
        let got = a.get(id).await;
        assert!(matches!(got, Ok(None)), "{got:?}");
        let stored = a
            .put(id, entry(b"head", b"body"), LONG, Some(tokens[0]))
            .await;
        assert_eq!(stored, Ok(PutOutcome::Stored));
        assert!(found(d.get_or_claim(id, HOLD).await).is_some());
    }
}

#[tokio::test]
async fn of_concurrent_stale_hits_one_gets_the_claim() {
    let node = TierServer::memcached();
    let (one, other) = (Pool::new([&node], patient()), Pool::new([&node], patient()));
    let id = id(1);
    one.put(id, entry(b"head", b"old"), LONG, None)
        .await
        .unwrap();
    for round in 0..3 {
        let (a, b) = tokio::join!(one.claim(id, HOLD), other.claim(id, HOLD));
        let (winner, token, loser) = match (a.unwrap(), b.unwrap()) {
            (Claim::Granted(token), Claim::HeldElsewhere) => (&one, token, &other),
            (Claim::HeldElsewhere, Claim::Granted(token)) => (&other, token, &one),
            both => panic!("{both:?}"),
        };
        assert!(
            found(loser.get_or_claim(id, HOLD).await).is_some(),
            "stale, but there"
        );
        if round == 1 {
            winner.release(id, token).await.unwrap();
        } else {
            let stored = winner
                .put(id, entry(b"head", b"new"), LONG, Some(token))
                .await;
            assert_eq!(stored, Ok(PutOutcome::Stored));
        }
        // The lock is deleted before the response is evaluated.
        let lock = format!("mc1:{id}:r");
        eventually_async("the lock is gone", async || !node.has(&lock)).await;
    }
    assert_eq!(
        found(one.get(id).await),
        Some((b"head".to_vec(), b"new".to_vec()))
    );
}

#[tokio::test]
async fn a_purge_after_the_claim_wins() {
    let nodes = [(); 2].map(|()| TierServer::memcached());
    let (filler, purger) = (Pool::new(&nodes, patient()), Pool::new(&nodes, patient()));
    for large in [false, true] {
        let body = vec![1; if large { 2_000_000 } else { 10 }];
        let id = id(usize::from(large));
        let token = mine(filler.get_or_claim(id, HOLD).await);
        purger.remove(id).await.unwrap();
        let stored = filler
            .put(id, entry(b"head", &body), LONG, Some(token))
            .await;
        assert_eq!(stored, Ok(PutOutcome::Superseded));
        assert!(is_missing(&filler.get(id).await));

        filler
            .put(id, entry(b"head", &body), LONG, None)
            .await
            .unwrap();
        let Ok(Claim::Granted(token)) = filler.claim(id, HOLD).await else {
            panic!("not mine");
        };
        purger.remove(id).await.unwrap();
        // Another client stores a new record first.
        let newer = mine(purger.get_or_claim(id, HOLD).await);
        purger
            .put(id, entry(b"head", b"newer"), LONG, Some(newer))
            .await
            .unwrap();
        let stored = filler
            .put(id, entry(b"head", &body), LONG, Some(token))
            .await;
        assert_eq!(stored, Ok(PutOutcome::Superseded));
        assert_eq!(
            found(filler.get(id).await),
            Some((b"head".to_vec(), b"newer".to_vec()))
        );
    }
}

#[tokio::test]
async fn a_claim_that_is_given_back_is_free() {
    let node = TierServer::memcached();
    let pool = Pool::new([&node], patient());
    let id = id(1);
    let token = mine(pool.get_or_claim(id, HOLD).await);
    assert!(matches!(
        pool.get_or_claim(id, HOLD).await,
        Ok(GetOutcome::Missing(Claim::HeldElsewhere))
    ));
    assert!(matches!(
        pool.claim(id, HOLD).await,
        Ok(Claim::HeldElsewhere)
    ));
    pool.release(id, token).await.unwrap();
    pool.release(id, token).await.unwrap();
    // The renewal of a missing record becomes a fill.
    let Ok(Claim::Granted(token)) = pool.claim(id, HOLD).await else {
        panic!("not mine");
    };
    assert!(matches!(
        pool.get_or_claim(id, HOLD).await,
        Ok(GetOutcome::Missing(Claim::HeldElsewhere))
    ));
    let stored = pool
        .put(id, entry(b"head", b"body"), LONG, Some(token))
        .await;
    assert_eq!(stored, Ok(PutOutcome::Stored));
    // Releasing an old claim does not delete the stored record.
    pool.release(id, token).await.unwrap();
    assert!(found(pool.get(id).await).is_some());
    // The fill leaves nothing that would prevent a renewal.
    assert!(matches!(pool.claim(id, HOLD).await, Ok(Claim::Granted(_))));
}

#[tokio::test]
async fn the_claim_of_a_winner_that_died_runs_out() {
    let node = TierServer::memcached();
    let pool = Pool::new([&node], patient());
    let (fill, renewal) = (id(1), id(2));
    pool.put(renewal, entry(b"head", b"body"), LONG, None)
        .await
        .unwrap();
    let hold = Duration::from_secs(1);
    let lost = mine(pool.get_or_claim(fill, hold).await);
    assert!(matches!(
        pool.claim(renewal, hold).await,
        Ok(Claim::Granted(_))
    ));
    let begun = Instant::now();
    let (mut fill_again, mut renewal_again) = (None, None);
    while fill_again.is_none() || renewal_again.is_none() {
        assert!(begun.elapsed() < Duration::from_secs(20), "held for ever");
        if let Ok(GetOutcome::Missing(Claim::Granted(token))) = pool.get_or_claim(fill, HOLD).await
        {
            assert!(begun.elapsed() >= hold, "it was still held");
            fill_again = Some(token);
        }
        if let Ok(Claim::Granted(token)) = pool.claim(renewal, HOLD).await {
            assert!(begun.elapsed() >= hold, "it was still held");
            renewal_again = Some(token);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let late = pool
        .put(fill, entry(b"head", b"late"), LONG, Some(lost))
        .await;
    assert_eq!(late, Ok(PutOutcome::Superseded));
    let stored = pool
        .put(
            fill,
            entry(b"head", b"body"),
            LONG,
            Some(fill_again.unwrap()),
        )
        .await;
    assert_eq!(stored, Ok(PutOutcome::Stored));
}

#[tokio::test]
async fn a_claim_of_another_process_has_a_maximum_lifetime() {
    let node = TierServer::memcached();
    let pool = Pool::new([&node], patient());
    let (record, lock) = (format!("mc1:{}", id(1)), format!("mc1:{}:r", id(1)));
    let left = |key: &str| {
        let answer = node.command(&format!("mg {key} t\r\n"));
        let text = String::from_utf8(answer).expect("text");
        let mut flags = text.split_whitespace();
        let left = flags.find_map(|flag| flag.strip_prefix('t'));
        left.expect("an item").parse::<i64>().expect("a number")
    };
    let ours = 0..=HOLD.as_secs().cast_signed() + 1;
    for forged in [0, 2_000_000, 2_147_000_000_u64] {
        node.command(&format!("mg {record} v N{forged}\r\n"));
        assert!(!ours.contains(&left(&record)), "{}", left(&record));
        let got = pool.get_or_claim(id(1), HOLD).await;
        assert!(
            matches!(got, Ok(GetOutcome::Missing(Claim::HeldElsewhere))),
            "{got:?}"
        );
        assert!(ours.contains(&left(&record)), "{}", left(&record));
        node.command(&format!("md {record}\r\n"));
    }

    pool.put(id(1), entry(b"head", b"old"), LONG, None)
        .await
        .unwrap();
    for forged in [0, 2_000_000, 2_147_000_000_u64] {
        node.command(&format!("ms {lock} 0 T{forged}\r\n\r\n"));
        assert!(!ours.contains(&left(&lock)), "{}", left(&lock));
        assert_eq!(pool.claim(id(1), HOLD).await, Ok(Claim::HeldElsewhere));
        assert!(ours.contains(&left(&lock)), "{}", left(&lock));
        // The claim is unchanged, and a shorter lifetime is kept.
        node.command(&format!("mg {lock} T7\r\n"));
        assert_eq!(pool.claim(id(1), HOLD).await, Ok(Claim::HeldElsewhere));
        assert!(left(&lock) <= 7);
    }
    assert!(found(pool.get(id(1)).await).is_some());
}
