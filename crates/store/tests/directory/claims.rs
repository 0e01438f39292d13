//! Claims: one fetch for all processes that share a directory, also across purges.

use std::fs::{self, File};
use std::sync::Arc;
use std::time::SystemTime;

use microcache_store::{Claim, Directory, GetOutcome, PutOutcome, SharedTier, Tier};

use crate::place::{HOLD, LONG, Place, entry, found, id, is_theirs, is_unstorable, mine};

#[tokio::test]
async fn of_concurrent_misses_one_gets_the_claim() {
    let place = Place::new();
    let handles = [(); 8].map(|()| place.open());
    for number in 0..50 {
        let look = |tier: &Arc<Directory>| {
            let tier = Arc::clone(tier);
            tokio::spawn(async move { tier.get_or_claim(id(number), HOLD).await })
        };
        let mut tokens = Vec::new();
        for (tier, looked) in handles.iter().zip(handles.each_ref().map(look)) {
            match looked.await.expect("it looks") {
                Ok(GetOutcome::Missing(Claim::Granted(token))) => tokens.push((tier, token)),
                Ok(GetOutcome::Missing(Claim::HeldElsewhere)) => {}
                other => panic!("{other:?}"),
            }
        }
        let [(winner, token)] = tokens[..] else {
            panic!("{} bring it", tokens.len());
        };
        let put = winner.put(id(number), entry(b"head", b"body"), LONG, Some(token));
        assert_eq!(put.await, Ok(PutOutcome::Stored));
        assert!(found(handles[7].get_or_claim(id(number), HOLD).await).is_some());
    }
    let left: Vec<_> = place.names();
    assert!(!left.iter().any(|name| name.contains(".claim")), "{left:?}");
}

#[tokio::test]
async fn a_purge_after_the_claim_wins() {
    let place = Place::new();
    let [filler, purger] = [(); 2].map(|()| place.open());
    let token = mine(filler.get_or_claim(id(1), HOLD).await);
    purger.remove(id(1)).await.unwrap();
    let late = filler.put(id(1), entry(b"head", b"late"), LONG, Some(token));
    assert_eq!(late.await, Ok(PutOutcome::Superseded));
    assert_eq!(found(filler.get(id(1)).await), None);

    // Another process stores a new record first.
    let Ok(Claim::Granted(token)) = filler.claim(id(1), HOLD).await else {
        panic!("not mine");
    };
    purger.remove(id(1)).await.unwrap();
    let newer = mine(purger.get_or_claim(id(1), HOLD).await);
    let late = filler.put(id(1), entry(b"head", b"late"), LONG, Some(token));
    assert_eq!(late.await, Ok(PutOutcome::Superseded));
    let put = purger.put(id(1), entry(b"head", b"newer"), LONG, Some(newer));
    assert_eq!(put.await, Ok(PutOutcome::Stored));
    let newer = (b"head".to_vec(), b"newer".to_vec());
    assert_eq!(found(filler.get(id(1)).await), Some(newer));
}

/// Each waiting process then fetches without waiting for another; later ones claim.
#[tokio::test]
async fn only_waiting_processes_learn_that_a_response_is_not_storable() {
    let place = Place::new();
    let [holder, waits, waits_too, newcomer] = [(); 4].map(|()| place.open());
    let token = mine(holder.get_or_claim(id(1), HOLD).await);
    for waiting in [&waits, &waits_too] {
        assert!(is_theirs(&waiting.get_or_claim(id(1), HOLD).await));
    }
    let _other = mine(waits.get_or_claim(id(2), HOLD).await);
    holder.release_unstorable(id(1), token).await.unwrap();
    assert!(is_unstorable(&waits.get_or_claim(id(1), HOLD).await));
    let token = mine(newcomer.get_or_claim(id(1), HOLD).await);
    // It waits for the previous claim.
    assert!(is_unstorable(&waits_too.get_or_claim(id(1), HOLD).await));
    // Afterwards, both wait for the next claim like any other process.
    for waiting in [&waits, &waits_too] {
        assert!(is_theirs(&waiting.get_or_claim(id(1), HOLD).await));
    }
    newcomer.release(id(1), token).await.unwrap();
    let _token = mine(waits.get_or_claim(id(1), HOLD).await);
    assert!(is_theirs(&waits_too.get_or_claim(id(1), HOLD).await));
}

/// The file does not grow, and foreign content is ignored.
#[tokio::test]
async fn unstorable_claims_are_kept_in_one_small_file() {
    let place = Place::new();
    let [holder, waits] = [(); 2].map(|()| place.open());
    let file = place.claim(id(1)).with_file_name("unstorable");
    let release_and_retry = async |number| {
        let token = mine(holder.get_or_claim(number, HOLD).await);
        assert!(is_theirs(&waits.get_or_claim(number, HOLD).await));
        holder.release_unstorable(number, token).await.unwrap();
        waits.get_or_claim(number, HOLD).await
    };
    for _ in 0..100 {
        assert!(is_unstorable(&release_and_retry(id(1)).await));
    }
    let length = fs::metadata(&file).unwrap().len();
    assert!((50..=1600).contains(&length), "{length}");
    fs::write(&file, vec![b'x'; 100_000]).unwrap();
    assert!(is_unstorable(&release_and_retry(id(1)).await));
}

/// NFS renames a file that is removed while open.
#[tokio::test]
async fn a_claim_whose_file_was_renamed_is_gone() {
    let place = Place::new();
    let tier = place.open();
    let token = mine(tier.get_or_claim(id(1), HOLD).await);
    let aside = place.claim(id(1)).with_extension("nfs0001");
    fs::rename(place.claim(id(1)), aside).unwrap();
    let late = tier.put(id(1), entry(b"head", b"late"), LONG, Some(token));
    assert_eq!(late.await, Ok(PutOutcome::Superseded));
    assert_eq!(found(tier.get(id(1)).await), None);
}

#[tokio::test]
async fn a_renewal_is_one_process_s_and_only_while_its_claim_stands() {
    let place = Place::new();
    let [one, other] = [(); 2].map(|()| place.open());
    one.put(id(1), entry(b"old", b"body"), LONG, None)
        .await
        .unwrap();
    let Ok(Claim::Granted(token)) = one.claim(id(1), HOLD).await else {
        panic!("not mine");
    };
    assert!(matches!(
        other.claim(id(1), HOLD).await,
        Ok(Claim::HeldElsewhere)
    ));
    assert!(
        found(other.get_or_claim(id(1), HOLD).await).is_some(),
        "stale, but there"
    );
    let renewed = one.renew(
        id(1),
        b"old"[..].into(),
        b"new"[..].into(),
        LONG,
        Some(token),
    );
    assert_eq!(renewed.await, Ok(PutOutcome::Stored));
    let Ok(Claim::Granted(token)) = other.claim(id(1), HOLD).await else {
        panic!("it was not given back");
    };
    one.remove(id(1)).await.unwrap();
    let renewed = other.renew(
        id(1),
        b"new"[..].into(),
        b"newer"[..].into(),
        LONG,
        Some(token),
    );
    assert_eq!(renewed.await, Ok(PutOutcome::Superseded));
    assert_eq!(found(one.get(id(1)).await), None);
}

#[tokio::test]
async fn a_claim_that_is_given_back_or_lost_with_its_process_is_free() {
    let place = Place::new();
    let [one, other] = [(); 2].map(|()| place.open());
    let token = mine(one.get_or_claim(id(1), HOLD).await);
    assert!(is_theirs(&other.get_or_claim(id(1), HOLD).await));
    one.release(id(1), token).await.unwrap();
    one.release(id(1), token).await.unwrap();
    mine(other.get_or_claim(id(1), HOLD).await);
    assert!(is_theirs(&one.get_or_claim(id(1), HOLD).await));
    // A dead process has no open files, so its remaining claim file does not matter.
    drop(other);
    assert!(place.claim(id(1)).exists());
    mine(one.get_or_claim(id(1), HOLD).await);
}

#[tokio::test]
async fn a_process_that_is_stopped_gives_way_in_the_end() {
    let place = Place::new();
    let [stopped, other] = [(); 2].map(|()| place.open());
    let token = mine(stopped.get_or_claim(id(1), HOLD).await);
    assert!(is_theirs(&other.get_or_claim(id(1), HOLD).await));
    // The claim has expired.
    let claim = File::options()
        .write(true)
        .open(place.claim(id(1)))
        .unwrap();
    claim.set_modified(SystemTime::now() - HOLD).unwrap();
    let newer = mine(other.get_or_claim(id(1), HOLD).await);
    let late = stopped.put(id(1), entry(b"head", b"late"), LONG, Some(token));
    assert_eq!(late.await, Ok(PutOutcome::Superseded));
    let put = other.put(id(1), entry(b"head", b"body"), LONG, Some(newer));
    assert_eq!(put.await, Ok(PutOutcome::Stored));
}

#[tokio::test]
async fn there_are_so_many_claims_and_no_more() {
    let place = Place::new();
    let [one, other] = [(); 2].map(|()| place.open());
    for number in 0..256 {
        mine(one.get_or_claim(id(number), HOLD).await);
    }
    assert!(one.get_or_claim(id(256), HOLD).await.is_err());
    mine(other.get_or_claim(id(256), HOLD).await);
}
