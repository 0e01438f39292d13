//! The log that processes share.

use std::time::Duration;

use microcache_store::{SharedTier, TierError};

use crate::node::Node;
use crate::pool::{Pool, patient, quick};
use crate::shared_log::{
    BEGINNING, append, is_read_in_order, is_read_page_by_page, last, read, texts,
};

#[tokio::test]
async fn what_one_appends_the_other_reads_in_order() {
    let nodes = [Node::start(), Node::start()];
    let [one, other] = [(); 2].map(|()| Pool::new(&nodes, patient()));
    is_read_in_order(&*one, &*other).await;
}

#[tokio::test]
async fn a_long_log_is_read_page_by_page() {
    let node = Node::start();
    let pool = Pool::new([&node], patient());
    is_read_page_by_page(&*pool).await;
}

#[tokio::test]
async fn a_log_that_was_lost_says_so() {
    let mut node = Node::start();
    let pool = Pool::new([&node], quick());
    append(&*pool, &["a"]).await;
    let before = last(&read(&*pool, 0).await);
    node.kill();
    node.restart();
    let anew = loop {
        match pool.read_log(before, BEGINNING).await {
            Ok(page) if !page.records.is_empty() => break page,
            // It is not in service again yet.
            _ => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    assert_eq!(texts(&anew), ["beginning"]);
    assert!(!anew.is_gapless);
    assert!(last(&anew) > before, "no position is given twice");
}

#[tokio::test]
async fn a_record_that_was_lost_says_so() {
    let node = Node::start();
    let pool = Pool::new([&node], patient());
    append(&*pool, &["a", "b", "c"]).await;
    let end = last(&read(&*pool, 0).await);
    node.command(&format!("md mcl1:{}\r\n", end - 1));
    let page = read(&*pool, 0).await;
    assert_eq!(texts(&page), ["c"]);
    assert!(!page.is_gapless);
}

#[tokio::test]
async fn a_writer_that_dies_before_it_has_written_keeps_nobody_from_reading() {
    let node = Node::start();
    let pool = Pool::new([&node], patient());
    append(&*pool, &["a"]).await;
    let end = last(&read(&*pool, 0).await);
    // It has counted, and is gone; the next one writes.
    node.command("ma mcl1\r\n");
    append(&*pool, &["b"]).await;
    let page = loop {
        let page = read(&*pool, end).await;
        if !page.records.is_empty() {
            break page;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(
        texts(&page),
        ["beginning", "b"],
        "nobody knows what is missing"
    );
    assert!(page.is_gapless);
}

#[tokio::test]
async fn all_look_in_the_same_place_even_if_it_is_lost() {
    let mut nodes = [Node::start(), Node::start(), Node::start()];
    let pool = Pool::new(&nodes, quick());
    append(&*pool, &["a"]).await;
    let holder = nodes.iter().position(|node| node.has("mcl1"));
    nodes[holder.expect("one has it")].kill();
    let mut refused = 0;
    while refused < 3 {
        let read = pool.read_log(0, BEGINNING).await;
        refused += u32::from(read == Err(TierError::Down));
    }
    let mut others = (0..).zip(&nodes).filter(|(at, _)| Some(*at) != holder);
    assert!(others.all(|(_, node)| !node.has("mcl1")));
}
