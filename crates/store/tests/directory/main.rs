//! Shared directory, black box: several handles and processes, real kills.

mod claims;
mod damage;
mod large;
mod place;
mod processes;
mod room;
#[path = "../shared/log.rs"]
mod shared_log;
#[path = "../shared/records.rs"]
mod shared_records;

use microcache_store::{PutOutcome, SharedTier, Tier, has_read};
use microcache_testkit::eventually_async;

use crate::place::{HOLD, LONG, Place, entry, found, id, open_with};
use crate::shared_log::{append, is_read_in_order, is_read_page_by_page, last, read, texts};

#[tokio::test]
async fn a_record_put_by_one_process_is_found_by_another() {
    let place = Place::new();
    let [one, other] = [(); 2].map(|()| place.open());
    for (number, size) in [(0, 0), (1, 1), (2, 4096), (3, 131_072), (4, 1_000_000)] {
        let body = vec![number as u8; size];
        let stored = one.put(id(number), entry(b"head", &body), LONG, None).await;
        assert_eq!(stored, Ok(PutOutcome::Stored));
        assert_eq!(
            found(other.get(id(number)).await),
            Some((b"head".to_vec(), body))
        );
        let head = other.head(id(number)).await.expect("it is there");
        assert_eq!(head.as_deref(), Some(&b"head"[..]));
    }
    other.remove(id(1)).await.expect("removed");
    other.remove(id(99)).await.expect("nothing is there");
    assert_eq!(found(one.get(id(1)).await), None);
}

#[tokio::test]
async fn expired_entries_are_not_found() {
    let place = Place::new();
    let settings = place.settings();
    let soon = open_with(microcache_store::DirectorySettings {
        keep_longer: std::time::Duration::ZERO,
        ..settings
    });
    let now = std::time::Duration::ZERO;
    assert_eq!(
        soon.put(id(1), entry(b"h", b"b"), now, None).await,
        Ok(PutOutcome::Stored)
    );
    eventually_async("its end", async || found(soon.get(id(1)).await).is_none()).await;
    // A tier with longer retention still has it, although stale.
    let long = place.open();
    assert_eq!(
        long.put(id(1), entry(b"h", b"b"), now, None).await,
        Ok(PutOutcome::Stored)
    );
    assert!(found(long.get(id(1)).await).is_some());
}

#[tokio::test]
async fn a_head_is_renewed_if_it_is_the_one_that_was_seen() {
    let place = Place::new();
    let tier = place.open();
    tier.put(id(1), entry(b"one", b"body"), LONG, None)
        .await
        .unwrap();
    let renew = |from: &'static [u8], to: &'static [u8]| {
        tier.renew(id(1), from.into(), to.into(), LONG, None)
    };
    assert_eq!(renew(b"two", b"three").await, Ok(PutOutcome::Superseded));
    assert_eq!(renew(b"one", b"two").await, Ok(PutOutcome::Stored));
    assert_eq!(
        found(tier.get(id(1)).await),
        Some((b"two".to_vec(), b"body".to_vec()))
    );
    tier.remove(id(1)).await.unwrap();
    assert_eq!(renew(b"two", b"three").await, Ok(PutOutcome::Superseded));
    assert_eq!(found(tier.get_or_claim(id(1), HOLD).await), None);
}

#[tokio::test]
async fn a_log_of_any_length_is_read_in_order() {
    let place = Place::new();
    let [one, other] = [(); 2].map(|()| place.open());
    is_read_in_order(&*one, &*other).await;
    let place = Place::new();
    is_read_page_by_page(&*place.open()).await;
}

#[tokio::test]
async fn a_damaged_lost_or_shortened_log_is_detected() {
    let place = Place::new();
    let tier = place.open();
    append(&*tier, &["a"]).await;
    for damage in 0..3 {
        let before = last(&read(&*tier, 0).await);
        let log = place.home().join("log");
        let mut bytes = std::fs::read(&log).unwrap();
        match damage {
            0 => std::fs::remove_file(&log).unwrap(),
            1 => std::fs::write(&log, &bytes[..bytes.len() - 1]).unwrap(),
            _ => {
                bytes[20] ^= 1;
                std::fs::write(&log, &bytes).unwrap();
            }
        }
        let page = read(&*tier, before).await;
        assert_eq!(
            (page.is_gapless, texts(&page)),
            (false, vec!["beginning".to_owned()])
        );
        assert!(!has_read(before, last(&page)), "it is another log");
    }
    let before = last(&read(&*tier, 0).await);
    let long = "x".repeat(1000);
    for _ in 0..300 {
        append(&*tier, &[&long]).await;
    }
    let page = read(&*tier, before).await;
    assert!(!page.is_gapless && page.records.len() < 300);
    let size = std::fs::metadata(place.home().join("log")).unwrap().len();
    assert!(size <= 256 * 1024, "{size}");
    // More than fits into the log: the beginning stands for all records.
    let end = last(&page);
    append(&*tier, &[long.as_str(); 200]).await;
    let page = read(&*tier, end).await;
    assert_eq!(
        (page.is_gapless, texts(&page)),
        (true, vec!["beginning".to_owned()])
    );
}
