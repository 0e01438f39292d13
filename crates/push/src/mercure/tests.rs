//! What subscribers are sent, held against a plain list of all that was published.

use std::task::{Context, Poll, Waker};

use proptest::collection::vec;
use proptest::prelude::*;

use super::subscriber::NoSubscriber;
use super::update::EARLIEST;
use super::*;
use crate::stream::Events;

const KEY: &[u8] = b"a secret of thirty-two characters";

fn hub(history: u64) -> Arc<Hub> {
    let key = Key::of(KEY).expect("a key");
    Arc::new(Hub::new(MercureSettings {
        publishers: key.clone(),
        subscribers: key,
        audience: None,
        anonymous: true,
        allow_origins: Vec::new(),
        history,
        max_update: 1 << 20,
        max_subscribers: 2000,
    }))
}

fn publish(hub: &Hub, id: &str, topics: &[&str], is_private: bool) {
    let mut form = format!("id={id}&data={id}");
    for topic in topics {
        form.push_str("&topic=");
        form.push_str(topic);
    }
    form += if is_private { "&private" } else { "" };
    let url = Url::parse("http://hub.example/.well-known/mercure").expect("a url");
    let update = Update::read(form.as_bytes(), &url, String::new).expect("an update");
    let woken = hub.log.lock().note(update);
    woken.into_iter().for_each(Woken::wake);
}

fn selectors(hub: &Hub, all: &[&str]) -> Box<[Selector]> {
    let all = all.iter().map(|it| hub.selectors.topic(it));
    all.collect::<Result<_, _>>().expect("selectors")
}

fn subscribe(
    hub: &Arc<Hub>,
    to: &[&str],
    seen: Option<&str>,
    may_read: &[&str],
) -> Result<(Subscriber, Option<Arc<str>>), NoSubscriber> {
    let may_read = (selectors(hub, may_read), None);
    Subscriber::new(hub, selectors(hub, to), seen, may_read)
}

/// The ids of all that it is sent by now, and whether it is let go.
fn take(subscriber: &mut Subscriber) -> (Vec<String>, bool) {
    let mut cx = Context::from_waker(Waker::noop());
    let mut ids = Vec::new();
    // It passes over what is not for it, and says that it wants another turn.
    for _ in 0..100 {
        while let Poll::Ready(event) = subscriber.poll_event(&mut cx) {
            let Some(event) = event else {
                return (ids, true);
            };
            let event = String::from_utf8(event.to_vec()).expect("text");
            let id = event.lines().find_map(|line| line.strip_prefix("id: "));
            ids.push(id.expect("an id").to_owned());
        }
    }
    (ids, false)
}

const TOPICS: [&str; 4] = ["/a/1", "/a/2", "/b/1", "c"];
const ASKED: [&str; 6] = ["*", "/a/1", "/a/{x}", "/{y}/1", "c", "none"];

#[derive(Clone, Debug)]
enum Did {
    Publish(Vec<usize>, bool),
    Subscribe(Vec<usize>, Option<usize>, Vec<usize>),
    Take(usize),
    Leave(usize),
}

fn did() -> impl Strategy<Value = Did> {
    let some = |of: usize, most| vec(0..of, 1..=most);
    prop_oneof![
        4 => (some(TOPICS.len(), 3), any::<bool>()).prop_map(|(topics, private)| Did::Publish(topics, private)),
        2 => (some(ASKED.len(), 3), proptest::option::of(0..40_usize), vec(0..ASKED.len(), 0..2))
            .prop_map(|(to, seen, may)| Did::Subscribe(to, seen, may)),
        2 => (0..8_usize).prop_map(Did::Take),
        1 => (0..8_usize).prop_map(Did::Leave),
    ]
}

/// Somebody who subscribes, and what he has to be sent by a plain list.
struct Known {
    subscriber: Subscriber,
    to: Vec<usize>,
    may_read: Vec<usize>,
    seen: usize,
}

fn is_meant(asked: &[usize], topics: &[usize]) -> bool {
    let means = |asked: &str, topic: &str| match asked {
        "*" => true,
        "/a/{x}" => topic.starts_with("/a/"),
        "/{y}/1" => topic.ends_with("/1"),
        other => other == topic,
    };
    asked
        .iter()
        .any(|&it| topics.iter().any(|&topic| means(ASKED[it], TOPICS[topic])))
}

proptest! {
    #[test]
    fn nothing_is_lost_and_nothing_comes_twice(all in vec(did(), 1..120)) {
        let hub = hub(1 << 20);
        let mut published: Vec<(Vec<usize>, bool)> = Vec::new();
        let mut known: Vec<Known> = Vec::new();
        for did in all {
            match did {
                Did::Publish(topics, private) => {
                    let names: Vec<_> = topics.iter().map(|&it| TOPICS[it]).collect();
                    publish(&hub, &published.len().to_string(), &names, private);
                    published.push((topics, private));
                }
                Did::Subscribe(to, seen, may_read) => {
                    let names = |of: &[usize]| of.iter().map(|&it| ASKED[it]).collect::<Vec<_>>();
                    let id = seen.map(|seen| seen.to_string());
                    let found = seen.filter(|seen| *seen < published.len());
                    let (subscriber, after) = subscribe(&hub, &names(&to), id.as_deref(), &names(&may_read)).expect("a subscriber");
                    let expected = seen.map(|_| found.map_or(EARLIEST.to_owned(), |found| found.to_string()));
                    prop_assert_eq!(after.as_deref(), expected.as_deref());
                    let seen = match seen {
                        None => published.len(),
                        Some(_) => found.map_or(0, |found| found + 1),
                    };
                    known.push(Known { subscriber, to, may_read, seen });
                }
                Did::Take(number) => {
                    if let Some(one) = known.get_mut(number) {
                        let (ids, is_let_go) = take(&mut one.subscriber);
                        let missing = published.iter().enumerate().skip(one.seen);
                        let expected: Vec<_> = missing
                            .filter(|(_, (topics, private))| is_meant(&one.to, topics) && (!private || is_meant(&one.may_read, topics)))
                            .map(|(number, _)| number.to_string())
                            .collect();
                        prop_assert_eq!(ids, expected);
                        prop_assert!(!is_let_go);
                        one.seen = published.len();
                    }
                }
                Did::Leave(number) => {
                    if number < known.len() {
                        known.remove(number);
                    }
                }
            }
        }
        drop(known);
        let log = hub.log.lock();
        prop_assert_eq!((log.subscribers, log.subscribed()), (0, 0));
    }
}

#[test]
fn who_is_too_slow_is_let_go_and_whom_nothing_is_missing_is_not() {
    let hub = hub(64 * 1024);
    let (mut slow, _) = subscribe(&hub, &["/a/{x}"], None, &[]).expect("a subscriber");
    let (mut all, _) = subscribe(&hub, &["*"], None, &[]).expect("a subscriber");
    let (mut other, _) = subscribe(&hub, &["/b"], None, &[]).expect("a subscriber");
    publish(&hub, "b", &["/b"], false);
    assert_eq!(take(&mut other), (vec!["b".to_owned()], false));
    for number in 0..1000 {
        publish(&hub, &number.to_string(), &["/a/1"], false);
    }
    let (bytes, remembered) = (hub.stats().bytes, hub.stats().history);
    assert!(
        bytes <= 64 * 1024 && remembered > 10,
        "{bytes} {remembered}"
    );
    assert_eq!(take(&mut slow), (vec![], true));
    assert_eq!(take(&mut all), (vec![], true));
    assert_eq!(take(&mut other), (vec![], false));
    assert_eq!(hub.stats().cut_off, 2);
    // It comes back, and is told that it has missed something.
    let (mut again, after) = subscribe(&hub, &["/a/1"], Some("3"), &[]).expect("a subscriber");
    assert_eq!(after.as_deref(), Some(EARLIEST));
    assert_eq!(take(&mut again).0.len() as u64, remembered);
    // What nobody asks for is forgotten with its updates.
    drop((slow, all, other, again));
    publish(&hub, "c", &["c"], false);
    let topics = hub.log.lock().topics_known();
    assert_eq!(topics, 2);
    hub.log.lock().resize(0);
    assert_eq!((hub.stats().bytes, hub.log.lock().topics_known()), (0, 0));
}

#[test]
fn different_templates_and_subscribers_are_bounded() {
    let hub = hub(1 << 20);
    let mut known = Vec::new();
    for number in 0..log::MAX_LIKES {
        let template = format!("/{number}/{{x}}");
        known.push(subscribe(&hub, &[&template], None, &[]).expect("a subscriber"));
    }
    let refused = subscribe(&hub, &["c", "/other/{x}"], None, &[]).map(|_| ());
    assert_eq!(refused, Err(NoSubscriber::TooManyLikes));
    known.push(subscribe(&hub, &["/1/{x}"], None, &[]).expect("a subscriber"));
    while known.len() < 2000 {
        known.push(subscribe(&hub, &["c"], None, &[]).expect("a subscriber"));
    }
    let refused = subscribe(&hub, &["c"], None, &[]).map(|_| ());
    assert_eq!(refused, Err(NoSubscriber::TooMany));
    known.clear();
    assert_eq!((hub.stats().subscribers, hub.stats().topics), (0, 0));
    assert!(subscribe(&hub, &["/other/{x}"], None, &[]).is_ok());
}

#[test]
fn an_id_that_is_used_again_stands_for_the_earliest() {
    let hub = hub(1 << 20);
    for id in ["1", "2", "1", "3"] {
        publish(&hub, id, &["c"], false);
    }
    let (mut subscriber, after) = subscribe(&hub, &["c"], Some("1"), &[]).expect("a subscriber");
    assert_eq!(after.as_deref(), Some("1"));
    assert_eq!(take(&mut subscriber).0, ["2", "1", "3"]);
}

#[test]
fn ids_are_uuids_that_differ() {
    let ids: std::collections::HashSet<_> = (0..100).map(|_| new_id()).collect();
    assert_eq!(ids.len(), 100);
    for id in ids {
        let form: String = id
            .chars()
            .map(|it| if it.is_ascii_hexdigit() { 'x' } else { it })
            .collect();
        assert!(
            id.starts_with("urn:uuid:") && form.ends_with("xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"),
            "{id}"
        );
        assert_eq!(id.as_bytes()[9 + 14], b'4');
        assert!(b"89ab".contains(&id.as_bytes()[9 + 19]));
    }
}
