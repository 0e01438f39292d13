//! The log that processes share.

use bytes::Bytes;
use microcache_store::redis::Redis;
use microcache_store::{LogPage, SharedTier};

use crate::server::Server;
use crate::{pair, settings, start};

const BEGINNING: Bytes = Bytes::from_static(b"beginning");

/// More than are read at once.
const MANY: usize = 1_500;

async fn append(redis: &Redis, records: &[&str]) {
    let records = records
        .iter()
        .map(|text| Bytes::from(text.as_bytes().to_vec()));
    let appended = redis.append_to_log(records.collect(), BEGINNING).await;
    appended.unwrap_or_else(|error| panic!("{error}"));
}

async fn read(redis: &Redis, after: u64) -> LogPage {
    let page = redis.read_log(after, BEGINNING).await;
    page.unwrap_or_else(|error| panic!("{error}"))
}

fn texts(page: &LogPage) -> Vec<String> {
    let text = |record: &Bytes| String::from_utf8(record.to_vec()).expect("text");
    page.records
        .iter()
        .map(|(_, record)| text(record))
        .collect()
}

fn last(page: &LogPage) -> u64 {
    page.records.last().expect("a record").0
}

fn key(server: &Server) -> String {
    let keys: Vec<String> = server.say("KEYS mcl1:*");
    keys.into_iter().next().expect("the log")
}

#[tokio::test]
async fn what_one_appends_the_other_reads_in_order() {
    let (server, one) = pair().await;
    let other = start(settings(&server.url())).await;
    append(&one, &["a", "b"]).await;
    let page = read(&other, 0).await;
    assert_eq!(texts(&page), ["beginning", "a", "b"]);
    assert!(!page.is_gapless && !page.has_more);
    append(&other, &["c"]).await;
    append(&one, &["d"]).await;
    let later = read(&other, last(&page)).await;
    assert_eq!(texts(&later), ["c", "d"]);
    assert!(later.is_gapless);
    assert!(later.records.is_sorted_by_key(|(position, _)| *position));
    let nothing = read(&other, last(&later)).await;
    assert!(nothing.is_gapless && nothing.records.is_empty());
}

#[tokio::test]
async fn a_long_log_is_read_page_by_page() {
    let (_server, redis) = pair().await;
    let numbers: Vec<_> = (0..MANY).map(|number| number.to_string()).collect();
    let records: Vec<_> = numbers.iter().map(String::as_str).collect();
    for some in records.chunks(400) {
        append(&redis, some).await;
    }
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        let page = read(&redis, after).await;
        assert_eq!(page.is_gapless, after > 0);
        all.extend(texts(&page));
        after = last(&page);
        if !page.has_more {
            break;
        }
    }
    assert_eq!(all[0], "beginning");
    assert_eq!(all[1..], numbers);
}

#[tokio::test]
async fn a_log_that_was_lost_or_shortened_says_so() {
    let (server, redis) = pair().await;
    append(&redis, &["a", "b", "c"]).await;
    let before = last(&read(&redis, 0).await);
    let key = key(&server);
    append(&redis, &["d", "e"]).await;
    let () = server.say(&format!("XTRIM {key} MAXLEN 1"));
    let page = read(&redis, before).await;
    assert_eq!(texts(&page), ["e"]);
    assert!(!page.is_gapless, "d is missing");
    let () = server.say(&format!("DEL {key}"));
    let anew = read(&redis, last(&page)).await;
    assert_eq!(texts(&anew), ["beginning"]);
    assert!(!anew.is_gapless);
    assert!(last(&anew) > last(&page), "no position is given twice");
}

#[tokio::test]
async fn a_log_whose_end_was_lost_with_a_master_says_so() {
    let (server, redis) = pair().await;
    append(&redis, &["a", "b"]).await;
    let before = last(&read(&redis, 0).await);
    // The replica did not have it yet.
    let () = server.say(&format!("XDEL {} {before}-0", key(&server)));
    append(&redis, &["c"]).await;
    let page = read(&redis, before).await;
    assert_eq!(texts(&page), ["beginning", "a", "c"]);
    assert!(!page.is_gapless);
}

#[tokio::test]
async fn what_is_no_log_is_an_error() {
    let (server, redis) = pair().await;
    append(&redis, &[]).await;
    let key = key(&server);
    let () = server.say(&format!("DEL {key}"));
    let () = server.say(&format!("SET {key} text"));
    assert!(redis.read_log(0, BEGINNING).await.is_err());
    assert!(redis.append_to_log(vec![], BEGINNING).await.is_err());
    let () = server.say(&format!("DEL {key}"));
    let () = server.say(&format!("XADD {key} 5-5 field value"));
    assert!(redis.read_log(0, BEGINNING).await.is_err());
}
