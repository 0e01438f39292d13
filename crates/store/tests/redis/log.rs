//! The log that processes share.

use microcache_store::SharedTier;

use crate::server::Server;
use crate::shared_log::{
    BEGINNING, append, is_read_in_order, is_read_page_by_page, last, read, texts,
};
use crate::{pair, settings, start};

fn key(server: &Server) -> String {
    let keys: Vec<String> = server.say("KEYS mcl1:*");
    keys.into_iter().next().expect("the log")
}

#[tokio::test]
async fn what_one_appends_the_other_reads_in_order() {
    let (server, one) = pair().await;
    let other = start(settings(&server.url())).await;
    is_read_in_order(&*one, &*other).await;
}

#[tokio::test]
async fn a_long_log_is_read_page_by_page() {
    let (_server, redis) = pair().await;
    is_read_page_by_page(&*redis).await;
}

#[tokio::test]
async fn a_log_that_was_lost_or_shortened_says_so() {
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
    assert!(last(&anew) > last(&page), "no position is given twice");
}

#[tokio::test]
async fn a_log_whose_end_was_lost_with_a_master_says_so() {
    let (server, redis) = pair().await;
    append(&*redis, &["a", "b"]).await;
    let before = last(&read(&*redis, 0).await);
    // The replica did not have it yet.
    let () = server.say(&format!("XDEL {} {before}-0", key(&server)));
    append(&*redis, &["c"]).await;
    let page = read(&*redis, before).await;
    assert_eq!(texts(&page), ["beginning", "a", "c"]);
    assert!(!page.is_gapless);
}

#[tokio::test]
async fn what_is_no_log_is_an_error() {
    let (server, redis) = pair().await;
    append(&*redis, &[]).await;
    let key = key(&server);
    let () = server.say(&format!("DEL {key}"));
    let () = server.say(&format!("SET {key} text"));
    assert!(redis.read_log(0, 0, BEGINNING).await.is_err());
    assert!(redis.append_to_log(0, vec![], BEGINNING).await.is_err());
    let () = server.say(&format!("DEL {key}"));
    let () = server.say(&format!("XADD {key} 5-5 field value"));
    assert!(redis.read_log(0, 0, BEGINNING).await.is_err());
}
