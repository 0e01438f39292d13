//! Claims: one fetch for all processes.

use std::time::Duration;

use microcache_store::{Claim, GetOutcome, PutOutcome, SharedTier, Tier, Token};
use microcache_testkit::eventually_async;
use tokio::task::JoinSet;

use crate::{HOUR, ask, body, id, pair, put, settings, start, win};

#[tokio::test]
async fn of_many_callers_in_several_processes_one_wins() {
    let (server, one) = pair().await;
    let two = start(settings(&server.address())).await;
    for round in 0..20 {
        let mut callers = JoinSet::new();
        for number in 0..32 {
            let redis = [&one, &two][number % 2].clone();
            callers.spawn(async move { ask(&redis, id(round), HOUR).await });
        }
        let claims = callers.join_all().await;
        let won = claims
            .iter()
            .filter(|claim| matches!(claim, Claim::Granted(_)));
        assert_eq!(won.count(), 1);
    }
}

#[tokio::test]
async fn the_winner_stores_and_the_others_find() {
    let (server, one) = pair().await;
    let two = start(settings(&server.address())).await;
    let token = win(&one, id(1)).await;
    assert_eq!(ask(&two, id(1), HOUR).await, Claim::HeldElsewhere);
    assert_eq!(
        put(&one, id(1), "body", Some(token)).await,
        PutOutcome::Stored
    );
    assert!(matches!(
        two.get_or_claim(id(1), HOUR).await,
        Ok(GetOutcome::Entry(_))
    ));
    // The claim was released by the store.
    assert_eq!(server.say::<u64>("DBSIZE"), 1);
}

#[tokio::test]
async fn a_read_without_claim_claims_nothing() {
    let (_server, redis) = pair().await;
    assert_eq!(body(&redis, id(1)).await, None);
    win(&redis, id(1)).await;
}

#[tokio::test]
async fn a_removal_between_claim_and_store_wins() {
    let (server, one) = pair().await;
    let two = start(settings(&server.address())).await;
    let token = win(&one, id(1)).await;
    two.remove(id(1)).await.unwrap();
    assert_eq!(
        put(&one, id(1), "old", Some(token)).await,
        PutOutcome::Superseded
    );
    assert_eq!(body(&one, id(1)).await, None);
    // Also if another process has claimed it since.
    let next = win(&two, id(1)).await;
    assert_eq!(
        put(&one, id(1), "old", Some(token)).await,
        PutOutcome::Superseded
    );
    assert_eq!(
        put(&two, id(1), "new", Some(next)).await,
        PutOutcome::Stored
    );
    assert_eq!(body(&one, id(1)).await.as_deref(), Some("new"));
}

#[tokio::test]
async fn a_winner_that_dies_is_followed_by_another() {
    let (server, one) = pair().await;
    let two = start(settings(&server.address())).await;
    let hold = Duration::from_millis(200);
    let Claim::Granted(token) = ask(&one, id(1), hold).await else {
        panic!("nobody else was there");
    };
    eventually_async("the claim runs out", async || {
        matches!(ask(&two, id(1), HOUR).await, Claim::Granted(_))
    })
    .await;
    assert_eq!(
        put(&one, id(1), "late", Some(token)).await,
        PutOutcome::Superseded
    );
}

#[tokio::test]
async fn a_claim_can_be_given_back_by_its_owner_only() {
    let (_server, redis) = pair().await;
    let token = win(&redis, id(1)).await;
    redis.release(id(1), Token(token.0 ^ 1)).await.unwrap();
    assert_eq!(ask(&redis, id(1), HOUR).await, Claim::HeldElsewhere);
    redis.release(id(1), token).await.unwrap();
    win(&redis, id(1)).await;
}

#[tokio::test]
async fn one_caller_renews_the_record() {
    let (_server, redis) = pair().await;
    put(&redis, id(1), "old", None).await;
    let Ok(Claim::Granted(token)) = redis.claim(id(1), HOUR).await else {
        panic!("nobody else was there");
    };
    assert_eq!(redis.claim(id(1), HOUR).await, Ok(Claim::HeldElsewhere));
    assert_eq!(body(&redis, id(1)).await.as_deref(), Some("old"));
    assert_eq!(
        put(&redis, id(1), "new", Some(token)).await,
        PutOutcome::Stored
    );
    assert_eq!(body(&redis, id(1)).await.as_deref(), Some("new"));
    assert!(matches!(
        redis.claim(id(1), Duration::MAX).await,
        Ok(Claim::Granted(_))
    ));
}

#[tokio::test]
async fn scripts_forgotten_by_the_server_are_loaded_again() {
    let (server, redis) = pair().await;
    for number in 0..3 {
        let () = server.say("SCRIPT FLUSH");
        let token = win(&redis, id(number)).await;
        let () = server.say("SCRIPT FLUSH");
        assert_eq!(
            put(&redis, id(number), "body", Some(token)).await,
            PutOutcome::Stored
        );
    }
}

#[tokio::test]
async fn a_claim_of_another_process_has_a_maximum_lifetime() {
    let (server, redis) = pair().await;
    let hold = Duration::from_millis(50);
    for is_there in [false, true] {
        let key = format!("mc1:{{{}}}:c", id(1));
        if is_there {
            put(&redis, id(1), "body", None).await;
        }
        let claim = async |hold| {
            if is_there {
                redis.claim(id(1), hold).await.expect("it works")
            } else {
                ask(&redis, id(1), hold).await
            }
        };
        for forged in ["7", "7 EX 1000000", "7 PX 9000000000000"] {
            let () = server.say(&format!("SET {key} {forged}"));
            assert_eq!(claim(hold).await, Claim::HeldElsewhere, "{forged}");
            eventually_async("the claim ends", async || {
                claim(hold).await != Claim::HeldElsewhere
            })
            .await;
            let () = server.say(&format!("DEL {key}"));
        }
        // A list is no claim of this tier either.
        let () = server.say(&format!("RPUSH {key} 7"));
        assert_eq!(claim(hold).await, Claim::HeldElsewhere);
        eventually_async("the list ends", async || {
            claim(hold).await != Claim::HeldElsewhere
        })
        .await;
        let () = server.say(&format!("DEL {key}"));
        // A shorter lifetime is kept.
        let () = server.say(&format!("SET {key} 7 EX 1000"));
        assert_eq!(claim(HOUR).await, Claim::HeldElsewhere);
        assert!((900_001..=1_000_000).contains(&server.say::<u64>(&format!("PTTL {key}"))));
        let () = server.say(&format!("DEL {key}"));
    }
}
