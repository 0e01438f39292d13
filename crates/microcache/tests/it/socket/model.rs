//! Events of a client that subscribes and unsubscribes during publications: each version at most once, those of
//! a document in order, and in the end the last version of each subscribed document.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::{Value, json};

use super::{WATCH, open};
use crate::push::{Kept, Live};
use crate::support::Origin;

const CHANGES: usize = 2000;
const DOCUMENTS: usize = 12;
const URLS: [&str; 7] = [
    "/live/1",
    "/live/2",
    "/live/7",
    "/live/*",
    "/live/1*",
    "/live/*1",
    "/live/none",
];

/// Numbers that look like chance, the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as usize % bound
    }
}

fn matches(url: &str, name: &str) -> bool {
    match url.split_once('*') {
        None => url == name,
        Some((begin, end)) => name.starts_with(begin) && name[begin.len()..].ends_with(end),
    }
}

#[test]
fn no_event_is_lost_or_duplicated_during_subscriptions() {
    let (kept, origin) = (Kept::new(), Origin::start());
    let live = kept.start(&origin, &["--push-sync", "never"]);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut dice = Dice(1);
            for number in 0..CHANGES {
                let name = format!("/live/{}", dice.below(DOCUMENTS));
                let answer = match dice.below(10) {
                    0 => live.publish("DELETE", &name, &[], ""),
                    _ => live.put(&name, &number.to_string()),
                };
                assert!(matches!(answer.status, 201 | 204 | 404));
            }
            is_over.store(true, Ordering::Release);
        });
        let readers: Vec<_> = (2..5)
            .map(|seed| {
                let (live, is_over) = (&live, &is_over);
                scope.spawn(move || Reader::new(live, seed).run(is_over))
            })
            .collect();
        writer.join().expect("a writer");
        let there = |name: &str| {
            let found = live.0.get(name);
            (found.status == 200).then(|| found.text())
        };
        for reader in readers {
            let (subscribed, known) = reader.join().expect("a reader");
            for number in 0..DOCUMENTS {
                let name = format!("/live/{number}");
                if subscribed.iter().any(|url| matches(url, &name)) {
                    assert_eq!(
                        known.get(&name),
                        there(&name).as_ref(),
                        "{name} of {subscribed:?}"
                    );
                }
            }
        }
    });
}

struct Reader<'a> {
    live: &'a Live,
    socket: crate::support::websocket::WebSocket,
    dice: Dice,
    subscribed: Vec<&'static str>,
    /// The number of the last delivered version of each, since its subscription.
    last: BTreeMap<String, u64>,
    known: BTreeMap<String, String>,
    /// What it says when it comes back.
    seen: Option<String>,
    /// These were delivered without an id, and may be repeated after a reconnect.
    without_id: BTreeSet<String>,
}

impl<'a> Reader<'a> {
    fn new(live: &'a Live, seed: u64) -> Self {
        Self {
            live,
            socket: open(live, "/live/"),
            dice: Dice(seed),
            subscribed: Vec::new(),
            last: BTreeMap::new(),
            known: BTreeMap::new(),
            seen: None,
            without_id: BTreeSet::new(),
        }
    }

    /// The connection breaks, whatever is under way, and it opens another one.
    fn come_back(&mut self) {
        let mut target = WATCH.to_owned();
        let urls = self.subscribed.iter().map(|url| format!("url={url}"));
        let seen = self.seen.iter().map(|seen| format!("last_event_id={seen}"));
        for (at, parameter) in urls.chain(seen).enumerate() {
            target.push(if at == 0 { '?' } else { '&' });
            target.push_str(&parameter);
        }
        self.socket = open(self.live, &target);
        let without_id = &self.without_id;
        self.last.retain(|name, _| !without_id.contains(name));
        self.forget_others();
    }

    /// Of what it does not subscribe to it knows nothing.
    fn forget_others(&mut self) {
        let subscribed = &self.subscribed;
        let stays = |name: &String| subscribed.iter().any(|url| matches(url, name));
        self.last.retain(|name, _| stays(name));
        self.known.retain(|name, _| stays(name));
    }

    fn run(mut self, is_over: &AtomicBool) -> (Vec<&'static str>, BTreeMap<String, String>) {
        loop {
            let was_over = is_over.load(Ordering::Acquire);
            let url = URLS[self.dice.below(URLS.len())];
            let at = self.subscribed.iter().position(|it| *it == url);
            let order = if at.is_some() {
                "unsubscribe"
            } else {
                "subscribe"
            };
            self.socket.say(&json!({order: url}).to_string());
            let answered = format!("{order}d");
            if self.dice.below(8) == 0 {
                let is_answered = (0..self.dice.below(4)).any(|_| self.take_event(&answered, url));
                if !is_answered {
                    self.come_back();
                    continue;
                }
            } else {
                while !self.take_event(&answered, url) {}
            }
            match at {
                Some(at) => {
                    self.subscribed.swap_remove(at);
                    self.forget_others();
                }
                None => self.subscribed.push(url),
            }
            if was_over {
                // The reply to a command follows the events of all that was published before.
                self.socket.say(r#"{"get": "/live/none"}"#);
                while !self.take_event("error", "/live/none") {}
                return (self.subscribed, self.known);
            }
        }
    }

    /// Takes an event. Whether it is the answer that is waited for.
    fn take_event(&mut self, answer: &str, url: &str) -> bool {
        let text = self.socket.text();
        let message: Value = serde_json::from_str(&text).expect("JSON");
        let (event, about) = (message["event"].as_str(), message["url"].as_str());
        let about = about.expect("a url").to_owned();
        match event.expect("a kind") {
            "put" | "delete" => {}
            other => {
                assert_eq!((other, &*about), (answer, url), "{text}");
                if let Some(seen) = message["last_event_id"].as_str() {
                    self.seen = Some(seen.to_owned());
                }
                return true;
            }
        }
        let version = if let Some(id) = message["id"].as_str() {
            self.seen = Some(id.to_owned());
            self.without_id.remove(&about);
            id
        } else {
            self.without_id.insert(about.clone());
            message["etag"].as_str().expect("a tag").trim_matches('"')
        };
        let number: u64 = version
            .split_once('.')
            .expect("a version")
            .1
            .parse()
            .expect("a number");
        let before = self.last.insert(about.clone(), number);
        assert!(
            before.is_none_or(|before| before < number),
            "{before:?} {text}"
        );
        if event == Some("put") {
            self.known.insert(about, message["value"].to_string());
        } else {
            self.known.remove(&about);
        }
        false
    }
}
