//! Paged listing, and removal of listed entries.

use microcache_policy::vary::VaryNames;
use microcache_policy::{Fields, Lifetime, Time};
use microcache_store::{Epoch, ListEntry, LocalTier, Stored, encoding};

use super::*;

impl Place {
    /// Lists all entries, in pages of at most `most`.
    fn list(&self, disk: &Disk, most: usize) -> Vec<ListEntry> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = self.runtime.block_on(disk.list(after, most));
            let page = page.expect("a working disk");
            assert!(page.entries.len() <= most);
            all.extend(page.entries);
            match page.next {
                None => return all,
                next => after = next,
            }
        }
    }

    fn remove_listed(&self, disk: &Disk, seen: &ListEntry) -> bool {
        let removed = self.runtime.block_on(disk.remove_listed(seen));
        removed.expect("a working disk")
    }
}

#[test]
fn every_entry_is_listed_once_in_order_with_any_page_size() {
    let mut place = Place::new();
    let settings = place.settings(64 * MIB);
    let mut disk = place.open(settings.clone());
    assert!(place.list(&disk, 10).is_empty());
    for number in 0..600 {
        let key = number.to_string();
        place.put(&disk, &key, key.as_bytes(), body(number, 100));
    }
    place.put(&disk, "large", b"large", body(7, 300_000));
    for most in [1, 7, 601, usize::MAX] {
        let all = place.list(&disk, most);
        assert_eq!(all.len(), 601);
        assert!(all.is_sorted_by(|one, next| one.id < next.id));
        for listed in &all {
            let head = std::str::from_utf8(&listed.head).unwrap();
            assert_eq!(listed.id, id(head));
        }
    }
    // Before the scan is complete.
    disk = place.reopen(disk, &settings);
    assert_eq!(place.list(&disk, 100).len(), 601);
}

#[test]
fn listed_records_are_removed_and_newer_ones_stay() {
    let mut place = Place::new();
    let settings = place.settings(64 * MIB);
    let mut disk = place.open(settings.clone());
    place.put(&disk, "gone", b"head", body(1, 200_000));
    place.put(&disk, "renewed", b"head", body(2, 100));
    let all = place.list(&disk, 10);
    place.put(&disk, "renewed", b"another head", body(2, 100));
    for listed in &all {
        let is_old = listed.id == id("gone");
        assert_eq!(place.remove_listed(&disk, listed), is_old);
        assert!(!place.remove_listed(&disk, listed), "a second time");
    }
    for _ in 0..2 {
        assert!(place.get(&disk, "gone").is_none());
        let renewed = place.get(&disk, "renewed").expect("it stayed");
        assert_eq!(renewed.head, &b"another head"[..]);
        disk = place.reopen(disk, &settings);
    }
    assert_eq!(place.used().1, 1);
}

#[test]
fn a_head_describes_the_record() {
    let place = Place::new();
    let disk = place.open(place.settings(64 * MIB));
    let lifetime = Lifetime::from_bytes(&[0; Lifetime::ENCODED_LEN]);
    let lifetime = lifetime.expect("all zeros is a lifetime");
    let stored = Stored::new(
        b"key",
        404,
        Fields::new(b"Server: a\r\n"),
        Content::default(),
        lifetime,
        Time::from_secs(9),
    );
    let vary = VaryNames::from_bytes(b"accept-language").expect("a name");
    let stored = stored.with_vary(vary, b"selection");
    let head = encoding::encode(
        b"key",
        &stored,
        (4, encoding::checksum(b"body")),
        Epoch::now(),
    );
    place.put(&disk, "one", &head, Bytes::from_static(b"body"));
    place.put(&disk, "other", b"no head of ours", Bytes::new());
    let heads: Vec<_> = place
        .list(&disk, 10)
        .iter()
        .filter_map(ListEntry::response)
        .collect();
    let [head] = &heads[..] else {
        panic!("{heads:?}")
    };
    assert_eq!(
        (&head.key[..], head.status, head.body_len),
        (&b"key"[..], 404, 4)
    );
    assert_eq!(head.fields.fields().as_block(), b"Server: a\r\n");
    assert_eq!(head.selection, &b"selection"[..]);
    assert_eq!(head.began, Time::from_secs(9));
    assert_eq!(head.lifetime, lifetime);
}
