//! Shared purge log.

use std::time::Duration;

use bytes::Bytes;
use microcache_store::{LogPage, SharedTier, TierError, has_read};
use microcache_testkit::{TierServer, eventually_async};

use crate::pool::{Pool, patient, quick};
use crate::shared_log::{
    BEGINNING, append, is_read_in_order, is_read_page_by_page, last, read, texts,
};

async fn append_at(pool: &Pool, copy: usize, records: &[&'static str]) {
    let records = records
        .iter()
        .map(|text| Bytes::from_static(text.as_bytes()));
    let appended = pool.append_to_log(copy, records.collect(), BEGINNING).await;
    appended.expect("a copy that works");
}

async fn read_at(pool: &Pool, copy: usize, after: u64) -> LogPage {
    let page = pool.read_log(copy, after, BEGINNING).await;
    page.expect("a copy that works")
}

#[tokio::test]
async fn appended_records_are_read_in_order_by_another_process() {
    let nodes = [(); 2].map(|()| TierServer::memcached());
    let [one, other] = [(); 2].map(|()| Pool::new(&nodes, patient()));
    is_read_in_order(&*one, &*other).await;
}

#[tokio::test]
async fn a_long_log_is_read_page_by_page() {
    let node = TierServer::memcached();
    let pool = Pool::new([&node], patient());
    is_read_page_by_page(&*pool).await;
}

#[tokio::test]
async fn a_lost_log_is_detected() {
    let mut node = TierServer::memcached();
    let pool = Pool::new([&node], quick());
    append(&*pool, &["a"]).await;
    let before = last(&read(&*pool, 0).await);
    node.kill();
    node.restart();
    let anew = loop {
        match pool.read_log(0, before, BEGINNING).await {
            Ok(page) if !page.records.is_empty() => break page,
            // Not yet back in service.
            _ => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    assert_eq!(texts(&anew), ["beginning"]);
    assert!(!anew.is_gapless);
    assert!(!has_read(before, last(&anew)), "it is another log");
}

#[tokio::test]
async fn a_lost_record_is_detected() {
    let node = TierServer::memcached();
    let pool = Pool::new([&node], patient());
    append(&*pool, &["a", "b", "c"]).await;
    let end = last(&read(&*pool, 0).await);
    node.command(&format!("md mcl1:{}\r\n", end - 1));
    let page = read(&*pool, 0).await;
    assert_eq!(texts(&page), ["c"]);
    assert!(!page.is_gapless);
}

#[tokio::test]
async fn a_writer_that_dies_before_writing_blocks_no_reader() {
    let node = TierServer::memcached();
    let pool = Pool::new([&node], patient());
    append(&*pool, &["a"]).await;
    let end = last(&read(&*pool, 0).await);
    // Killed between counting and storing; the next writer continues.
    node.command("ma mcl1\r\n");
    append(&*pool, &["b"]).await;
    let page = loop {
        let page = read(&*pool, end).await;
        if !page.records.is_empty() {
            break page;
        }
        assert!(page.is_held_up && !page.has_more);
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(
        texts(&page),
        ["beginning", "b"],
        "nobody knows what is missing"
    );
    assert!(page.is_gapless && !page.is_held_up);
}

#[tokio::test]
async fn a_log_that_begins_anew_is_another_one() {
    let node = TierServer::memcached();
    let pool = Pool::new([&node], patient());
    append(&*pool, &["a"]).await;
    let before = last(&read(&*pool, 0).await);
    node.command("md mcl1\r\n");
    let page = read(&*pool, before).await;
    assert_eq!(texts(&page), ["beginning"]);
    assert!(!page.is_gapless && !page.was_unreadable);
    let after = last(&page);
    assert!(!has_read(before, after) && !has_read(after, before));
}

#[tokio::test]
async fn a_counter_that_cannot_be_read_is_a_lost_log() {
    let node = TierServer::memcached();
    let pool = Pool::new([&node], patient());
    for odd in ["text", "7", "18446744073709551616", ""] {
        append(&*pool, &["a"]).await;
        let before = last(&read(&*pool, 0).await);
        node.set("mcl1", odd.as_bytes());
        let page = read(&*pool, before).await;
        assert_eq!(texts(&page), ["beginning"], "{odd}");
        assert!(!page.is_gapless && page.was_unreadable, "{odd}");
        let anew = last(&page);
        let page = read(&*pool, anew).await;
        assert!(page.is_gapless && page.records.is_empty(), "{odd}");
        append(&*pool, &["b"]).await;
        assert_eq!(texts(&read(&*pool, anew).await), ["b"], "{odd}");
    }
    // The counter overflows and is invalid afterwards.
    let before = last(&read(&*pool, 0).await);
    node.set("mcl1", b"18446744073709551614");
    let reported = pool.append_to_log(0, vec![Bytes::from_static(b"c"); 3], BEGINNING);
    assert!(
        reported.await.is_err(),
        "who tells is not answered as if it was told"
    );
    let page = read(&*pool, before).await;
    assert!(!page.is_gapless && page.was_unreadable);
    append(&*pool, &["c"]).await;
    assert_eq!(texts(&read(&*pool, last(&page)).await), ["c"]);
}

#[tokio::test]
async fn two_copies_are_on_two_servers_in_any_order_of_the_list() {
    let nodes = [(); 4].map(|()| TierServer::memcached());
    let pool = Pool::new(&nodes, patient());
    assert_eq!(pool.log_copies(), 2);
    append(&*pool, &["a"]).await;
    append_at(&pool, 1, &["b"]).await;
    let holders = |name: &str| {
        let have = nodes.iter().filter(|node| node.has(name));
        have.map(TierServer::port).collect::<Vec<_>>()
    };
    let [first, second] = ["mcl1", "mcl1b"].map(holders);
    assert_eq!((first.len(), second.len()), (1, 1));
    assert_ne!(first, second);
    let reversed = Pool::new(nodes.iter().rev(), patient());
    assert_eq!(texts(&read(&*reversed, 0).await), ["beginning", "a"]);
    assert_eq!(texts(&read_at(&reversed, 1, 0).await), ["beginning", "b"]);
    let alone = Pool::new([&nodes[0]], patient());
    assert_eq!(alone.log_copies(), 1);
    assert_eq!(alone.read_log(1, 0, BEGINNING).await, Err(TierError::Down));
}

#[tokio::test]
async fn a_copy_does_not_miss_changes_of_the_other() {
    for lost in [0, 1] {
        let mut nodes = [(); 3].map(|()| TierServer::memcached());
        let pool = Pool::new(&nodes, quick());
        for copy in [0, 1] {
            append_at(&pool, copy, &["a"]).await;
        }
        let other = 1 - lost;
        let before = last(&read_at(&pool, other, 0).await);
        let name = ["mcl1", "mcl1b"][lost];
        let holder = nodes.iter().position(|node| node.has(name));
        nodes[holder.expect("one has it")].kill();
        let down = async || pool.read_log(lost, 0, BEGINNING).await == Err(TierError::Down);
        eventually_async("the loss", async || down().await).await;
        append_at(&pool, other, &["b"]).await;
        let page = read_at(&pool, other, before).await;
        assert_eq!(texts(&page), ["b"]);
        assert!(page.is_gapless);
        nodes[holder.expect("one has it")].restart();
        eventually_async("the log", async || !down().await).await;
        let anew = read_at(&pool, lost, 0).await;
        assert_eq!(texts(&anew), ["beginning"]);
    }
}

#[tokio::test]
async fn all_look_in_the_same_place_even_if_it_is_lost() {
    let mut nodes = [(); 3].map(|()| TierServer::memcached());
    let pool = Pool::new(&nodes, quick());
    append(&*pool, &["a"]).await;
    let holder = nodes.iter().position(|node| node.has("mcl1"));
    nodes[holder.expect("one has it")].kill();
    let mut refused = 0;
    while refused < 3 {
        let read = pool.read_log(0, 0, BEGINNING).await;
        refused += u32::from(read == Err(TierError::Down));
    }
    let mut others = (0..).zip(&nodes).filter(|(at, _)| Some(*at) != holder);
    assert!(others.all(|(_, node)| !node.has("mcl1")));
}
