//! Bodies that are too large for memory.

use std::fs;
use std::process::{Child, Stdio};

use super::place::{Place, printed};
use crate::support::{Gate, Origin, Reply, eventually};

const MIB: usize = 1024 * 1024;

fn body(length: usize) -> String {
    "0123456789abcdef".repeat(length / 16)
}

fn page(length: usize) -> Reply {
    let lasting = Reply::new(200).with("Cache-Control: max-age=600");
    lasting.with(&format!("Content-Length: {length}"))
}

/// What a process has had in memory at most, in KiB.
fn most_memory(child: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it is there");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    kib.and_then(|kib| kib.parse().ok()).expect("a number")
}

#[test]
fn a_large_body_is_stored_while_it_is_sent_on() {
    let origin = Origin::start();
    let body = body(40 * MIB);
    origin.on("/page").reply(page(body.len()).send(&body));
    let place = Place::new();
    let url = format!("{}/page", origin.url());
    for word in ["miss: the server answered 200; it is stored", "hit: stored"] {
        let run = place.run(&["--explain", &url]);
        assert_eq!((run.code, run.out == body), (0, true), "{}", run.err);
        assert!(run.err.contains(word), "{}", run.err);
        assert_eq!(run.err.lines().count(), 1, "{}", run.err);
    }
    let file = place.path("page");
    let written = place.run(&["--offline", "-o", file.to_str().expect("a path"), &url]);
    assert_eq!(written.code, 0, "{}", written.err);
    assert!(fs::read_to_string(&file).expect("it is there") == body);
    assert_eq!(origin.count("/page"), 1);
    assert!(!place.files().iter().any(|name| name.contains(".new")));
}

/// However large it is, and whether it is stored or read.
#[test]
fn memory_stays_bounded() {
    let origin = Origin::start();
    let length = 200 * MIB;
    origin.on("/page").reply(page(length).flood(length as u64));
    let place = Place::new();
    let url = format!("{}/page", origin.url());
    let (pipe, file) = (place.path("pipe"), place.path("page"));
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).expect("a pipe");
    for requested in [1, 1] {
        // The command lives until the rest is read.
        let mut child = place.start(&["-o", pipe.to_str().expect("a path"), &url]);
        let mut from = fs::File::open(&pipe).expect("it is opened by both");
        let mut to = fs::File::create(&file).expect("a file");
        let mut limited = std::io::Read::take(&mut from, (length - MIB) as u64);
        std::io::copy(&mut limited, &mut to).expect("copied");
        let most = most_memory(&child);
        assert!(most < 100 * 1024, "{most} KiB");
        std::io::copy(&mut from, &mut to).expect("copied");
        assert_eq!(to.metadata().expect("a file").len(), length as u64);
        assert!(child.wait().expect("it ends").success());
        assert_eq!(origin.count("/page"), requested);
    }
}

/// One gets the length, the other reads to the end.
#[test]
fn a_body_larger_than_a_quarter_of_the_directory_is_not_stored() {
    let origin = Origin::start();
    let body = body(20 * MIB);
    origin.on("/announced").reply(page(body.len()).send(&body));
    let chunked = Reply::new(200).with("Cache-Control: max-age=600");
    let chunked = chunked.with("Transfer-Encoding: chunked");
    origin
        .on("/chunked")
        .reply(chunked.chunk(&body).send("0\r\n\r\n"));
    let place = Place::new();
    for (target, lines) in [("/announced", 1), ("/chunked", 2)] {
        let url = format!("{}{target}", origin.url());
        for requested in 1..3 {
            let run = place.run(&["--cache-size", "64MiB", "--explain", &url]);
            assert_eq!((run.code, run.out == body), (0, true), "{}", run.err);
            assert!(run.err.contains("not stored"), "{}", run.err);
            assert_eq!(run.err.lines().count(), lines, "{}", run.err);
            assert_eq!(origin.count(target), requested);
        }
    }
    assert!(
        !place
            .files()
            .iter()
            .any(|name| name.len() >= 32 && !name.contains(".claim"))
    );
}

#[test]
fn a_large_body_of_a_killed_command_is_stored_by_the_next_one() {
    let origin = Origin::start();
    let (body, gate) = (body(40 * MIB), Gate::default());
    let half = page(body.len()).send(&body[..30 * MIB]).pause(&gate);
    origin
        .on("/page")
        .reply(half)
        .reply(page(body.len()).send(&body));
    let place = Place::new();
    let url = format!("{}/page", origin.url());
    let mut command = place.command(&[&url]);
    let mut killed = command.stdout(Stdio::null()).spawn().expect("it runs");
    let _ = eventually("a part of it is in the directory", || {
        let names = place.files();
        names.into_iter().find(|name| name.contains(".new"))
    });
    killed.kill().expect("killed");
    killed.wait().expect("it ends");
    let none = place.run(&["--offline", &url]);
    assert_eq!((none.code, none.out.len()), (3, 0), "{}", none.err);
    let again = place.run(&["--explain", &url]);
    assert_eq!((again.code, again.out == body), (0, true), "{}", again.err);
    assert!(again.err.contains("; it is stored"), "{}", again.err);
    assert!(place.run(&["--offline", &url]).out == body);
    gate.open();
}

/// A command that meets damage reports it, and the next one fetches the entry again.
#[test]
fn a_large_body_that_is_damaged_breaks_off_once() {
    let origin = Origin::start();
    let body = body(20 * MIB);
    origin.on("/page").reply(page(body.len()).send(&body));
    let place = Place::new();
    let url = format!("{}/page", origin.url());
    assert_eq!(place.run(&[&url]).code, 0);
    let names = place.files();
    let name = names.iter().find(|name| name.len() == 32).expect("stored");
    let home = place.cache().join("microcache-shared-v1");
    let file = home.join(&name[..2]).join(name);
    let mut bytes = fs::read(&file).expect("it is there");
    bytes[10 * MIB] ^= 1;
    fs::write(&file, &bytes).expect("written");
    let broken = place.run(&[&url]);
    assert_eq!(broken.code, 1, "{}", broken.err);
    assert!(
        body.starts_with(&broken.out),
        "nothing that is wrong is printed"
    );
    let again = place.run(&[&url]);
    assert_eq!((again.code, again.out == body), (0, true), "{}", again.err);
    assert_eq!(origin.count("/page"), 2);
}

#[test]
fn two_concurrent_large_fetches_send_one_request() {
    let origin = Origin::start();
    let (body, gate) = (body(20 * MIB), Gate::default());
    let large = page(body.len()).send(&body).after(&gate);
    origin.on("/page").reply(large);
    let place = Place::new();
    let url = format!("{}/page", origin.url());
    let file = |number: usize| place.path(&number.to_string());
    let children: Vec<_> = (0..2)
        .map(|number| place.start(&["-o", file(number).to_str().expect("a path"), &url]))
        .collect();
    origin.wait_for("/page", 1);
    gate.open();
    for (number, child) in children.into_iter().enumerate() {
        let printed = printed(child.wait_with_output().expect("it ends"));
        assert_eq!(printed.code, 0, "{}", printed.err);
        assert!(fs::read_to_string(file(number)).expect("it is there") == body);
    }
    assert_eq!(origin.count("/page"), 1);
}
