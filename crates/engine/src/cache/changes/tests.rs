use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use microcache_policy::Scheme;
use microcache_policy::tags::{Tag, TagKind};

use super::super::rule::tag_numbers;
use super::super::testing;
use super::*;

fn key_of(target: &str) -> Key {
    testing::key_of(Scheme::Http, "a.example", target)
}

fn next(watcher: &mut Watcher) -> Option<Notice> {
    let next = pin!(watcher.next());
    match next.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(notice) => Some(notice),
        Poll::Pending => None,
    }
}

fn number(notice: Option<Notice>) -> Option<u64> {
    match notice? {
        Notice::Changed(change) => Some(change.number),
        Notice::Missed(_) => None,
    }
}

fn store(changes: &Changes, key: &Key, tag: &str) {
    let tag = Tag::new(TagKind::Tag, tag.as_bytes());
    let tags = tag_numbers(key, [tag].into_iter());
    changes.notify_watchers(key, &tags, Some("\"v\"".into()), ChangeKind::Stored);
}

#[test]
fn a_watcher_gets_the_changes_of_its_target_only() {
    let changes = Arc::new(Changes::default());
    let host = Bytes::from_static(b"a.example");
    let watched = [
        WatchTarget::Key(key_of("/x")),
        WatchTarget::Scope(Scope::Everything),
        WatchTarget::Scope(Scope::Host(host.clone())),
        WatchTarget::Scope(Scope::prefixed(host.clone(), Bytes::from_static(b"/x"))),
        WatchTarget::Scope(Scope::Tag(Bytes::from_static(b"tag"))),
    ];
    let watchers = watched.map(|what| changes.watch(what).expect("not too many"));
    let mut watchers = watchers;
    store(&changes, &key_of("/x"), "other");
    store(&changes, &key_of("/xy"), "tag");
    store(&changes, &key_of("/z"), "tag");
    let received = watchers.each_mut().map(|watcher| {
        let numbers = std::iter::from_fn(|| number(next(watcher)));
        numbers.collect::<Vec<_>>()
    });
    let expected: [&[u64]; 5] = [&[1], &[1, 2, 3], &[1, 2, 3], &[1, 2], &[2, 3]];
    assert_eq!(received.each_ref().map(Vec::as_slice), expected);
    drop(watchers);
    assert_eq!(changes.watching.load(Ordering::Relaxed), 0);
    let index = changes.index.lock();
    assert!(index.keys.is_empty() && index.named.is_empty() && index.prefixes.is_empty());
}

#[test]
fn a_change_names_its_kind_and_subject() {
    let changes = Arc::new(Changes::default());
    let mut watcher = changes
        .watch(WatchTarget::Key(key_of("/x")))
        .expect("the first");
    assert_eq!(watcher.since(), 0);
    store(&changes, &key_of("/x"), "tag");
    changes.notify_removed(&key_of("/x"));
    let change = |kind, validator: Option<&'static str>| {
        let subject = Subject::Key {
            key: key_of("/x"),
            validator: validator.map(Bytes::from),
        };
        (kind, subject)
    };
    for expected in [
        change(ChangeKind::Stored, Some("\"v\"")),
        change(ChangeKind::Purged, None),
    ] {
        let Some(Notice::Changed(change)) = next(&mut watcher) else {
            panic!("there is another one")
        };
        assert_eq!((change.kind, change.subject), expected);
    }
}

#[test]
fn a_purge_notifies_the_watchers_of_its_scope() {
    let changes = Arc::new(Changes::default());
    let tag = Scope::Tag(Bytes::from_static(b"tag"));
    let mut same = changes
        .watch(WatchTarget::Scope(tag.clone()))
        .expect("room");
    let other = Scope::Tag(Bytes::from_static(b"other"));
    let mut other = changes.watch(WatchTarget::Scope(other)).expect("room");
    changes.notify_rule(&Rule {
        id: 1,
        scope: tag.clone(),
        strength: Strength::Soft,
        at: microcache_policy::Time::from_secs(1),
    });
    let change = CacheChange {
        number: 1,
        kind: ChangeKind::Expired,
        subject: Subject::Scope(tag),
    };
    assert_eq!(next(&mut same), Some(Notice::Changed(change)));
    assert_eq!(next(&mut other), None);
}

#[test]
fn a_lagging_watcher_gets_a_gap() {
    let changes = Arc::new(Changes::default());
    let mut watcher = changes
        .watch(WatchTarget::Key(key_of("/x")))
        .expect("the first");
    let count = MAILBOX as u64 + 5;
    for _ in 0..count {
        store(&changes, &key_of("/x"), "tag");
    }
    assert_eq!(next(&mut watcher), Some(Notice::Missed(count)));
    assert_eq!(next(&mut watcher), None);
    store(&changes, &key_of("/x"), "tag");
    assert_eq!(number(next(&mut watcher)), Some(count + 1));
}

#[tokio::test]
async fn a_waiting_watcher_is_woken() {
    let changes = Arc::new(Changes::default());
    let mut watcher = changes
        .watch(WatchTarget::Key(key_of("/x")))
        .expect("the first");
    let waiting = tokio::spawn(async move { watcher.next().await });
    tokio::task::yield_now().await;
    store(&changes, &key_of("/x"), "tag");
    assert_eq!(number(waiting.await.ok()), Some(1));
}

#[test]
fn changes_without_watchers_get_no_number() {
    let changes = Arc::new(Changes::default());
    drop(
        changes
            .watch(WatchTarget::Key(key_of("/x")))
            .expect("the first"),
    );
    changes.notify_removed(&key_of("/x"));
    assert_eq!(changes.index.lock().number, 0);
}
