//! Whatever `Cache-Status` says, a parser of structured fields reads the same back.

#![no_main]

use libfuzzer_sys::fuzz_target;
use microcache_policy::{CacheStatus, Detail, Forward};
use sfv::{BareItem, List, ListEntry, Parser};

/// Flags, `fwd`, `fwd-status`, `ttl`, `detail`.
type Input = (u8, Option<u8>, Option<u16>, Option<i64>, Option<u8>);

const FORWARDS: [Forward; 8] = [
    Forward::Bypass,
    Forward::Method,
    Forward::UriMiss,
    Forward::VaryMiss,
    Forward::Miss,
    Forward::Request,
    Forward::Stale,
    Forward::Partial,
];

fn one_of<T: Copy>(all: &[T], index: u8) -> T {
    all[usize::from(index) % all.len()]
}

fuzz_target!(|input: Input| {
    let (flags, fwd, fwd_status, ttl, detail) = input;
    let status = CacheStatus {
        hit: flags & 1 != 0,
        stored: flags & 2 != 0,
        collapsed: flags & 4 != 0,
        fwd: fwd.map(|index| one_of(&FORWARDS, index)),
        fwd_status,
        ttl,
        detail: detail.map(|index| one_of(Detail::ALL, index)),
        coding: None,
        is_hidden: false,
    };
    let mut written = Vec::new();
    status.write(&mut written);
    let list: List = Parser::new(&written).parse().expect("a structured field");
    let [ListEntry::Item(item)] = &list[..] else {
        panic!("not one item: {list:?}")
    };
    let parameter = |name| item.params.get(name);
    let flag = |name| parameter(name) == Some(&BareItem::Boolean(true));
    let word = |name| match parameter(name) {
        Some(BareItem::Token(token)) => Some(token.as_str()),
        Some(BareItem::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let number = |name| match parameter(name) {
        Some(BareItem::Integer(number)) => Some(i64::from(*number)),
        _ => None,
    };
    assert_eq!(flag("hit"), status.hit);
    assert_eq!(flag("stored"), status.stored);
    assert_eq!(flag("collapsed"), status.collapsed);
    assert_eq!(
        word("fwd"),
        status.fwd.filter(|_| !status.hit).map(Forward::as_str)
    );
    assert_eq!(word("detail"), status.detail.map(Detail::as_str));
    assert_eq!(number("fwd-status"), status.fwd_status.map(i64::from));
    let largest = 999_999_999_999_999;
    let ttl = status.ttl.filter(|_| status.hit);
    assert_eq!(number("ttl"), ttl.map(|ttl| ttl.clamp(-largest, largest)));
});
