//! Deliveries, compared with a plain list of everything published.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use proptest::collection::vec;
use proptest::prelude::*;

use super::local_presence::LocalPresence;
use super::subscriber::HubSubscribeError;
use super::token::Payloads;
use super::update::EARLIEST;
use super::*;
use crate::subscribing::stream::EventSource;

const KEY: &[u8] = b"a secret of thirty-two characters";

pub(super) fn hub(history: u64) -> Arc<Hub> {
    let key = TokenKey::parse(KEY).expect("a key");
    Arc::new(Hub::new(MercureSettings {
        publishers: key.clone(),
        subscribers: key,
        audience: None,
        anonymous: true,
        subscriptions: true,
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
    let wakeups = hub.history.lock().record(update);
    wakeups.into_iter().for_each(Wakeups::wake);
}

fn selectors(hub: &Hub, all: &[&str]) -> Box<[Selector]> {
    let all = all.iter().map(|it| hub.selectors.topic(it));
    all.collect::<Result<_, _>>().expect("selectors")
}

pub(super) fn subscribe(
    hub: &Arc<Hub>,
    to: &[&str],
    seen: Option<&str>,
    may_read: &[&str],
) -> Result<(Subscriber, Option<Arc<str>>), HubSubscribeError> {
    let may_read = (selectors(hub, may_read), None);
    let most = hub.settings().max_subscribers;
    Subscriber::new(&hub.history, most, &selectors(hub, to), seen, may_read)
}

/// Returns the ids delivered so far, and whether the subscriber was disconnected.
pub(super) fn take(subscriber: &mut Subscriber) -> (Vec<String>, bool) {
    let mut cx = Context::from_waker(Waker::noop());
    let mut ids = Vec::new();
    // Skipping is limited per turn, so that several polls are needed.
    for _ in 0..100 {
        while let Poll::Ready(event) = subscriber.poll_event(&mut cx) {
            let Some(event) = event else {
                return (ids, true);
            };
            let event = String::from_utf8(event.to_vec()).expect("text");
            let id = event.lines().find_map(|line| line.strip_prefix("id: "));
            ids.push(id.expect("an id").to_owned());
            if subscriber.is_drained() {
                let polled = subscriber.poll_event(&mut cx);
                assert!(polled.is_pending(), "an update after the newest one");
            }
        }
    }
    (ids, false)
}

const TOPICS: [&str; 4] = ["/a/1", "/a/2", "/b/1", "c"];
const SELECTORS: [&str; 6] = ["*", "/a/1", "/a/{x}", "/{y}/1", "c", "none"];

#[derive(Clone, Debug)]
enum HubAction {
    Publish(Vec<usize>, bool),
    Subscribe(Vec<usize>, Option<usize>, Vec<usize>),
    Take(usize),
    Leave(usize),
}

fn action() -> impl Strategy<Value = HubAction> {
    let some = |of: usize, most| vec(0..of, 1..=most);
    prop_oneof![
        4 => (some(TOPICS.len(), 3), any::<bool>()).prop_map(|(topics, private)| HubAction::Publish(topics, private)),
        2 => (some(SELECTORS.len(), 3), proptest::option::of(0..40_usize), vec(0..SELECTORS.len(), 0..2))
            .prop_map(|(to, seen, may)| HubAction::Subscribe(to, seen, may)),
        2 => (0..8_usize).prop_map(HubAction::Take),
        1 => (0..8_usize).prop_map(HubAction::Leave),
    ]
}

/// A subscriber, and what a plain list says that it has to receive.
struct ExpectedSubscriber {
    subscriber: Subscriber,
    to: Vec<usize>,
    may_read: Vec<usize>,
    seen: usize,
}

fn is_selected(selectors: &[usize], topics: &[usize]) -> bool {
    let means = |selectors: &str, topic: &str| match selectors {
        "*" => true,
        "/a/{x}" => topic.starts_with("/a/"),
        "/{y}/1" => topic.ends_with("/1"),
        other => other == topic,
    };
    selectors.iter().any(|&it| {
        topics
            .iter()
            .any(|&topic| means(SELECTORS[it], TOPICS[topic]))
    })
}

proptest! {
    #[test]
    fn no_update_is_lost_or_duplicated(all in vec(action(), 1..120)) {
        let hub = hub(1 << 20);
        let mut published: Vec<(Vec<usize>, bool)> = Vec::new();
        let mut known: Vec<ExpectedSubscriber> = Vec::new();
        for action in all {
            match action {
                HubAction::Publish(topics, private) => {
                    let names: Vec<_> = topics.iter().map(|&it| TOPICS[it]).collect();
                    publish(&hub, &published.len().to_string(), &names, private);
                    published.push((topics, private));
                }
                HubAction::Subscribe(to, seen, may_read) => {
                    let names = |of: &[usize]| of.iter().map(|&it| SELECTORS[it]).collect::<Vec<_>>();
                    let id = seen.map(|seen| seen.to_string());
                    let found = seen.filter(|seen| *seen < published.len());
                    let (subscriber, after) = subscribe(&hub, &names(&to), id.as_deref(), &names(&may_read)).expect("a subscriber");
                    let expected = seen.map(|_| found.map_or(EARLIEST.to_owned(), |found| found.to_string()));
                    prop_assert_eq!(after.as_deref(), expected.as_deref());
                    let seen = match seen {
                        None => published.len(),
                        Some(_) => found.map_or(0, |found| found + 1),
                    };
                    known.push(ExpectedSubscriber { subscriber, to, may_read, seen });
                }
                HubAction::Take(number) => {
                    if let Some(one) = known.get_mut(number) {
                        let (ids, is_disconnected) = take(&mut one.subscriber);
                        let missing = published.iter().enumerate().skip(one.seen);
                        let expected: Vec<_> = missing
                            .filter(|(_, (topics, private))| is_selected(&one.to, topics) && (!private || is_selected(&one.may_read, topics)))
                            .map(|(number, _)| number.to_string())
                            .collect();
                        prop_assert_eq!(ids, expected);
                        prop_assert!(!is_disconnected);
                        one.seen = published.len();
                    }
                }
                HubAction::Leave(number) => {
                    if number < known.len() {
                        known.remove(number);
                    }
                }
            }
        }
        drop(known);
        let history = hub.history.lock();
        prop_assert_eq!((history.subscribers, history.published.subscribed_topics()), (0, 0));
    }
}

#[test]
fn only_subscribers_with_missing_updates_are_disconnected_as_slow() {
    let hub = hub(64 * 1024);
    let (mut slow, _) = subscribe(&hub, &["/a/{x}"], None, &[]).expect("a subscriber");
    let (mut all, _) = subscribe(&hub, &["*"], None, &[]).expect("a subscriber");
    let (mut other, _) = subscribe(&hub, &["/b"], None, &[]).expect("a subscriber");
    publish(&hub, "b", &["/b"], false);
    assert_eq!(take(&mut other), (vec!["b".to_owned()], false));
    for number in 0..1000 {
        publish(&hub, &number.to_string(), &["/a/1"], false);
    }
    let (bytes, history) = (hub.stats().bytes, hub.stats().history);
    assert!(bytes <= 64 * 1024 && history > 10, "{bytes} {history}");
    assert_eq!(take(&mut slow), (vec![], true));
    assert_eq!(take(&mut all), (vec![], true));
    assert_eq!(take(&mut other), (vec![], false));
    assert_eq!(hub.stats().cut_off, 2);
    // It reconnects and learns that updates are missing.
    let (mut again, after) = subscribe(&hub, &["/a/1"], Some("3"), &[]).expect("a subscriber");
    assert_eq!(after.as_deref(), Some(EARLIEST));
    assert_eq!(take(&mut again).0.len() as u64, history);
    // Topics without subscribers are removed with their updates.
    drop((slow, all, other, again));
    publish(&hub, "c", &["c"], false);
    let topics = hub.history.lock().published.topics_known();
    assert_eq!(topics, 2);
    hub.history.lock().resize(0);
    let topics = hub.history.lock().published.topics_known();
    assert_eq!((hub.stats().bytes, topics), (0, 0));
}

#[test]
fn different_templates_and_subscribers_are_bounded() {
    let hub = hub(1 << 20);
    let mut known = Vec::new();
    for number in 0..update_log::MAX_PATTERNS {
        let template = format!("/{number}/{{x}}");
        known.push(subscribe(&hub, &[&template], None, &[]).expect("a subscriber"));
    }
    let refused = subscribe(&hub, &["c", "/other/{x}"], None, &[]).map(|_| ());
    assert_eq!(refused, Err(HubSubscribeError::TooManyPatterns));
    known.push(subscribe(&hub, &["/1/{x}"], None, &[]).expect("a subscriber"));
    while known.len() < 2000 {
        known.push(subscribe(&hub, &["c"], None, &[]).expect("a subscriber"));
    }
    let refused = subscribe(&hub, &["c"], None, &[]).map(|_| ());
    assert_eq!(refused, Err(HubSubscribeError::TooManySubscribers));
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

const OWN: &str = "/.well-known/mercure/subscriptions{/topic}{/subscriber}";

/// A subscriber whose presence is reported.
fn announced(hub: &Arc<Hub>, to: &[&str], may_read: &[&str]) -> Subscriber {
    let (mut subscriber, _) = subscribe(hub, to, None, may_read).expect("a subscriber");
    let selectors_of: Vec<_> = selectors(hub, to)
        .into_iter()
        .map(|it| (SelectorSyntax::Topic, it))
        .collect();
    let entry = PresenceEntry::new(new_id(), &selectors_of, &Payloads::default());
    subscriber.announce(entry.expect("a member"));
    subscriber
}

/// Returns the number of presence entries.
fn members(hub: &Hub) -> usize {
    let history = hub.history.lock();
    let newest = history.presence_list.newest();
    history.presence_list.range(0, newest, usize::MAX).len()
}

/// Returns the ids of the presence list.
fn active_subscriptions(hub: &Hub) -> BTreeSet<String> {
    let history = hub.history.lock();
    let newest = history.presence_list.newest();
    let all = history.presence_list.range(0, newest, usize::MAX);
    all.iter().map(|(_, entry)| entry.id.to_string()).collect()
}

/// Applies presence updates to a known list.
fn follow(subscriber: &mut Subscriber, known: &mut BTreeSet<String>) {
    let mut cx = Context::from_waker(Waker::noop());
    while let Poll::Ready(Some(event)) = subscriber.poll_event(&mut cx) {
        let event = String::from_utf8(event.to_vec()).expect("text");
        let data = event.lines().find_map(|line| line.strip_prefix("data: "));
        let value: serde_json::Value = serde_json::from_str(data.expect("data")).expect("JSON");
        let id = value["subscriber"].as_str().expect("an id").to_owned();
        if value["active"] == true {
            known.insert(id);
        } else {
            known.remove(&id);
        }
    }
}

proptest! {
    #[test]
    fn a_subscriber_that_follows_from_a_list_knows_the_active_subscriptions(before in vec((0..4_u8, 0..8_usize), 0..30), after in vec((0..4_u8, 0..8_usize), 0..30)) {
        let hub = hub(1 << 20);
        let mut there: Vec<Subscriber> = Vec::new();
        let mut happen = |(what, number): (u8, usize)| match what {
            0 => publish(&hub, "c", &["c"], number % 2 == 0),
            1 | 2 => there.push(announced(&hub, &["a", "b", "c"][..=number % 3], &[])),
            _ => {
                if number < there.len() {
                    there.swap_remove(number);
                }
            }
        };
        before.into_iter().for_each(&mut happen);
        let (mut known, last) = (active_subscriptions(&hub), hub.history.lock().last_id());
        after.into_iter().for_each(&mut happen);
        let (mut watcher, from) = subscribe(&hub, &[OWN], Some(&last), &[OWN]).expect("a subscriber");
        // A reused id means the earliest: then more than the missing updates are replayed.
        prop_assert_eq!(from.as_deref(), Some(&*last));
        follow(&mut watcher, &mut known);
        prop_assert_eq!(&known, &active_subscriptions(&hub));
    }
}

#[test]
fn joining_and_leaving_is_published_to_authorized_subscribers() {
    let hub = hub(1 << 20);
    let (mut watcher, _) = subscribe(&hub, &[OWN], None, &[OWN]).expect("a subscriber");
    let (mut of_a, _) = subscribe(
        &hub,
        &["/.well-known/mercure/subscriptions/a{/by}"],
        None,
        &["*"],
    )
    .expect("a subscriber");
    let (mut all, _) = subscribe(&hub, &["*"], None, &["*"]).expect("a subscriber");
    let (mut unlet, _) = subscribe(&hub, &["*", OWN], None, &["/a/{x}"]).expect("a subscriber");
    let (mut elsewhere, _) = subscribe(&hub, &["/a/{x}"], None, &["*"]).expect("a subscriber");
    let one = announced(&hub, &["a", "b"], &[]);
    assert_eq!(take(&mut watcher).0.len(), 2);
    assert_eq!(take(&mut of_a).0.len(), 1);
    drop(one);
    assert_eq!(take(&mut watcher).0.len(), 2);
    assert_eq!(take(&mut of_a).0.len(), 1);
    assert_eq!(take(&mut all).0.len(), 4);
    assert_eq!(take(&mut unlet).0.len(), 0);
    assert_eq!(take(&mut elsewhere).0.len(), 0);
    // A subscriber is informed of its own presence, if permitted.
    let mut itself = announced(&hub, &["*"], &["*"]);
    assert_eq!(take(&mut itself).0.len(), 1);
    assert_eq!(members(&hub), 1);
    drop(itself);
    assert_eq!(members(&hub), 0);
}

#[test]
fn updates_and_presence_events_have_one_order_from_any_start() {
    let hub = hub(1 << 20);
    let (mut watcher, _) = subscribe(&hub, &["*"], None, &["*"]).expect("a subscriber");
    let mut there = Vec::new();
    for number in 0..40 {
        match number % 5 {
            0 | 3 => publish(&hub, &format!("p{number}"), &["c"], false),
            1 => there.push(announced(&hub, &["a", "b"], &[])),
            2 => there.clear(),
            _ => publish(&hub, &format!("p{number}"), &["c"], true),
        }
    }
    let (ids, _) = take(&mut watcher);
    assert_eq!(ids.len(), 3 * 8 + 4 * 8);
    for (place, id) in ids.iter().enumerate() {
        let (mut back, after) = subscribe(&hub, &["*"], Some(id), &["*"]).expect("a subscriber");
        assert_eq!(after.as_deref(), Some(&**id));
        assert_eq!(take(&mut back).0, ids[place + 1..], "after {id}");
        // Subscribers without permission receive the published updates.
        let (mut other, _) = subscribe(&hub, &["c"], Some(id), &["c"]).expect("a subscriber");
        let published: Vec<_> = ids[place + 1..]
            .iter()
            .filter(|it| it.starts_with('p'))
            .collect();
        assert_eq!(
            take(&mut other).0.iter().collect::<Vec<_>>(),
            published,
            "after {id}"
        );
    }
    let (mut all, _) = subscribe(&hub, &["*"], Some(EARLIEST), &["*"]).expect("a subscriber");
    assert_eq!(take(&mut all).0, ids);
}

#[test]
fn presence_events_evict_no_published_update() {
    let hub = hub(64 * 1024);
    publish(&hub, "first", &["c"], false);
    let (mut slow, _) = subscribe(&hub, &["*"], None, &["*"]).expect("a subscriber");
    for _ in 0..1000 {
        drop(announced(&hub, &["a"], &[]));
    }
    let stats = hub.stats();
    assert!(
        stats.bytes <= stats.capacity && stats.history > 10,
        "{stats:?}"
    );
    assert_eq!(members(&hub), 0);
    let (mut back, after) = subscribe(&hub, &["c"], Some("first"), &["c"]).expect("a subscriber");
    assert_eq!(after.as_deref(), Some("first"));
    assert_eq!(take(&mut back).0.len(), 0);
    // A subscriber entitled to both logs learns that updates are missing, even before it reconnects.
    assert_eq!(take(&mut slow), (vec![], true));
    let (_, after) = subscribe(&hub, &["*"], Some("first"), &["*"]).expect("a subscriber");
    assert_eq!(after.as_deref(), Some(EARLIEST));
    // Conversely, the id of a presence update does not help if published updates were evicted.
    let mut itself = announced(&hub, &[OWN, "c"], &["*"]);
    let (ids, _) = take(&mut itself);
    let seen = ids.last().expect("an id").clone();
    for number in 0..1000 {
        publish(&hub, &number.to_string(), &["c"], false);
    }
    let (_, after) = subscribe(&hub, &["c"], Some(&seen), &[]).expect("a subscriber");
    assert_eq!(after.as_deref(), Some(EARLIEST));
}

#[derive(Default)]
struct WakeCounter(AtomicUsize);

impl Wake for WakeCounter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn many_arrivals_at_once_do_not_wake_each_other() {
    let hub = hub(1 << 20);
    let counted = Arc::new(WakeCounter::default());
    let waker = Waker::from(Arc::clone(&counted));
    let mut there = Vec::new();
    for _ in 0..500 {
        let mut one = announced(&hub, &["*", OWN, "c"], &["/a/{x}", "c"]);
        assert!(
            one.poll_event(&mut Context::from_waker(&waker))
                .is_pending()
        );
        there.push(one);
    }
    there.truncate(250);
    assert_eq!(counted.0.load(Ordering::Relaxed), 0);
    publish(&hub, "1", &["c"], false);
    // Each subscriber waits for each of its three selectors.
    let wakeups = counted.0.load(Ordering::Relaxed);
    assert!((250..=750).contains(&wakeups), "{wakeups}");
}

#[test]
fn subscribers_of_a_history_that_is_loaded_again_reconnect() {
    let hub = hub(1 << 20);
    for id in ["1", "2"] {
        publish(&hub, id, &["/a/1"], false);
    }
    let selectors = ["/a/1", "/a/{x}", "*"];
    let subscribers = selectors.map(|to| subscribe(&hub, &[to], None, &[]).expect("a subscriber"));
    let mut subscribers = subscribers.map(|(subscriber, _)| subscriber);
    for subscriber in &mut subscribers {
        assert_eq!(take(subscriber), (vec![], false));
    }
    let (tag, wakeups) = {
        let mut history = hub.history.lock();
        (history.entity_tag(), history.reset())
    };
    wakeups.into_iter().for_each(Wakeups::wake);
    for id in ["2", "3"] {
        publish(&hub, id, &["/a/1"], false);
    }
    for subscriber in &mut subscribers {
        assert_eq!(take(subscriber), (vec![], true));
    }
    drop(subscribers);
    for (seen, after, ids) in [("2", "2", &["3"][..]), ("1", EARLIEST, &["2", "3"])] {
        for to in selectors {
            let (mut back, found) = subscribe(&hub, &[to], Some(seen), &[]).expect("a subscriber");
            assert_eq!(found.as_deref(), Some(after), "{to}");
            assert_eq!(take(&mut back).0, ids, "{to} {seen}");
        }
    }
    assert_ne!(hub.history.lock().entity_tag(), tag);
    drop(hub.history.lock().reset());
    assert_eq!(hub.history.lock().published.topics_known(), 0);
    assert_eq!(hub.stats().bytes, 0);
}

/// Presence that is shared takes effect when all nodes read it.
#[test]
fn shared_presence_is_listed_when_it_is_read() {
    let hub = hub(1 << 20);
    hub.history.lock().local_presence = Some(LocalPresence::new(7));
    let (mut watcher, _) = subscribe(&hub, &[OWN], None, &[OWN]).expect("a subscriber");
    let one = announced(&hub, &["a", "b"], &[]);
    assert_eq!((members(&hub), take(&mut watcher).0.len()), (0, 0));
    let read = |number: u64| {
        let mut history = hub.history.lock();
        let changes = history
            .local_presence
            .as_mut()
            .expect("it is shared")
            .take(1);
        let change = &changes[0];
        assert_eq!(change.node(), 7);
        history.presence_list.set(&change.entry, change.active);
        let events = change
            .entry
            .events(change.active, id::event_ids(&change.entry.id, number));
        drop(history.record_presence(events));
        change
            .entry
            .events(change.active, id::event_ids(&change.entry.id, number))
    };
    let again = read(1);
    // The ids of its events are the same on all nodes.
    let ids: Vec<_> = again.iter().map(|event| event.id.to_string()).collect();
    assert_eq!(take(&mut watcher).0, ids);
    assert!(ids[0] != ids[1] && members(&hub) == 1);
    drop(one);
    assert_eq!(members(&hub), 1);
    let ends = read(2);
    assert!(
        ends.iter()
            .all(|event| !ids.contains(&event.id.to_string()))
    );
    assert_eq!((members(&hub), take(&mut watcher).0.len()), (0, 2));
}

#[test]
fn a_hub_without_its_shared_history_is_not_subscribed_to() {
    let hub = hub(1 << 20);
    hub.history.lock().is_loaded = false;
    let refused = subscribe(&hub, &["a"], Some("1"), &[]).map(|_| ());
    assert_eq!(refused, Err(HubSubscribeError::NotLoaded));
}
