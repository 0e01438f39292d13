//! The log that processes share.

use std::time::Duration;

use bytes::Bytes;
use microcache_store::{LogPage, SharedTier, TierError};

use crate::node::Node;
use crate::pool::{Pool, patient, quick};

const BEGINNING: Bytes = Bytes::from_static(b"beginning");
/// More than are read at once.
const MANY: usize = 1_500;

async fn append(pool: &Pool, records: &[&str]) {
    let records = records
        .iter()
        .map(|text| Bytes::from(text.as_bytes().to_vec()));
    let appended = pool.append_to_log(records.collect(), BEGINNING).await;
    appended.expect("a pool that works");
}

async fn read(pool: &Pool, after: u64) -> LogPage {
    let page = pool.read_log(after, BEGINNING).await;
    page.expect("a pool that works")
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

#[tokio::test]
async fn what_one_appends_the_other_reads_in_order() {
    let nodes = [Node::start(), Node::start()];
    let [one, other] = [(); 2].map(|()| Pool::new(&nodes, patient()));
    append(&one, &["a", "b"]).await;
    let page = read(&other, 0).await;
    assert_eq!(texts(&page), ["beginning", "a", "b"]);
    assert!(!page.is_gapless && !page.has_more);
    append(&other, &["c"]).await;
    append(&one, &["d"]).await;
    let later = read(&other, last(&page)).await;
    assert_eq!(texts(&later), ["c", "d"]);
    assert!(later.is_gapless);
    let nothing = read(&other, last(&later)).await;
    assert!(nothing.is_gapless && nothing.records.is_empty());
}

#[tokio::test]
async fn a_long_log_is_read_page_by_page() {
    let node = Node::start();
    let pool = Pool::new([&node], patient());
    let numbers: Vec<_> = (0..MANY).map(|number| number.to_string()).collect();
    let records: Vec<_> = numbers.iter().map(String::as_str).collect();
    for some in records.chunks(400) {
        append(&pool, some).await;
    }
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        let page = read(&pool, after).await;
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
async fn a_log_that_was_lost_says_so() {
    let mut node = Node::start();
    let pool = Pool::new([&node], quick());
    append(&pool, &["a"]).await;
    let before = last(&read(&pool, 0).await);
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
    append(&pool, &["a", "b", "c"]).await;
    let end = last(&read(&pool, 0).await);
    node.command(&format!("md mcl1:{}\r\n", end - 1));
    let page = read(&pool, 0).await;
    assert_eq!(texts(&page), ["c"]);
    assert!(!page.is_gapless);
}

#[tokio::test]
async fn a_writer_that_dies_before_it_has_written_keeps_nobody_from_reading() {
    let node = Node::start();
    let pool = Pool::new([&node], patient());
    append(&pool, &["a"]).await;
    let end = last(&read(&pool, 0).await);
    // It has counted, and is gone; the next one writes.
    node.command("ma mcl1\r\n");
    append(&pool, &["b"]).await;
    let page = loop {
        let page = read(&pool, end).await;
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
    append(&pool, &["a"]).await;
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
