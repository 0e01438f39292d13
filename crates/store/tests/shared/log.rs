//! Laws of the shared purge log, for every shared tier.

use bytes::Bytes;
use microcache_store::{LogPage, SharedTier};

pub(crate) const BEGINNING: Bytes = Bytes::from_static(b"beginning");
/// More records than fit on one page.
const MANY: usize = 1_500;

pub(crate) async fn append(tier: &dyn SharedTier, records: &[&str]) {
    let records = records
        .iter()
        .map(|text| Bytes::from(text.as_bytes().to_vec()));
    let appended = tier.append_to_log(0, records.collect(), BEGINNING).await;
    appended.expect("a tier that works");
}

pub(crate) async fn read(tier: &dyn SharedTier, after: u64) -> LogPage {
    let page = tier.read_log(0, after, BEGINNING).await;
    page.expect("a tier that works")
}

pub(crate) fn texts(page: &LogPage) -> Vec<String> {
    let text = |record: &Bytes| String::from_utf8(record.to_vec()).expect("text");
    page.records
        .iter()
        .map(|(_, record)| text(record))
        .collect()
}

pub(crate) fn last(page: &LogPage) -> u64 {
    page.records.last().expect("a record").0
}

/// Records appended by one process are read by the other in order.
pub(crate) async fn is_read_in_order(one: &dyn SharedTier, other: &dyn SharedTier) {
    append(one, &["a", "b"]).await;
    let page = read(other, 0).await;
    assert_eq!(texts(&page), ["beginning", "a", "b"]);
    assert!(!page.is_gapless && !page.has_more);
    append(other, &["c"]).await;
    append(one, &["d"]).await;
    let later = read(other, last(&page)).await;
    assert_eq!(texts(&later), ["c", "d"]);
    assert!(later.is_gapless);
    assert!(later.records.is_sorted_by_key(|(position, _)| *position));
    let nothing = read(other, last(&later)).await;
    assert!(nothing.is_gapless && nothing.records.is_empty());
}

/// A long log is read page by page.
pub(crate) async fn is_read_page_by_page(tier: &dyn SharedTier) {
    let numbers: Vec<_> = (0..MANY).map(|number| number.to_string()).collect();
    let records: Vec<_> = numbers.iter().map(String::as_str).collect();
    for some in records.chunks(400) {
        append(tier, some).await;
    }
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        let page = read(tier, after).await;
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
