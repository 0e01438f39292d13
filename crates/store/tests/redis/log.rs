//! Shared purge log.

use microcache_store::{SharedTier, count_in_log, has_read, log_number};

use crate::server::Server;
use crate::shared_log::{
    BEGINNING, append, is_read_in_order, is_read_page_by_page, last, read, texts,
};
use crate::{pair, settings, start};

/// Stream id of a position.
fn entry_id(position: u64) -> String {
    format!("{}-{}", log_number(position), count_in_log(position))
}

/// Time of the server, in milliseconds.
fn now(server: &Server) -> u64 {
    let (seconds, micros): (u64, u64) = server.say("TIME");
    seconds * 1000 + micros / 1000
}

fn key(server: &Server) -> String {
    let keys: Vec<String> = server.say("KEYS mcl1:*");
    keys.into_iter().next().expect("the log")
}

#[tokio::test]
async fn appended_records_are_read_in_order_by_another_process() {
    let (server, one) = pair().await;
    let other = start(settings(&server.address())).await;
    is_read_in_order(&*one, &*other).await;
}

#[tokio::test]
async fn a_long_log_is_read_page_by_page() {
    let (_server, redis) = pair().await;
    is_read_page_by_page(&*redis).await;
}

#[tokio::test]
async fn a_lost_or_shortened_log_is_detected() {
    let (server, redis) = pair().await;
    append(&*redis, &["a", "b", "c"]).await;
    let before = last(&read(&*redis, 0).await);
    let key = key(&server);
    append(&*redis, &["d", "e"]).await;
    let () = server.say(&format!("XTRIM {key} MAXLEN 1"));
    let page = read(&*redis, before).await;
    assert_eq!(texts(&page), ["e"]);
    assert!(!page.is_gapless, "d is missing");
    let () = server.say(&format!("DEL {key}"));
    let anew = read(&*redis, last(&page)).await;
    assert_eq!(texts(&anew), ["beginning"]);
    assert!(!anew.is_gapless);
    let (old, new) = (last(&page), last(&anew));
    assert_ne!(log_number(old), log_number(new), "it is another log");
    assert!(!has_read(old, new) && !has_read(new, old));
}

#[tokio::test]
async fn a_log_whose_end_was_lost_with_a_master_is_detected() {
    let (server, redis) = pair().await;
    append(&*redis, &["a", "b"]).await;
    let before = last(&read(&*redis, 0).await);
    // Not yet replicated.
    let () = server.say(&format!("XDEL {} {}", key(&server), entry_id(before)));
    let lost = count_in_log(before);
    while now(&server) <= lost {}
    append(&*redis, &["c"]).await;
    let page = read(&*redis, before).await;
    assert_eq!(texts(&page), ["beginning", "a", "c"]);
    assert!(!page.is_gapless);
    assert!(last(&page) > before, "no position is given twice");
}

#[tokio::test]
async fn a_full_server_takes_records_and_keeps_the_log() {
    let (server, redis) = pair().await;
    append(&*redis, &["a"]).await;
    let before = last(&read(&*redis, 0).await);
    let () = server.say("CONFIG SET maxmemory 1");
    append(&*redis, &["b"]).await;
    let page = read(&*redis, before).await;
    assert_eq!(texts(&page), ["b"]);
    assert!(page.is_gapless);
}

#[tokio::test]
async fn a_server_without_room_for_the_log_is_reported_with_the_remedy() {
    let server = Server::start(&["--maxmemory", "1", "--maxmemory-policy", "allkeys-lru"]);
    let redis = start(settings(&server.address())).await;
    let why = redis
        .read_log(0, 0, BEGINNING)
        .await
        .unwrap_err()
        .to_string();
    assert!(why.contains("raise maxmemory"), "{why}");
}

#[tokio::test]
async fn a_key_that_is_no_log_is_an_error() {
    let (server, redis) = pair().await;
    append(&*redis, &[]).await;
    let key = key(&server);
    let () = server.say(&format!("DEL {key}"));
    let () = server.say(&format!("SET {key} text"));
    assert!(redis.read_log(0, 0, BEGINNING).await.is_err());
    assert!(redis.append_to_log(0, vec![], BEGINNING).await.is_err());
}

/// Foreign entries of a stream, given the id of the last valid one.
fn odd_entries(last: u64) -> [String; 6] {
    let log = log_number(last);
    [
        "18446744073709551614-0 r record".to_owned(),
        "18446744073709551615-18446744073709551615 r record".to_owned(),
        format!("{log}-18446744073709551614 r record"),
        format!("{} r record", entry_id(last + (1 << 42))),
        format!("{} r record more fields", entry_id(last + 1)),
        format!("{} field value", entry_id(last + 1)),
    ]
}

#[tokio::test]
async fn an_unreadable_record_is_a_lost_log_for_its_readers() {
    let (server, redis) = pair().await;
    append(&*redis, &["a"]).await;
    let key = key(&server);
    for number in 0..6 {
        let before = last(&read(&*redis, 0).await);
        let odd = &odd_entries(before)[number];
        let () = server.say(&format!("XADD {key} {odd}"));
        let page = read(&*redis, before).await;
        assert_eq!(texts(&page), ["beginning"], "{odd}");
        assert!(!page.is_gapless && page.was_unreadable, "{odd}");
        let anew = last(&page);
        assert!(!has_read(before, anew), "{odd}");
        // Reported once, not on each read.
        let page = read(&*redis, anew).await;
        assert!(page.is_gapless && page.records.is_empty(), "{odd}");
        append(&*redis, &["b"]).await;
        assert_eq!(texts(&read(&*redis, anew).await), ["b"], "{odd}");
    }
}

#[tokio::test]
async fn an_unreadable_record_blocks_no_writer() {
    let (server, redis) = pair().await;
    append(&*redis, &["a"]).await;
    let key = key(&server);
    for number in 0..6 {
        let before = last(&read(&*redis, 0).await);
        let odd = &odd_entries(before)[number];
        let () = server.say(&format!("XADD {key} {odd}"));
        append(&*redis, &["b"]).await;
        // Whether writer or reader restarts the log: the appended record is in it, or a gap covers it.
        let page = read(&*redis, before).await;
        assert!(!page.is_gapless && !has_read(before, last(&page)), "{odd}");
        let reported = if page.was_unreadable {
            "beginning"
        } else {
            "b"
        };
        assert_eq!(texts(&page).last().expect("a record"), reported, "{odd}");
    }
}

#[tokio::test]
async fn a_clock_that_was_ahead_makes_no_position_later_than_those_of_another_log() {
    let (server, redis) = pair().await;
    append(&*redis, &["a"]).await;
    let key = key(&server);
    let tomorrow = last(&read(&*redis, 0).await) + 86_400_000;
    let () = server.say(&format!("XADD {key} {} r ahead", entry_id(tomorrow)));
    append(&*redis, &["b"]).await;
    let before = last(&read(&*redis, tomorrow).await);
    assert!(has_read(before, tomorrow), "it goes on after that");
    let () = server.say(&format!("DEL {key}"));
    append(&*redis, &["c"]).await;
    let page = read(&*redis, before).await;
    assert_eq!(texts(&page), ["beginning", "c"]);
    assert!(!page.is_gapless && !has_read(before, last(&page)));
}

#[tokio::test]
async fn an_empty_stream_is_begun_again_with_any_last_id() {
    let (server, redis) = pair().await;
    append(&*redis, &["a"]).await;
    let key = key(&server);
    let before = last(&read(&*redis, 0).await);
    let () = server.say(&format!("XADD {key} 18446744073709551614-7 r record"));
    let () = server.say(&format!("XTRIM {key} MAXLEN 0"));
    append(&*redis, &["b"]).await;
    let page = read(&*redis, before).await;
    assert_eq!(texts(&page), ["beginning", "b"]);
    assert!(!page.is_gapless);
}
