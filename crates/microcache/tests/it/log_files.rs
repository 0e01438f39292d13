//! Where logs go: files that are moved away, readers that do not read, disks that are full.

use std::fs::{self, OpenOptions};
use std::io::Read;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::Value;

use crate::log_access::{end, lines};
use crate::support::{
    Client, Folder, Origin, Process, Proxy, Reply, Signal, eventually, free_port, request,
};

fn page(origin: &Origin) {
    let page = Reply::new(200).with("Cache-Control: max-age=1000");
    origin.on("/").reply(page.body("x"));
}

/// The number that a request carried, of its line.
fn number(line: &str) -> u64 {
    let (_, rest) = line.split_once("User-Agent ").expect("a number");
    let (number, _) = rest.split_once('"').expect("its end");
    number.parse().expect("a number")
}

/// Sends requests on one connection until stopped, each as another client. Returns their number.
fn ask_on(proxy: &Proxy, who: u64, stop: &AtomicBool) -> u64 {
    let mut client = proxy.connect();
    let mut requested = 0;
    while !stop.load(Ordering::Relaxed) {
        let agent = format!("User-Agent: User-Agent {}", who + requested);
        client.send(request("GET", "/", &[&agent]));
        assert_eq!(client.response().status, 200);
        requested += 1;
    }
    requested
}

#[test]
fn files_that_are_moved_away_under_load_have_every_request_once() {
    for with_signal in [true, false] {
        let (origin, folder) = (Origin::start(), Folder::new());
        page(&origin);
        let path = folder.file("access.log");
        let mut proxy = Proxy::start(&origin, &["--access-log", &path, "--log-buffer", "1GiB"]);
        let stop = AtomicBool::new(false);
        let mut files = vec![path.clone()];
        let requested: Vec<u64> = thread::scope(|scope| {
            let clients: Vec<_> = (0..3)
                .map(|who| {
                    let (proxy, stop) = (&proxy, &stop);
                    scope.spawn(move || ask_on(proxy, who << 32, stop))
                })
                .collect();
            for turn in 0..3 {
                let written = || fs::metadata(&path).is_ok_and(|data| data.len() > 0);
                eventually("lines", || written().then_some(()));
                let moved = folder.file(&format!("access.log.{turn}"));
                fs::rename(&path, &moved).expect("it is there");
                files.push(moved);
                if with_signal {
                    proxy.signal(Signal::USR1);
                }
                eventually("a new file", || written().then_some(()));
            }
            stop.store(true, Ordering::Relaxed);
            let ended = clients.into_iter().map(thread::ScopedJoinHandle::join);
            ended
                .map(|requested| requested.expect("it asked"))
                .collect()
        });
        end(&mut proxy);
        let mut all: Vec<u64> = Vec::new();
        for file in &files {
            all.extend(lines(file).iter().map(|line| number(line)));
        }
        all.sort_unstable();
        let expected: Vec<u64> = (0..3)
            .flat_map(|who: u64| (0..requested[who as usize]).map(move |nth| (who << 32) + nth))
            .collect();
        assert!(all == expected, "{} of {}", all.len(), expected.len());
        let opened = format!("microcache: log: {path} reopened");
        proxy.output_with(&opened);
    }
}

#[test]
fn the_event_log_is_reopened_too() {
    let (origin, folder) = (Origin::start(), Folder::new());
    origin.on("/").reply(Reply::new(200).body("x"));
    let path = folder.file("error.log");
    let listen = format!("127.0.0.1:{}", free_port());
    // It says where it listens in its log alone.
    let mut command = Command::new(env!("CARGO_BIN_EXE_microcache"));
    command.args(["--listen", &listen, "--log", &path, &origin.url()]);
    let mut server = Process::start(&mut command).expect("the binary can be run");
    let reported = |words: &str| {
        let reported = || fs::read_to_string(&path).is_ok_and(|text| text.contains(words));
        eventually(words, || reported().then_some(()));
    };
    reported("listening on http://");
    fs::rename(&path, folder.file("moved")).expect("it is there");
    server.signal(Signal::USR1);
    reported("reopened");
    server.signal(Signal::TERM);
    assert!(server.wait().success());
    let last = fs::read_to_string(&path).expect("a log");
    assert!(
        last.contains("microcache stopped after 0 requests"),
        "{last}"
    );
    assert!(!last.contains("listening"), "{last}");
}

/// The lines read from a pipe, once it is read.
fn read_lines(mut pipe: impl Read + Send + 'static) -> thread::JoinHandle<Vec<String>> {
    thread::spawn(move || {
        let mut text = String::new();
        pipe.read_to_string(&mut text).expect("text");
        assert!(text.ends_with('\n'), "the last line is whole");
        text.lines().map(str::to_owned).collect()
    })
}

/// How many lines were lost in all, as the server says at its end.
fn lost(proxy: &Proxy) -> usize {
    let output = proxy.output_with("log: not written to ");
    let line = output
        .lines()
        .rfind(|line| line.contains("log: not written to "));
    let words = line.expect("it says so").split(' ');
    let number = words.rev().nth(1).expect("a number");
    number.parse().expect("a number")
}

#[test]
fn a_stalled_log_reader_blocks_nothing_and_lost_lines_are_counted() {
    const REQUESTS: usize = 3000;
    let (origin, folder) = (Origin::start(), Folder::new());
    page(&origin);
    let pipe = folder.file("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo").success());
    // Open at both ends, so that neither waits for the other.
    let both = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&pipe)
        .expect("a pipe");
    let into = ["sh", "-c", "exec \"$@\" >\"$0\"", &pipe];
    let flags = ["--access-log", "stdout", "--log-buffer", "64KiB"];
    let mut proxy = Proxy::through(&into, &origin, &flags);
    let mut client = proxy.connect();
    for _ in 0..REQUESTS {
        assert_eq!(client.get("/").status, 200);
    }
    let line = "standard output is too slow: ";
    proxy.output_with(line);
    let reader = OpenOptions::new().read(true).open(&pipe).expect("a pipe");
    drop(both);
    let read = read_lines(reader);
    end(&mut proxy);
    let read = read.join().expect("it was read");
    assert!(
        read.iter()
            .all(|line| line.contains("\"GET / HTTP/1.1\" 200 "))
    );
    assert!(read.len() > 100, "what fitted is there: {}", read.len());
    assert_eq!(read.len() + lost(&proxy), REQUESTS);
}

#[test]
fn a_stalled_log_reader_does_not_delay_the_exit() {
    let (origin, folder) = (Origin::start(), Folder::new());
    page(&origin);
    let pipe = folder.file("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo").success());
    let _both = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&pipe)
        .expect("a pipe");
    let mut proxy = Proxy::start(&origin, &["--access-log", &pipe, "--log-buffer", "64KiB"]);
    let mut client = proxy.connect();
    for _ in 0..1000 {
        assert_eq!(client.get("/").status, 200);
    }
    end(&mut proxy);
    assert!(lost(&proxy) > 0);
}

#[test]
fn a_full_device_is_reported_once() {
    let origin = Origin::start();
    page(&origin);
    let mut proxy = Proxy::start(&origin, &["--access-log", "/dev/full"]);
    let line = "log: cannot write to /dev/full: No space left on device";
    eventually(line, || {
        assert_eq!(proxy.get("/").status, 200);
        proxy.output().contains(line).then_some(())
    });
    end(&mut proxy);
    assert_eq!(proxy.output().matches(line).count(), 1);
    assert!(lost(&proxy) >= 1);
}

#[test]
fn both_logs_may_go_to_one_place_in_lines_of_json() {
    let origin = Origin::start();
    origin.on("/down").reply(Reply::hang_up());
    let file = format!(
        "origin = \"{}\"\naccess_log = \"stdout\"\naccess_log_format = \"json\"\nlog = \"stdout\"\nlog_format = \"json\"\n",
        origin.url()
    );
    let mut proxy = Proxy::with_config(&file);
    assert_eq!(proxy.get("/down").status, 502);
    end(&mut proxy);
    let output = eventually("the last line", || {
        let output = proxy.output();
        output.contains("stopped after").then_some(output)
    });
    let all: Vec<Value> = output
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let of_kind = |kind: &str| all.iter().find(|line| line["kind"] == kind);
    assert_eq!(of_kind("started").expect("it began")["level"], "info");
    let failure = of_kind("origin-disconnected").expect("why it failed");
    assert_eq!(failure["level"], "warn");
    assert_eq!(failure["about"], format!("origin {}", origin.address()));
    let request = all.iter().find(|line| line["target"] == "/down");
    assert_eq!(request.expect("a request")["outcome"], "error");
}

#[test]
fn the_log_level_selects_the_lines() {
    let (origin, folder) = (Origin::start(), Folder::new());
    origin.on("/down").reply(Reply::hang_up());
    origin.on("/").reply(Reply::new(200).body("x"));
    let mut reported = Vec::new();
    for level in ["warn", "info", "debug"] {
        let path = folder.file(level);
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let mut command = Command::new(env!("CARGO_BIN_EXE_microcache"));
        command.args(["--listen", &address.to_string(), "--log", &path]);
        command.args(["--log-level", level, &origin.url()]);
        let mut server = Process::start(&mut command).expect("the binary can be run");
        server.listens(address.port());
        assert_eq!(Client::connect(address).get("/down").status, 502);
        let mut client = Client::connect(address);
        assert_eq!(client.get("/").status, 200);
        server.signal(Signal::TERM);
        assert!(server.wait().success());
        reported.push(fs::read_to_string(&path).expect("a log"));
    }
    let why = " WARN microcache: origin";
    assert!(
        reported.iter().all(|text| text.contains(why)),
        "{reported:?}"
    );
    assert!(
        reported[0].lines().all(|line| line.contains(" WARN ")),
        "{reported:?}"
    );
    assert!(
        reported[1].contains("listening on") && !reported[1].contains(" DEBUG "),
        "{reported:?}"
    );
    assert!(
        reported[2].contains(" DEBUG microcache: origin"),
        "{reported:?}"
    );
}

#[test]
fn a_log_that_cannot_be_written_is_refused_before_anything_is_served() {
    let (origin, folder) = (Origin::start(), Folder::new());
    let inside = folder.file("none/access.log");
    let directory = folder.file("");
    for (flags, code, words) in [
        (
            ["--access-log", &*inside],
            1,
            [
                "`access_log`: cannot write to ",
                "No such file or directory",
                "create its directory first",
            ],
        ),
        (
            ["--log", &*inside],
            1,
            [
                "`log`: cannot write to ",
                "No such file or directory",
                "create its directory first",
            ],
        ),
        (
            ["--access-log", directory.trim_end_matches('/')],
            1,
            [
                "cannot write to ",
                "Is a directory",
                "write the name of a file in it",
            ],
        ),
        (
            ["--access-log", "syslog"],
            2,
            [
                "--access-log: cannot use \"syslog\"",
                "write off, stdout, stderr",
                "with a slash",
            ],
        ),
        (
            ["--access-log-format", "combined"],
            2,
            ["--access-log-format: ", "\"text\", \"json\"", "combined"],
        ),
        (
            ["--access-log-sample", "2"],
            2,
            ["--access-log-sample: ", "from 0 to 1", "2"],
        ),
        (
            ["--log-level", "verbose"],
            2,
            ["--log-level: ", "\"warn\", \"info\"", "verbose"],
        ),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_microcache"))
            .args(["--listen", "127.0.0.1:0"])
            .args(flags)
            .arg(origin.url())
            .output()
            .expect("the binary runs");
        let reported = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(code), "{reported}");
        assert_eq!(reported.lines().count(), 1, "{reported}");
        for part in words {
            assert!(reported.contains(part), "{part}: {reported}");
        }
    }
}
