//! Several nodes that are killed and stand still, and Redis too, held against what has to be true: every subscriber,
//! wherever it comes back to, ends with the last version of each document, and has been told all in their
//! order, and none twice. Where nodes remember versions, it has been told each of them, or of a gap.
//!
//! `PUSH_FLEET_SEED` and `PUSH_FLEET_ROUNDS` search elsewhere and for longer.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::{Nodes, lasting};
use crate::push::SECRET;
use crate::support::{Signal, eventually};

const NODES: u64 = 4;
const DOCUMENTS: u64 = 6;
const SUBSCRIBERS: u64 = 6;
const WATCH: &str = "/.well-known/microcache/watch?url=/live/*";
/// What is put when all is over.
const END: &str = "/live/end";

fn said(name: &str, usual: u64) -> u64 {
    let said = env::var(name).ok().and_then(|text| text.parse().ok());
    said.unwrap_or(usual)
}

/// Numbers that look like chance.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// A version: which life, and its number.
type Version = (String, u64);

fn version(text: &str) -> Version {
    let (epoch, number) = text.trim_matches('"').split_once('.').expect("a version");
    (epoch.to_owned(), number.parse().expect("a number"))
}

/// What a client knows of a document: its last version, and whether it is there.
type Known = BTreeMap<String, (Version, bool)>;

/// The events of one subscriber.
#[derive(Default)]
struct Told {
    known: Known,
    /// All versions of each document, and a zero for each gap.
    versions: BTreeMap<String, Vec<u64>>,
}

/// The state shared by publishers, subscribers and faults.
struct World {
    addresses: Mutex<Vec<SocketAddr>>,
    is_over: AtomicBool,
    /// The versions of each document that were returned to publishers.
    answered: Mutex<BTreeMap<String, BTreeSet<u64>>>,
    values: AtomicU64,
    /// What was done, to know that something was.
    changes: AtomicU64,
    refused: AtomicU64,
    events: AtomicU64,
    returns: AtomicU64,
}

/// An answer as far as it matters here.
struct Answer {
    status: u16,
    tag: Option<Version>,
}

impl World {
    fn of(nodes: &Nodes) -> Self {
        Self {
            addresses: Mutex::new(nodes.all.iter().map(|it| it.0.address()).collect()),
            is_over: AtomicBool::new(false),
            answered: Mutex::default(),
            values: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            events: AtomicU64::new(0),
            returns: AtomicU64::new(0),
        }
    }

    fn connect(&self, node: u64, request: &str) -> io::Result<TcpStream> {
        let address = self.addresses.lock().unwrap()[node as usize];
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(8)))?;
        stream.write_all(request.as_bytes())?;
        Ok(stream)
    }

    /// An answer, if the node lives to give it.
    fn ask(&self, node: u64, line: &str, fields: &str, body: &str) -> Option<Answer> {
        let length = body.len();
        let request = format!(
            "{line} HTTP/1.0\r\nHost: x\r\nAuthorization: Bearer {SECRET}\r\n{fields}Content-Length: {length}\r\n\r\n{body}"
        );
        let mut reply = String::new();
        let mut stream = self.connect(node, &request).ok()?;
        stream.read_to_string(&mut reply).ok()?;
        let status = reply.split(' ').nth(1)?.parse().ok()?;
        let mut lines = reply.lines();
        let tag = lines.find_map(|line| line.strip_prefix("ETag: "));
        let tag = tag.map(version);
        Some(Answer { status, tag })
    }

    fn publish_all(&self, mut dice: Dice) {
        while !self.is_over.load(Ordering::Acquire) {
            self.publish(&mut dice);
            thread::sleep(Duration::from_millis(dice.below(6)));
        }
    }

    fn publish(&self, dice: &mut Dice) {
        let (node, name) = (
            dice.below(NODES),
            format!("/live/{}", dice.below(DOCUMENTS)),
        );
        let value = self.values.fetch_add(1, Ordering::Relaxed);
        let (method, kind, body) = match dice.below(10) {
            0 => ("DELETE", "", String::new()),
            1 | 2 => ("PATCH", "merge-patch+json", format!("{{\"n\":{value}}}")),
            3 => ("PUT", "json\r\nPush-TTL: 1", format!("{{\"n\":{value}}}")),
            _ => ("PUT", "json", format!("{{\"n\":{value}}}")),
        };
        let fields = match kind {
            "" => String::new(),
            kind => format!("Content-Type: application/{kind}\r\n"),
        };
        let line = format!("{method} {name}");
        let Some(answer) = self.ask(node, &line, &fields, &body) else {
            return;
        };
        match answer.status {
            201 | 204 => self.changes.fetch_add(1, Ordering::Relaxed),
            404 | 503 => self.refused.fetch_add(1, Ordering::Relaxed),
            other => panic!("{line} is answered {other}"),
        };
        if let Some((_, number)) = answer.tag {
            let mut answered = self.answered.lock().unwrap();
            answered.entry(name).or_default().insert(number);
        }
    }

    /// Subscribes on all nodes until the end.
    fn subscribe(&self, mut dice: Dice) -> Told {
        let (mut next_event, mut last) = (Told::default(), None);
        loop {
            let events = dice.below(60) + 1;
            let read = self.read(dice.below(NODES), events, &mut next_event, &mut last);
            match read {
                Ok(true) => return next_event,
                Ok(false) => {
                    self.returns.fetch_add(1, Ordering::Relaxed);
                }
                // The node is not there, or was killed.
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Reads so many events of a node. True if the end was among them.
    fn read(
        &self,
        node: u64,
        events: u64,
        all: &mut Told,
        last: &mut Option<Version>,
    ) -> io::Result<bool> {
        let seen = last.as_ref().map_or_else(String::new, |(epoch, number)| {
            format!("Last-Event-ID: {epoch}.{number}\r\n")
        });
        let request =
            format!("GET {WATCH} HTTP/1.0\r\nHost: x\r\nAccept: text/event-stream\r\n{seen}\r\n");
        let mut lines = BufReader::new(self.connect(node, &request)?);
        let (mut id, mut kind, mut next_event) = (None, String::new(), 0);
        while next_event < events {
            let mut line = String::new();
            if lines.read_line(&mut line)? == 0 || !line.ends_with('\n') {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let line = line.trim_end();
            if let Some(text) = line.strip_prefix("id: ") {
                id = Some(version(text));
            } else if let Some(text) = line.strip_prefix("event: ") {
                text.clone_into(&mut kind);
            } else if let Some(data) = line.strip_prefix("data: ") {
                next_event += 1;
                self.events.fetch_add(1, Ordering::Relaxed);
                assert_ne!(kind, "reset", "nothing was forgotten");
                if kind == "gap" {
                    all.versions.values_mut().for_each(|it| it.push(0));
                    continue;
                }
                let id = id.take().expect("an id");
                if let Some(last) = last {
                    assert_eq!(id.0, last.0, "it is one life");
                    assert!(id.1 > last.1, "{id:?} after {last:?}");
                }
                let data: Value = serde_json::from_str(data).expect("JSON");
                let url = data["url"].as_str().expect("a url").to_owned();
                let is_end = url == END;
                let versions = all.versions.entry(url.clone()).or_default();
                versions.push(id.1);
                all.known.insert(url, (id.clone(), kind != "delete"));
                *last = Some(id);
                if is_end {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// All nodes have the same of a document, and all who subscribed know that.
    fn check(&self, name: &str, next_event: &[Told]) {
        let there = (0..NODES).map(|node| {
            let found = self
                .ask(node, &format!("GET {name}"), "", "")
                .expect("an answer");
            (found.status == 200).then_some(found.tag).flatten()
        });
        let there: Vec<_> = there.collect();
        assert!(there.iter().all(|it| *it == there[0]), "{name}: {there:?}");
        let answered = self.answered.lock().unwrap();
        let answered = answered.get(name).and_then(BTreeSet::last);
        for next_event in next_event {
            let known = next_event.known.get(name);
            let now = known.and_then(|(last, is_there)| is_there.then(|| last.clone()));
            assert_eq!(now, there[0], "{name}");
            if let (Some(((_, last), _)), Some(answered)) = (known, answered) {
                assert!(
                    last >= answered,
                    "{name}: somebody was answered with {answered}"
                );
            }
        }
    }

    /// Between two versions of a subscriber there is no other one, unless it got a gap. Returns the number of gaps.
    fn check_each(&self, next_event: &[Told]) -> usize {
        let all = self.answered.lock().unwrap();
        let mut pairs = 0;
        for (name, versions) in next_event.iter().flat_map(|it| &it.versions) {
            let Some(answered) = all.get(name) else {
                continue;
            };
            for pair in versions.windows(2).filter(|pair| !pair.contains(&0)) {
                let between = answered.range(pair[0] + 1..pair[1]).next();
                assert_eq!(between, None, "{name}: {pair:?}");
                pairs += 1;
            }
        }
        pairs
    }
}

/// Has nodes and Redis stand still, and killed and started again.
fn disturb(nodes: &mut Nodes, world: &World, mut dice: Dice, rounds: u64, flags: &[&str]) {
    let pause = |dice: &mut Dice, from: u64, to: u64| {
        thread::sleep(Duration::from_millis(from + dice.below(to - from)));
    };
    for round in 0..rounds {
        let node = dice.below(NODES) as usize;
        match round % 7 {
            0 | 3 => {
                nodes[node].0.freeze();
                pause(&mut dice, 20, 400);
                nodes[node].0.thaw();
            }
            1 | 4 => {
                nodes[node].0.signal(Signal::KILL);
                nodes.all[node].0.wait();
                nodes.all[node] = nodes.another(flags);
                world.addresses.lock().unwrap()[node] = nodes[node].0.address();
            }
            2 => {
                nodes.redis.freeze();
                pause(&mut dice, 20, 400);
                nodes.redis.thaw();
            }
            5 => {
                nodes.redis.kill();
                pause(&mut dice, 20, 400);
                nodes.redis.restart();
            }
            // So long that writes are given up, and connections.
            _ => {
                nodes.redis.freeze();
                pause(&mut dice, 3500, 4500);
                nodes.redis.thaw();
            }
        }
        pause(&mut dice, 50, 400);
    }
}

#[test]
fn all_subscribers_end_with_the_last_version_without_duplicates() {
    run(&[]);
}

#[test]
fn all_subscribers_get_each_remembered_version_or_a_gap() {
    let (world, next_event) = run(&["--push-history", "8"]);
    let pairs = world.check_each(&next_event);
    let gaps = next_event
        .iter()
        .flat_map(|it| it.versions.values().flatten());
    let gaps = gaps.filter(|it| **it == 0).count();
    eprintln!("{pairs} versions one behind the other, {gaps} gaps");
    assert!(pairs > 200);
}

fn run(of_nodes: &[&str]) -> (World, Vec<Told>) {
    let (seed, rounds) = (said("PUSH_FLEET_SEED", 1), said("PUSH_FLEET_ROUNDS", 14));
    let mut nodes = Nodes::beside(lasting(), 0);
    nodes.all = (0..NODES).map(|_| nodes.another(of_nodes)).collect();
    let world = World::of(&nodes);
    let dice = |of: u64| Dice(seed.wrapping_mul(1000) + of);
    let next_event: Vec<Told> = thread::scope(|scope| {
        let world = &world;
        let publishers: Vec<_> = (0..NODES)
            .map(|at| scope.spawn(move || world.publish_all(dice(at))))
            .collect();
        let subscribers: Vec<_> = (0..SUBSCRIBERS)
            .map(|at| scope.spawn(move || world.subscribe(dice(100 + at))))
            .collect();
        disturb(&mut nodes, world, dice(200), rounds, of_nodes);
        world.is_over.store(true, Ordering::Release);
        for publisher in publishers {
            publisher.join().expect("it publishes");
        }
        // What has its time has had it.
        thread::sleep(Duration::from_millis(1500));
        eventually("the end to be told", || {
            let json = "Content-Type: application/json\r\n";
            let end = world.ask(0, &format!("PUT {END}"), json, "true")?;
            matches!(end.status, 201 | 204).then_some(())
        });
        let all = subscribers.into_iter();
        all.map(|it| it.join().expect("it subscribes")).collect()
    });
    let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
    eprintln!(
        "seed {seed}: {} changes, {} refused, {} events, {} returns",
        count(&world.changes),
        count(&world.refused),
        count(&world.events),
        count(&world.returns)
    );
    assert!(count(&world.changes) > 100 && count(&world.returns) > 10);
    for number in 0..DOCUMENTS {
        world.check(&format!("/live/{number}"), &next_event);
    }
    (world, next_event)
}
