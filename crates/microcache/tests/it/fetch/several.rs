//! Several commands on one directory, and those that are killed.

use std::io::Read;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::place::{Place, printed};
use crate::support::{Gate, Origin, Reply, Signal, eventually, signal};

/// All at once; the server's answer waits until it has been asked.
fn ask_for_the_same(count: usize) {
    let origin = Origin::start();
    let gate = Gate::default();
    let page = Reply::new(200).with("Cache-Control: max-age=600");
    origin.on("/page").reply(page.body("the page").after(&gate));
    let place = Place::new();
    let url = format!("{}/page", origin.url());
    let children: Vec<_> = (0..count).map(|_| place.start(&[&url])).collect();
    origin.wait_for("/page", 1);
    gate.open();
    for child in children {
        let printed = printed(child.wait_with_output().expect("it ends"));
        assert_eq!(
            (printed.code, printed.out.as_str()),
            (0, "the page"),
            "{}",
            printed.err
        );
    }
    assert_eq!(origin.count("/page"), 1);
}

#[test]
fn two_concurrent_fetches_send_one_request() {
    ask_for_the_same(2);
}

#[test]
fn eight_concurrent_fetches_send_one_request() {
    ask_for_the_same(8);
}

/// Five at once for what cannot be stored: the first finds that out, and says whether all others are with the server
/// at the same time then. Those that begin too late to wait for the first are no fault of theirs.
fn fetch_concurrently(origin: &Origin, target: &str) -> bool {
    let (first, others) = (Gate::default(), Gate::default());
    let reply = |gate: &Gate| {
        let page = Reply::new(200).with("Cache-Control: no-store");
        page.body("the page").after(gate)
    };
    origin.on(target).reply(reply(&first)).reply(reply(&others));
    let place = Place::new();
    let url = format!("{}{target}", origin.url());
    let children: Vec<_> = (0..5).map(|_| place.start(&[&url])).collect();
    origin.wait_for(target, 1);
    sleep(Duration::from_millis(500));
    assert_eq!(origin.count(target), 1, "they wait for the first");
    first.open();
    let deadline = Instant::now() + Duration::from_secs(3);
    while origin.count(target) < 5 && Instant::now() < deadline {
        sleep(Duration::from_millis(10));
    }
    let together = origin.count(target) == 5;
    others.open();
    for child in children {
        let printed = printed(child.wait_with_output().expect("it ends"));
        assert_eq!((printed.code, printed.out.as_str()), (0, "the page"));
    }
    assert_eq!(origin.count(target), 5);
    // One that comes later claims it again, so that what can be stored then is.
    let page = Reply::new(200).with("Cache-Control: max-age=600");
    origin.on(target).reply(page.body("stored"));
    for requested in [6, 7, 7] {
        let out = place.run(&[&url]).out;
        assert_eq!(
            (out.as_str(), origin.count(target)),
            (
                if requested == 6 { "the page" } else { "stored" },
                requested
            )
        );
    }
    together
}

#[test]
fn waiters_for_an_unstorable_response_do_not_take_turns() {
    let origin = Origin::start();
    let together = (0..10).any(|number| {
        let target = format!("/{number}");
        fetch_concurrently(&origin, &target)
    });
    assert!(together, "one after the other");
}

#[test]
fn concurrent_commands_store_all_their_responses() {
    let origin = Origin::start();
    let targets: Vec<_> = (0..8).map(|number| format!("/{number}")).collect();
    for target in &targets {
        let page = Reply::new(200).with("Cache-Control: max-age=600");
        origin.on(target).reply(page.body(target.repeat(10_000)));
    }
    let place = Place::new();
    let urls: Vec<_> = targets
        .iter()
        .map(|target| format!("{}{target}", origin.url()))
        .collect();
    let children: Vec<_> = urls.iter().map(|url| place.start(&[url])).collect();
    for child in children {
        assert_eq!(printed(child.wait_with_output().expect("it ends")).code, 0);
    }
    origin.stop();
    for (url, target) in urls.iter().zip(&targets) {
        let run = place.run(&["--offline", url]);
        assert_eq!(
            (run.code, run.out),
            (0, target.repeat(10_000)),
            "{}",
            run.err
        );
    }
}

#[test]
fn a_body_is_printed_as_it_arrives_and_none_is_stored_that_did_not_arrive() {
    for how in [Signal::KILL, Signal::HUP, Signal::INT, Signal::TERM] {
        let origin = Origin::start();
        let half = "x".repeat(50_000);
        let page =
            Reply::new(200).with_all(&["Cache-Control: max-age=600", "Content-Length: 100000"]);
        origin.on("/page").reply(page.send(&half).hold());
        let place = Place::new();
        let url = format!("{}/page", origin.url());
        let mut printed = place.start(&[&url]);
        let mut out = printed.stdout.take().expect("a pipe");
        let mut first = vec![0; half.len()];
        out.read_exact(&mut first)
            .expect("it is printed before the rest is there");
        let file = place.path("page");
        let mut written = place.start(&["-o", file.to_str().expect("a path"), &url]);
        let drafts = || {
            let entries = std::fs::read_dir(place.folder()).expect("it is there");
            entries.filter(|entry| {
                let name = entry.as_ref().expect("an entry").file_name();
                name.to_string_lossy().contains(".part")
            })
        };
        let _ = eventually("a draft", || drafts().next());
        for child in [&mut printed, &mut written] {
            signal(child.id(), how);
            let code = child.wait().expect("it ends").code();
            let printed = (how != Signal::KILL).then_some(128 + how.as_raw());
            assert_eq!(code, printed, "{how:?}");
        }
        assert!(!file.exists());
        // Who is killed cannot clean up; what is left has another name, and goes when the file is written again.
        assert_eq!(drafts().count(), usize::from(how == Signal::KILL));
        let other = format!("{}/other", origin.url());
        origin.on("/other").reply(Reply::new(200).body("other"));
        let again = place.run(&["-o", file.to_str().expect("a path"), &other]);
        assert_eq!((again.code, drafts().count()), (0, 0), "{}", again.err);
        assert_eq!(std::fs::read_to_string(&file).expect("written"), "other");
        let none = place.run(&["--offline", &url]);
        assert_eq!((none.code, none.out.as_str()), (3, ""), "{}", none.err);
        assert!(
            !place.files().iter().any(|name| name.len() == 32),
            "{:?}",
            place.files()
        );
    }
}

/// Two write the same file: neither takes the other's draft for one that was left behind.
#[test]
fn the_draft_of_another_command_stays() {
    let (origin, gate) = (Origin::start(), Gate::default());
    let page = Reply::new(200).with("Content-Length: 8");
    origin
        .on("/slow")
        .reply(page.send("slow").pause(&gate).send("slow"));
    origin.on("/fast").reply(Reply::new(200).body("fast"));
    let place = Place::new();
    let file = place.path("page");
    let name = file.to_str().expect("a path");
    let slow = place.start(&["-o", name, &format!("{}/slow", origin.url())]);
    let _ = eventually("a draft", || {
        let mut entries = std::fs::read_dir(place.folder()).expect("it is there");
        entries.find(|entry| {
            let name = entry.as_ref().expect("an entry").file_name();
            name.to_string_lossy().contains(".part")
        })
    });
    let fast = place.run(&["-o", name, &format!("{}/fast", origin.url())]);
    assert_eq!(fast.code, 0, "{}", fast.err);
    assert_eq!(std::fs::read_to_string(&file).expect("written"), "fast");
    gate.open();
    let slow = printed(slow.wait_with_output().expect("it ends"));
    assert_eq!(slow.code, 0, "{}", slow.err);
    assert_eq!(std::fs::read_to_string(&file).expect("written"), "slowslow");
}

/// As `nohup` has it.
#[test]
fn a_signal_that_is_to_be_ignored_is_ignored() {
    let (origin, gate) = (Origin::start(), Gate::default());
    origin
        .on("/page")
        .reply(Reply::new(200).body("the page").after(&gate));
    let place = Place::new();
    let fetch = place.command(&[&format!("{}/page", origin.url())]);
    let child = Command::new("sh")
        .args(["-c", "trap '' HUP; exec \"$0\" \"$@\""])
        .arg(fetch.get_program())
        .args(fetch.get_args())
        .env("no_proxy", "*")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    origin.wait_for("/page", 1);
    signal(child.id(), Signal::HUP);
    gate.open();
    let printed = printed(child.wait_with_output().expect("it ends"));
    assert_eq!(
        (printed.code, printed.out.as_str()),
        (0, "the page"),
        "{}",
        printed.err
    );
}

#[test]
fn the_claim_of_a_killed_command_delays_no_other() {
    let origin = Origin::start();
    let page = Reply::ok(&["Cache-Control: max-age=600"], "the page");
    origin.on("/page").reply(Reply::silence()).reply(page);
    let place = Place::new();
    let url = format!("{}/page", origin.url());
    let mut first = place.start(&[&url]);
    origin.wait_for("/page", 1);
    assert!(place.files().iter().any(|name| name.contains(".claim")));
    first.kill().expect("killed");
    first.wait().expect("it ends");
    let second = place.run(&["--explain", &url]);
    assert_eq!(
        (second.code, second.out.as_str()),
        (0, "the page"),
        "{}",
        second.err
    );
    assert!(second.err.contains("it is stored"), "{}", second.err);
    assert!(!place.files().iter().any(|name| name.contains(".claim")));
}

/// It really waits: its page is rendered once, however many want it.
#[test]
fn the_slow_application_renders_once() {
    let mut origin = Command::new(env!("CARGO_BIN_EXE_microcache"))
        .args(["origin", "--listen", "127.0.0.1:0", "--work", "300ms"])
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut banner = std::io::BufReader::new(origin.stderr.take().expect("a pipe"));
    let mut line = String::new();
    std::io::BufRead::read_line(&mut banner, &mut line).expect("it says where it is");
    let (_, address) = line.trim().rsplit_once("http://").expect("an address");
    let place = Place::new();
    let url = format!("http://{address}/page");
    let flags = ["--max-age", "1h", &url];
    let children: Vec<_> = (0..3).map(|_| place.start(&flags)).collect();
    let bodies: Vec<_> = children
        .into_iter()
        .map(|child| printed(child.wait_with_output().expect("it ends")).out)
        .collect();
    assert!(bodies[0].contains("Render 1,"), "{}", bodies[0].len());
    assert!(bodies.iter().all(|body| *body == bodies[0]));
    origin.kill().expect("killed");
    origin.wait().expect("it ends");
}
