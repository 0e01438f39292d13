//! What was published outlives a restart, a kill and damaged files.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;

use super::*;
use crate::support::signal;

/// A directory in which hubs keep what is published, one after the other.
struct Kept(Folder);

impl Kept {
    fn new() -> Self {
        Self(Folder::absent())
    }

    fn hub(&self, flags: &[&str]) -> Hub {
        Hub::open(&[&["--push-directory", self.0.as_str()], flags].concat())
    }

    fn log(&self) -> PathBuf {
        self.0.path().join("mercure.log")
    }
}

impl Hub {
    fn end(mut self, signal: Signal) {
        self.proxy.signal(signal);
        self.proxy.wait();
    }

    /// The ids of the whole history, as a subscriber with all rights gets them.
    fn remembered(&self) -> Vec<String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let end = format!("end-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        self.published(&format!("topic=the-end&id={end}&private"));
        let may = bearer(&json!({"subscribe": ["*"]}));
        let mut all = self.subscribe("topic=*&lastEventID=earliest", &[&may]);
        let ids = std::iter::from_fn(|| Some(all.event().0));
        let ids = ids.take_while(|id| *id != end);
        ids.filter(|id| !id.starts_with("end-")).collect()
    }
}

#[test]
fn a_subscriber_that_returns_after_a_restart_gets_the_missed_updates() {
    let kept = Kept::new();
    let hub = kept.hub(&[]);
    for id in 1..=4 {
        let private = if id == 3 { "&private" } else { "" };
        hub.published(&format!("topic=/a/{id}&id={id}&type=t&data=1%0A2{private}"));
    }
    hub.end(Signal::TERM);
    let hub = kept.hub(&[]);
    let may = bearer(&json!({"subscribe": ["/a/3"]}));
    for (fields, expected) in [(&[][..], &["2", "4"][..]), (&[&*may], &["2", "3", "4"])] {
        let target = format!("{HUB}?topic=/a/%7Bx%7D&lastEventID=1");
        let (head, mut events) = Events::with_head(hub.proxy.ask_with(&target, fields));
        assert_eq!(head.field("last-event-id"), Some("1"));
        for id in expected {
            let event = format!("id: {id}\nevent: t\ndata: 1\ndata: 2");
            assert_eq!(events.next(), event);
        }
        hub.published("topic=/a/new&id=new");
        assert_eq!(events.event().0, "new");
    }
    assert_eq!(hub.stats()["history"], 6);
    let mode = fs::metadata(kept.log())
        .expect("a log")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// Several publish while the process is killed, again and again.
#[test]
fn acknowledged_updates_survive_a_kill_in_order() {
    const ROUNDS: u64 = 6;
    const PUBLISHERS: usize = 3;
    let kept = Kept::new();
    let mut answered: Vec<Vec<String>> = vec![Vec::new(); PUBLISHERS];
    for round in 0..ROUNDS {
        let mut hub = kept.hub(&[]);
        let is_over = AtomicBool::new(false);
        let (reported, first) = mpsc::channel();
        thread::scope(|scope| {
            for (number, answered) in answered.iter_mut().enumerate() {
                let (address, is_over, reported) =
                    (hub.proxy.address(), &is_over, reported.clone());
                scope.spawn(move || {
                    let by = bearer(&json!({"publish": ["*"]}));
                    let mut client = crate::support::Client::connect(address);
                    for count in 0.. {
                        let id = format!("{number}-{round}-{count}");
                        let form = format!("topic=a&id={id}&data={}&private", "x".repeat(2000));
                        let length = format!("Content-Length: {}", form.len());
                        let is_sent =
                            client.try_send(request("POST", HUB, &[FORM, &by, &length]) + &form);
                        match client.try_response() {
                            Ok(answer) if is_sent => assert_eq!(answer.status, 200),
                            _ if is_over.load(Ordering::SeqCst) => return,
                            other => panic!("{:?}", other.map(|it| it.status)),
                        }
                        answered.push(id);
                        let _ = reported.send(());
                    }
                });
            }
            for _ in 0..10 * (round + 1) {
                first.recv().expect("somebody publishes");
            }
            is_over.store(true, Ordering::SeqCst);
            hub.proxy.signal(Signal::KILL);
            hub.proxy.wait();
        });
        let hub = kept.hub(&[]);
        let there = hub.remembered();
        for (number, answered) in answered.iter().enumerate() {
            let begins = format!("{number}-");
            let mut mine = there.iter().filter(|id| id.starts_with(&begins));
            for id in answered {
                assert!(
                    mine.any(|it| it == id),
                    "{id} was answered, and is not there"
                );
            }
        }
        // Of each, one may be there in each round that was written and not answered.
        let all: usize = answered.iter().map(Vec::len).sum();
        let most = all + PUBLISHERS * (round as usize + 1);
        assert!((all..=most).contains(&there.len()), "{all} {there:?}");
        hub.end(Signal::KILL);
    }
}

#[test]
fn a_torn_end_is_cut_off_and_a_damage_set_aside() {
    let kept = Kept::new();
    let hub = kept.hub(&[]);
    for id in 1..=4 {
        hub.published(&format!("topic=a&id={id}"));
    }
    hub.end(Signal::KILL);
    let whole = fs::read(kept.log()).expect("a log");
    fs::write(kept.log(), &whole[..whole.len() - 3]).expect("written");
    let hub = kept.hub(&[]);
    hub.proxy.output_with("mercure.log is incomplete");
    assert_eq!(hub.remembered(), ["1", "2", "3"]);
    hub.end(Signal::KILL);
    let mut damaged = fs::read(kept.log()).expect("a log");
    let second = damaged.windows(5).position(|it| it == b"id: 2");
    damaged[second.expect("it is there")] ^= 1;
    fs::write(kept.log(), &damaged).expect("written");
    let hub = kept.hub(&[]);
    hub.proxy.output_with("mercure.damaged");
    assert_eq!(
        fs::read(kept.0.path().join("mercure.damaged")).expect("a copy"),
        damaged
    );
    // A subscriber that has seen lost updates learns that some are missing.
    let target = format!("{HUB}?topic=a&lastEventID=2");
    let (head, mut events) = Events::with_head(hub.proxy.ask_with(&target, &[]));
    assert_eq!(head.field("last-event-id"), Some("earliest"));
    assert_eq!(events.event().0, "1");
    hub.published("topic=a&id=new");
    assert_eq!(events.event().0, "new");
    hub.end(Signal::KILL);
    assert_eq!(kept.hub(&[]).remembered(), ["1", "new"]);
}

#[test]
fn the_log_is_written_anew_as_soon_as_there_is_room_for_that() {
    let kept = Kept::new();
    let hub = kept.hub(&["--mercure-history", "64KiB"]);
    let mut events = hub.subscribe("topic=a", &[]);
    // The log is written anew when it is more than a megabyte, and there is no place for that.
    fs::create_dir(kept.0.path().join("mercure.new")).expect("a directory");
    let data = "x".repeat(16 * 1024);
    for id in 0..100 {
        hub.published(&format!("topic=a&id={id}&data={data}"));
        assert_eq!(events.event().0, id.to_string());
    }
    hub.proxy.output_with("cannot be compacted");
    fs::remove_dir(kept.0.path().join("mercure.new")).expect("it is empty");
    // That is tried again when there is another megabyte.
    for id in 100..200 {
        hub.published(&format!("topic=a&id={id}&data={data}"));
    }
    eventually("a shorter log", || {
        let length = fs::metadata(kept.log()).expect("a log").len();
        (length < 3 << 19).then_some(())
    });
    let output = hub.proxy.output_with("cannot be compacted");
    assert_eq!(output.matches("cannot be compacted").count(), 1);
    // No other process has the directory meanwhile.
    let key = hub.folder.file("key");
    let flags = [
        "--mercure-publisher-key-file",
        &key,
        "--push-directory",
        kept.0.as_str(),
    ];
    let (code, reported) = Proxy::refusal(&[&["http://localhost:1"][..], &flags].concat());
    assert_eq!(code, Some(1), "{reported}");
    assert!(
        reported.contains("another process stores its updates of the Mercure hub"),
        "{reported}"
    );
}

#[test]
fn an_update_that_cannot_be_written_is_refused_and_counted() {
    let kept = Kept::new();
    // What would end the process is ignored: then the write fails, as on a full disk.
    let wrapper = ["sh", "-c", "trap '' XFSZ && exec \"$@\"", "sh"];
    let hub = Hub::started_by(
        |origin, flags| Proxy::operated_through(&wrapper, origin, flags),
        &["--mercure-anonymous", "--push-directory", kept.0.as_str()],
    );
    let pid = hub.proxy.pid().to_string();
    // The colon leaves the hard limit as it is.
    let limit_files = |most: &str| {
        let mut limit = Command::new("prlimit");
        let limited = limit.args(["--pid", &pid, &format!("--fsize={most}:")]);
        assert!(limited.status().expect("prlimit").success(), "{most}");
    };
    let metric = || {
        let metrics = Operator::at(hub.admin).ask("GET", "/metrics", None).text();
        let mut lines = metrics.lines();
        let counted =
            lines.find_map(|it| it.strip_prefix("microcache_mercure_log_write_failures_total "));
        counted.expect("a metric").to_owned()
    };
    hub.published("topic=a&id=1");
    assert_eq!(
        (metric().as_str(), &hub.stats()["write_failures"]),
        ("0", &json!(0))
    );
    let mut events = hub.subscribe("topic=a", &[]);
    limit_files("0");
    for _ in 0..2 {
        let refused = hub.publish("topic=a&id=lost");
        assert_eq!(refused.status, 503, "{}", refused.text());
        assert_eq!(refused.field("retry-after"), Some("1"));
    }
    hub.proxy.output_with("cannot write to push_directory");
    assert_eq!(
        (metric().as_str(), &hub.stats()["write_failures"]),
        ("2", &json!(2))
    );
    assert_eq!(hub.stats()["refused"], 2);
    limit_files("unlimited");
    hub.published("topic=a&id=2");
    assert_eq!(events.event().0, "2");
    assert_eq!(metric(), "2");
    hub.end(Signal::KILL);
    assert_eq!(kept.hub(&[]).remembered(), ["1", "2"]);
}

#[test]
fn without_a_directory_nothing_is_written() {
    let kept = Kept::new();
    for flags in [&["--push-directory", "none"][..], &[]] {
        let hub = Hub::open(flags);
        hub.published("topic=a&id=1");
        assert!(hub.remembered().contains(&"1".to_owned()));
    }
    assert!(!kept.0.path().exists());
    // Beside documents it is where they are.
    let hub = kept.hub(&["--push", "/live/"]);
    hub.published("topic=a&id=1");
    assert!(hub.remembered().starts_with(&["1".to_owned()]));
    assert!(kept.0.path().join("documents.log").exists());
}

/// The history goes along when the process is replaced, and who publishes meanwhile tries again.
#[test]
fn the_hub_is_handed_over_in_an_upgrade() {
    let kept = Kept::new();
    let mut hub = kept.hub(&[]);
    hub.published("topic=a&id=1");
    let mut client = crate::support::Client::connect(hub.admin);
    let host = format!("Host: {}", hub.admin);
    client.send(format!(
        "POST /v1/upgrade HTTP/1.1\r\n{host}\r\nContent-Length: 0\r\n\r\n"
    ));
    let reported: Value = serde_json::from_str(&client.response().text()).expect("JSON");
    let next = reported["pid"].as_u64().expect("a number");
    eventually("a publication", || {
        let answer = hub.publish("topic=a&id=2");
        if answer.status == 503 {
            assert_eq!(answer.field("retry-after"), Some("1"));
            return None;
        }
        assert_eq!(answer.status, 200);
        Some(())
    });
    let mut back = hub.subscribe("topic=a&lastEventID=1", &[]);
    assert_eq!(back.event().0, "2");
    drop(back);
    assert!(hub.proxy.wait().success());
    signal(next as u32, Signal::KILL);
}
