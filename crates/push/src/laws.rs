//! Properties of every subscriber, for any sequence of writes and reads: it ends with the current documents,
//! a delta is sent only to a subscriber that has its base version, and gaps in the history are announced.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use proptest::prelude::*;
use serde_json::Value;

use crate::access::read_grant::PushKeys;
use crate::changes::change::{Delta, DocumentChange, DocumentContent};
use crate::changes::events::EventFormat;
use crate::name::Pattern;
use crate::origin::Push;
use crate::settings::PushSettings;
use crate::subscribing::cursor::ResumePoint;
use crate::subscribing::subscription::{DeliveryOptions, SubscribeRequest, Subscription};

const NAMES: [&str; 3] = ["/live/a", "/live/b", "/live/c"];

#[derive(Clone, Debug)]
enum Action {
    Put(usize),
    Patch(usize),
    Delete(usize),
    /// A put on another node that does not arrive here.
    Lose(usize),
    /// Reads so many events.
    Read(usize),
    /// Reconnects with the last event id (true), or with the position of long polling (false).
    ComeBack(bool),
    /// Adds a pattern, unless already subscribed.
    Add(usize),
    /// Removes a pattern.
    Remove(usize),
}

/// The patterns that are added and removed.
const ADDED: [&str; 4] = ["/live/a", "/live/b", "/live/*", "/live/*a"];

fn steps_of_sockets() -> impl Strategy<Value = Vec<Action>> {
    let name = || 0..NAMES.len();
    let step = prop_oneof![
        4 => name().prop_map(Action::Put),
        3 => name().prop_map(Action::Patch),
        1 => name().prop_map(Action::Delete),
        1 => name().prop_map(Action::Lose),
        4 => (1..5usize).prop_map(Action::Read),
        2 => (0..ADDED.len()).prop_map(Action::Add),
        1 => (0..ADDED.len()).prop_map(Action::Remove),
        1 => Just(Action::ComeBack(true)),
    ];
    prop::collection::vec(step, 1..80)
}

fn steps() -> impl Strategy<Value = Vec<Action>> {
    let name = || 0..NAMES.len();
    let step = prop_oneof![
        4 => name().prop_map(Action::Put),
        3 => name().prop_map(Action::Patch),
        1 => name().prop_map(Action::Delete),
        1 => name().prop_map(Action::Lose),
        3 => (1..5usize).prop_map(Action::Read),
        1 => any::<bool>().prop_map(Action::ComeBack),
    ];
    prop::collection::vec(step, 1..80)
}

/// The documents, and every change ever made.
struct World {
    push: Push,
    changes: Vec<Arc<DocumentChange>>,
    /// Documents whose last change did not arrive here.
    lost: BTreeSet<usize>,
}

impl World {
    fn new(history: usize) -> Self {
        let settings = PushSettings {
            memory: 16 << 20,
            history,
            max_subscribers: 2,
            ..PushSettings::default()
        };
        Self {
            push: Push::start(settings, PushKeys::default()).expect("documents are kept in memory"),
            changes: Vec::new(),
            lost: BTreeSet::new(),
        }
    }

    /// Makes a change that does not arrive here, though later ones do.
    fn lose(&mut self, name: usize) {
        let number = self.changes.len() as u64 + 1;
        let change = change(number, NAMES[name], true, None);
        let documents = self.push.documents();
        documents.record_missing(&change.name, number);
        self.changes.push(Arc::new(change));
        self.lost.insert(name);
    }

    fn find_again(&mut self) {
        for name in std::mem::take(&mut self.lost) {
            self.publish(NAMES[name], true, false);
        }
    }

    fn last(&self, name: &str) -> Option<&Arc<DocumentChange>> {
        let last = self.changes.iter().rfind(|change| &*change.name == name);
        last.filter(|change| !change.is_deletion())
    }

    fn publish(&mut self, name: &str, content: bool, is_patch: bool) {
        let before = self.last(name).map(|change| change.number);
        let is_lost = NAMES.iter().position(|it| *it == name);
        let is_lost = is_lost.is_some_and(|at| self.lost.remove(&at));
        if before.is_none() && (is_patch || !content) {
            return;
        }
        let number = self.changes.len() as u64 + 1;
        // A delta to a version that is not here is useless.
        let from = before.filter(|_| is_patch && !is_lost);
        let change = Arc::new(change(number, name, content, from));
        self.push.documents().apply(&change);
        self.changes.push(change);
    }
}

fn change(number: u64, name: &str, is_there: bool, from: Option<u64>) -> DocumentChange {
    DocumentChange {
        number,
        name: name.into(),
        content: is_there.then(|| DocumentContent {
            media_type: "application/json".into(),
            body: format!("{{\"n\":{number}}}").into(),
        }),
        expires: None,
        delta: from.map(|from| Delta {
            from,
            patch: "{}".into(),
        }),
    }
}

/// A subscriber and the state that it reconstructs from its events.
struct ModelSubscriber {
    subscription: Subscription,
    wanted: Vec<Pattern>,
    /// The pattern that was added and whose snapshot is incomplete.
    joining: Option<Pattern>,
    /// The last change when it was added.
    joined_at: u64,
    history: usize,
    /// The version of each document.
    has: BTreeMap<String, u64>,
    last_id: Option<String>,
    /// Documents delivered since the last gap event.
    delivered_since_gap: BTreeSet<String>,
    /// Documents whose last event had no id, so that they may be delivered again after a reconnect.
    without_id: BTreeSet<String>,
    /// The subset that is outstanding since the last reconnect.
    again: BTreeSet<String>,
}

impl ModelSubscriber {
    fn new(world: &World, wanted: &[&str], history: usize) -> Self {
        let wanted: Vec<_> = wanted
            .iter()
            .map(|it| Pattern::parse(it).unwrap())
            .collect();
        let request = SubscribeRequest {
            documents: wanted.clone(),
            options: DeliveryOptions {
                deltas: true,
                ..DeliveryOptions::default()
            },
            ..SubscribeRequest::default()
        };
        let subscription = Subscription::new(world.push.documents(), request);
        Self {
            subscription: subscription.expect("there is room"),
            wanted,
            joining: None,
            joined_at: 0,
            history,
            has: BTreeMap::new(),
            last_id: None,
            delivered_since_gap: BTreeSet::new(),
            without_id: BTreeSet::new(),
            again: BTreeSet::new(),
        }
    }

    fn come_back(&mut self, world: &World, as_stream: bool) {
        let place = self.subscription.position().to_string();
        let place = if as_stream {
            self.last_id.clone()
        } else {
            Some(place)
        };
        // A subscriber without patterns has no position.
        let place = place.filter(|_| !self.wanted.is_empty());
        if place.is_none() {
            self.has.clear();
        }
        // A partial snapshot does not count.
        let wanted = &self.wanted;
        self.has
            .retain(|name, _| wanted.iter().any(|it| it.matches(name)));
        self.again.clone_from(&self.without_id);
        let request = SubscribeRequest {
            documents: self.wanted.clone(),
            last_event_id: place.as_deref().map(ResumePoint::parse),
            options: DeliveryOptions {
                deltas: true,
                ..DeliveryOptions::default()
            },
            ..SubscribeRequest::default()
        };
        let again = Subscription::new(world.push.documents(), request);
        self.subscription = again.expect("there is room");
        if let Some(pattern) = self.joining.take() {
            self.join(world, pattern);
        }
    }

    /// Adds a pattern as a socket does: after the previous one has joined.
    fn add(&mut self, world: &World, url: &str) {
        let pattern = Pattern::parse(url).unwrap();
        self.settle(world);
        if !self.subscription.has(&pattern) {
            self.join(world, pattern);
        }
    }

    fn join(&mut self, world: &World, pattern: Pattern) {
        let added = self.subscription.add(&pattern, true);
        added.expect("there is room");
        self.joining = Some(pattern);
        self.joined_at = world.changes.len() as u64;
    }

    fn settle(&mut self, world: &World) {
        while self.subscription.is_joining() && self.read(world) {}
    }

    /// Documents of a removed pattern are no longer followed.
    fn remove(&mut self, world: &World, url: &str) {
        let pattern = Pattern::parse(url).unwrap();
        self.settle(world);
        let was_there = self.subscription.remove(&pattern);
        assert_eq!(was_there, self.wanted.contains(&pattern));
        self.wanted.retain(|it| *it != pattern);
        let wanted = &self.wanted;
        self.has
            .retain(|name, _| wanted.iter().any(|it| it.matches(name)));
    }

    /// Reads one event; false if there is none.
    fn read(&mut self, world: &World) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        let polled = self.subscription.poll_json(&mut cx, EventFormat::JsonDelta);
        let Poll::Ready(event) = polled else {
            return false;
        };
        if self.subscription.is_drained() {
            let polled = self.subscription.poll_json(&mut cx, EventFormat::JsonDelta);
            assert!(polled.is_pending(), "an event after the newest one");
        }
        if event.is_empty() {
            // The snapshot of the added pattern is complete.
            let joined = self.joining.take().expect("something was added");
            self.has_all_there_was_of(&joined);
            self.wanted.push(joined);
            self.last_id = Some(self.subscription.position().to_string());
            return true;
        }
        let event: Value = serde_json::from_slice(&event).expect("JSON");
        match event["event"].as_str().expect("a kind") {
            "reset" => self.has.clear(),
            "gap" => self.delivered_since_gap.clear(),
            kind => self.take(world, kind, &event),
        }
        true
    }

    /// Checks that every document that existed when the pattern was added, and has not changed, was
    /// delivered.
    fn has_all_there_was_of(&self, pattern: &Pattern) {
        let index = self.subscription.documents().index.lock();
        for name in NAMES.into_iter().filter(|name| pattern.matches(name)) {
            let there = index.current(name).map(|change| change.number);
            if let Some(number) = there.filter(|&number| number <= self.joined_at) {
                assert_eq!(
                    self.has.get(name),
                    Some(&number),
                    "what there was of {name}"
                );
            }
        }
    }

    fn take(&mut self, world: &World, kind: &str, event: &Value) {
        let id = event["id"].as_str();
        let version = id.or_else(|| Some(event["etag"].as_str()?.trim_matches('"')));
        let (_, number) = version
            .and_then(|it| it.split_once('.'))
            .expect("a version");
        let number: u64 = number.parse().expect("a number");
        let change = &world.changes[number as usize - 1];
        let name = change.name.to_string();
        if let Some(id) = id {
            self.last_id = Some(id.to_owned());
            self.without_id.remove(&name);
        } else {
            self.without_id.insert(name.clone());
        }
        let is_again = self.again.remove(&name);
        let before = self.has.get(&name).copied();
        if let Some(before) = before.filter(|_| !is_again) {
            assert!(number > before, "{name} was told twice, or backwards");
        }
        if kind == "patch" {
            let from = change.delta.as_ref().expect("a delta").from;
            assert_eq!(before, Some(from), "what a patch of {name} applies to");
        }
        if let Some(before) = before
            && !is_again
            && self.history > 1
            && self.delivered_since_gap.contains(&name)
        {
            let between = |one: &&Arc<DocumentChange>| {
                *one.name == *name && one.number > before && one.number < number
            };
            let missing = world.changes.iter().filter(between).count();
            assert_eq!(missing, 0, "changes of {name} were left out without a word");
        }
        self.delivered_since_gap.insert(name.clone());
        if change.is_deletion() {
            self.has.remove(&name);
        } else {
            self.has.insert(name, number);
        }
    }
}

fn check(steps: &[Action], wanted: &[&str], history: usize) {
    let mut world = World::new(history);
    let mut reader = ModelSubscriber::new(&world, wanted, history);
    for step in steps {
        match *step {
            Action::Put(name) => world.publish(NAMES[name], true, false),
            Action::Patch(name) => world.publish(NAMES[name], true, true),
            Action::Delete(name) => world.publish(NAMES[name], false, false),
            Action::Lose(name) => world.lose(name),
            Action::Read(events) => {
                for _ in 0..events {
                    reader.read(&world);
                }
            }
            Action::ComeBack(as_stream) => reader.come_back(&world, as_stream),
            Action::Add(url) => reader.add(&world, ADDED[url]),
            Action::Remove(url) => reader.remove(&world, ADDED[url]),
        }
    }
    world.find_again();
    while reader.read(&world) {}
    let is_wanted = |name: &str| reader.wanted.iter().any(|it| it.matches(name));
    let there: BTreeMap<_, _> = NAMES
        .into_iter()
        .filter(|name| is_wanted(name))
        .filter_map(|name| Some((name.to_owned(), world.last(name)?.number)))
        .collect();
    assert_eq!(reader.has, there, "what a reader has in the end");
}

proptest! {
    #[test]
    fn a_subscriber_ends_with_the_current_documents(
        steps in steps(),
        wanted in prop_oneof![
            Just(&["/live/*"][..]),
            Just(&["/live/a"][..]),
            Just(&["/live/a", "/live/b"][..]),
            Just(&["/live/a", "/live/*"][..]),
        ],
        history in prop_oneof![Just(1), Just(3), Just(100)],
    ) {
        check(&steps, wanted, history);
    }

    #[test]
    fn so_does_one_that_asks_for_more_and_for_less(
        steps in steps_of_sockets(),
        wanted in prop_oneof![Just(&[][..]), Just(&["/live/c"][..]), Just(&["/live/*"][..])],
        history in prop_oneof![Just(1), Just(3)],
    ) {
        check(&steps, wanted, history);
    }
}

/// Records that it was woken.
#[derive(Default)]
struct Alarm(AtomicBool);

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_subscriber_need_not_poll_after_the_newest_event_to_be_woken_by_the_next() {
    let mut world = World::new(1);
    let mut reader = ModelSubscriber::new(&world, &["/live/a", "/live/*b"], 1);
    while reader.read(&world) {}
    let alarm = Arc::new(Alarm::default());
    let waker = Waker::from(Arc::clone(&alarm));
    let poll = |reader: &mut ModelSubscriber| {
        let mut cx = Context::from_waker(&waker);
        let polled = reader.subscription.poll_json(&mut cx, EventFormat::Json);
        (polled.is_ready(), reader.subscription.is_drained())
    };
    assert_eq!(poll(&mut reader), (false, false));
    for name in ["/live/a", "/live/b", "/live/b"] {
        world.publish(name, true, false);
        assert!(alarm.0.swap(false, Ordering::Relaxed), "{name}");
        assert_eq!(poll(&mut reader), (true, true), "{name}");
    }
    // With two events to deliver, only the second is the newest.
    world.publish("/live/a", true, false);
    world.publish("/live/b", true, false);
    assert_eq!(poll(&mut reader), (true, false));
    assert_eq!(poll(&mut reader), (true, true));
    assert_eq!(poll(&mut reader), (false, false));
}

/// The id may belong to another subscription, which received other documents.
#[test]
fn an_id_without_a_document_names_no_version_of_it() {
    let mut world = World::new(1);
    world.publish("/live/a", true, false);
    let mut reader = ModelSubscriber::new(&world, &["/live/a"], 1);
    while reader.read(&world) {}
    reader.come_back(&world, true);
    let kinds = [(); 2].map(|()| {
        assert!(!reader.read(&world));
        world.publish("/live/a", true, true);
        let mut cx = Context::from_waker(Waker::noop());
        let seen = reader
            .subscription
            .poll_json(&mut cx, EventFormat::JsonDelta);
        let Poll::Ready(event) = seen else {
            panic!("it is told");
        };
        let event: Value = serde_json::from_slice(&event).expect("JSON");
        event["event"].as_str().expect("a kind").to_owned()
    });
    assert_eq!(kinds, ["put", "patch"]);
}

/// `Link: rel=monitor` names the version of the response.
#[test]
fn a_subscriber_with_a_version_gets_each_later_one_or_a_gap() {
    let mut world = World::new(3);
    world.publish("/live/a", true, false);
    let first = world.last("/live/a").expect("it is there").number;
    let deliveries = |world: &World| {
        let documents = world.push.documents();
        let version = documents.index.lock().generations.version(first);
        let request = SubscribeRequest {
            documents: vec![Pattern::parse("/live/a").expect("a name")],
            has: vec![("/live/a".into(), version)],
            ..SubscribeRequest::default()
        };
        let mut subscription = Subscription::new(documents, request).expect("there is room");
        let events = std::iter::from_fn(|| subscription.try_next_json());
        let events: Vec<Value> = events
            .map(|event| serde_json::from_slice(&event).expect("JSON"))
            .collect();
        let id = |event: &Value| event["id"].as_str().map(str::to_owned);
        let seen: Vec<_> = events.iter().map(id).collect();
        let is_gap = events.first().is_some_and(|it| it["event"] == "gap");
        (is_gap, seen.into_iter().flatten().count())
    };
    assert_eq!(deliveries(&world), (false, 0));
    for expected in [(false, 1), (false, 2), (false, 3), (true, 3)] {
        world.publish("/live/a", true, false);
        assert_eq!(deliveries(&world), expected);
    }
    world.publish("/live/a", false, false);
    assert_eq!(deliveries(&world), (true, 1), "it is gone");
}

#[test]
fn a_subscriber_that_missed_changes_among_many_documents_gets_them() {
    const DOCUMENTS: usize = 5000;
    let mut world = World::new(2);
    let mut reader = ModelSubscriber::new(&world, &["/live/*"], 2);
    world.publish("/live/first", true, false);
    while reader.read(&world) {}
    for _ in 0..3 {
        for number in 0..DOCUMENTS {
            world.publish(&format!("/live/{number}"), true, false);
        }
    }
    // Two versions of each, each preceded by at most one gap event.
    let reads = (0..=4 * DOCUMENTS).take_while(|_| reader.read(&world));
    assert!(reads.count() <= 4 * DOCUMENTS, "it has no end");
    assert_eq!(reader.has.len(), DOCUMENTS + 1);
}
