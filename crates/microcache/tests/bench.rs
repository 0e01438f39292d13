//! `microcache bench`, run for real against a server of the test's own: what it reports is what the server has seen.

#[path = "bench/server.rs"]
mod server;

use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use microcache_testkit::{Folder, Signal, signal};
use serde_json::Value;
use server::{Reply, Server};

/// No run takes longer, however slow the machine.
const LONGEST: Duration = Duration::from_mins(1);

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_microcache"));
    command.arg("bench").args(arguments).stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    let begun = Instant::now();
    let output = bench(arguments).output().expect("the binary runs");
    assert!(begun.elapsed() < LONGEST, "{arguments:?} took too long");
    output
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs to a report, and reads it.
fn report(arguments: &[&str]) -> Value {
    let output = run(&[arguments, &["--format", "json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stderr(&output), "", "it is quiet without a terminal");
    serde_json::from_slice(&output.stdout).expect("the report is JSON")
}

fn number(report: &Value, path: &str) -> u64 {
    let value = report.pointer(path).and_then(Value::as_u64);
    value.unwrap_or_else(|| panic!("{path} in {report:#}"))
}

fn millis(report: &Value, path: &str) -> f64 {
    let value = report.pointer(path).and_then(Value::as_f64);
    value.unwrap_or_else(|| panic!("{path} in {report:#}"))
}

#[test]
fn the_report_counts_the_requests_that_the_server_received() {
    let server = Server::start(|_| Reply::ok("", "hello"));
    let report = report(&[&server.url("/"), "-n", "1000", "-c", "7", "-t", "2"]);
    assert_eq!(number(&report, "/requests"), 1000);
    assert_eq!(server.requests(), 1000);
    assert_eq!(number(&report, "/statuses/200"), 1000);
    assert_eq!(number(&report, "/outcomes/none/requests"), 1000);
    assert_eq!(number(&report, "/latency_ms/connect/count"), 7);
    assert_eq!(
        server.connections(),
        7 + 1,
        "one to see whether it is there"
    );
    assert_eq!(
        number(&report, "/bytes"),
        1000 * Reply::ok("", "hello").length()
    );
}

#[test]
fn a_duration_counts_too() {
    let server = Server::start(|_| Reply::ok("", "hello"));
    let report = report(&[
        &server.url("/"),
        "-d",
        "500ms",
        "-c",
        "3",
        "--warmup",
        "200ms",
    ]);
    let requests = number(&report, "/requests");
    assert!(
        requests > 0 && requests < server.requests(),
        "warming is not in it"
    );
    assert_eq!(number(&report, "/errors"), 0);
    assert!(millis(&report, "/elapsed_ms") >= 500.0);
    let time_line = report["time_line"].as_array().expect("a time line");
    let sum: u64 = time_line
        .iter()
        .map(|slice| number(slice, "/requests"))
        .sum();
    assert_eq!(sum, requests);
}

#[test]
fn outcomes_are_distinguished() {
    let server = Server::start(|request| {
        let status = match request.path() {
            "/hit" => "c; hit; ttl=5",
            "/stale" => "c; hit; ttl=-2",
            "/miss" => "c; fwd=uri-miss; stored",
            "/collapsed" => "c; fwd=uri-miss; collapsed",
            "/revalidated" => "c; fwd=stale; fwd-status=304",
            "/pass" => "c; fwd=bypass",
            _ => return Reply::ok("", "?"),
        };
        Reply::ok(&format!("Cache-Status: {status}\r\n"), "x")
    });
    let words = [
        "hit",
        "stale",
        "miss",
        "collapsed",
        "revalidated",
        "pass",
        "none",
    ];
    let lines: Vec<_> = words.iter().map(|w| format!("http://$(A)/{w}\n")).collect();
    let text = format!("# each once\nA={}\n{}", server.address(), lines.concat());
    let folder = Folder::new();
    let file = folder.write("outcomes.txt", &text);
    let report = report(&["--urls", &file, "-n", "70", "-c", "2"]);
    for word in words {
        assert_eq!(
            number(&report, &format!("/outcomes/{word}/requests")),
            10,
            "{word}"
        );
        assert_eq!(server.requests_for(&format!("/{word}")), 10, "{word}");
    }
}

#[test]
fn a_range_of_urls_is_requested_in_turn() {
    let server = Server::start(|_| Reply::ok("", "x"));
    report(&[
        &server.url("/page/[1-50]?x"),
        "-n",
        "200",
        "-c",
        "4",
        "-t",
        "2",
    ]);
    for page in 1..=50 {
        let requested = server.requests_for(&format!("/page/{page}?x"));
        assert!(
            (3..=5).contains(&requested),
            "{page} was asked for {requested} times"
        );
    }
    assert_eq!(server.requests(), 200);
}

#[test]
fn zipf_prefers_the_first_and_a_seed_repeats_it() {
    let ask = || {
        let server = Server::start(|_| Reply::ok("", "x"));
        let url = server.url("/[1-100]");
        report(&[
            &url, "-n", "500", "-c", "1", "-t", "1", "--choose", "zipf", "--seed", "9",
        ]);
        (1..=100)
            .map(|page| server.requests_for(&format!("/{page}")))
            .collect::<Vec<_>>()
    };
    let counts = ask();
    assert!(
        counts[0] > 50 && counts[0] > counts[9] && counts[99] < 10,
        "{counts:?}"
    );
    assert_eq!(counts, ask());
}

#[test]
fn requests_are_sent_as_configured() {
    let server = Server::start(|request| {
        let wanted = request.head.starts_with("PUT /x HTTP/1.1\r\n")
            && request.head.contains("\r\nX-A: b\r\n")
            && request.head.contains("\r\nConnection: close\r\n")
            && request.body == b"a=1";
        if wanted {
            Reply::ok("", "")
        } else {
            Reply::status(400)
        }
    });
    let url = server.url("/x");
    let arguments = [
        &url[..],
        "-n",
        "5",
        "-c",
        "1",
        "-m",
        "PUT",
        "--data",
        "a=1",
        "-H",
        "X-A: b",
        "--no-keepalive",
    ];
    let report = report(&arguments);
    assert_eq!(number(&report, "/statuses/200"), 5);
    assert_eq!(server.connections(), 5 + 1);
}

#[test]
fn an_open_loop_does_not_spare_a_server_that_stalls() {
    const STALL: Duration = Duration::from_millis(1500);
    let stalls = || {
        let begun = Instant::now();
        Server::start(move |_| {
            let since = begun.elapsed();
            let stalled =
                (Duration::from_millis(500)..STALL + Duration::from_millis(500)).contains(&since);
            let left = (STALL + Duration::from_millis(500)).saturating_sub(since);
            if stalled {
                Reply::ok("", "x").after(left)
            } else {
                Reply::ok("", "x")
            }
        })
    };
    let server = stalls();
    let open = report(&[&server.url("/"), "--rate", "100", "-c", "2", "-d", "3s"]);
    // Half of all requests were to start while the server stood still, and waited for 750 ms on average.
    let p75 = millis(&open, "/latency_ms/total/p75");
    assert!(p75 > 200.0, "p75 is {p75} ms");
    let backlog = number(&open, "/backlog");
    assert!(backlog > 50, "{backlog}");
    assert_eq!(number(&open, "/requests") + number(&open, "/unsent"), 300);
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let server = Server::start(|_| Reply::ok("", "x"));
    let report = report(&[&server.url("/"), "--rate", "200", "-c", "8", "-d", "2s"]);
    assert_eq!(
        number(&report, "/requests") + number(&report, "/unsent"),
        400
    );
    // However busy the machine is, half of them did not wait for half of the run.
    let p50 = millis(&report, "/latency_ms/total/p50");
    assert!(p50 < 1000.0, "{p50}");
}

#[test]
fn users_think_between_requests() {
    let server = Server::start(|_| Reply::ok("", "x"));
    let report = report(&[
        &server.url("/"),
        "--users",
        "20",
        "--think",
        "200ms..400ms",
        "-d",
        "2s",
    ]);
    let requests = number(&report, "/requests");
    // 20 users for 2 s, who think for 300 ms on average.
    assert!((60..=160).contains(&requests), "{requests}");
    assert_eq!(server.requests(), requests);
}

#[test]
fn faults_are_counted_by_kind() {
    let server = Server::start(|request| match request.path() {
        "/early" => Reply::raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc").and_close(),
        "/malformed" => Reply::raw(b"Good day\r\n\r\n").and_close(),
        "/never" => Reply::never(),
        _ => Reply::status(503),
    });
    let lines =
        ["early", "malformed", "busy"].map(|path| format!("{}\n", server.url(&format!("/{path}"))));
    let folder = Folder::new();
    let file = folder.write("faults.txt", lines.concat());
    // Nothing here waits, so however slow the machine is, nothing is late.
    let urls = ["--urls", &file];
    let one_by_one = ["-c", "1", "-t", "1", "-n"];
    let faults = report(&[&urls[..], &one_by_one, &["6", "--timeout", "1m"]].concat());
    assert_eq!(number(&faults, "/faults/truncated_response"), 2);
    assert_eq!(number(&faults, "/faults/malformed_response"), 2);
    assert_eq!(number(&faults, "/faults/timed_out"), 0);
    assert_eq!(number(&faults, "/statuses/503"), 2);
    // And what never comes is late on every machine.
    let never = server.url("/never");
    let late = report(&[&[&*never][..], &one_by_one, &["2", "--timeout", "100ms"]].concat());
    assert_eq!(number(&late, "/faults/timed_out"), 2);
}

#[test]
fn a_server_that_dies_is_no_end_and_no_storm() {
    let server = Server::start(|_| Reply::ok("", "x"));
    let url = server.url("/");
    let child = start(&[&url, "-d", "3s", "-c", "4", "--format", "json"]);
    server.wait_for_requests(100);
    server.die();
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).expect("the report is JSON");
    // Of the first hundred, four may have been under way.
    assert!(number(&report, "/requests") >= 96);
    assert!(number(&report, "/faults/connection_refused") > 0);
    // Four connections that rest for 10 ms, 20 ms, … 640 ms between attempts.
    let errors = number(&report, "/errors");
    assert!(errors < 100, "{errors}");
}

#[test]
fn a_count_that_cannot_be_reached_is_given_up() {
    let server = Server::start(|_| Reply::ok("", "x"));
    let child = start(&[&server.url("/"), "-n", "100000000", "-c", "2"]);
    server.wait_for_requests(100);
    server.die();
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("Given up: all requests failed for 10 s."),
        "{text}"
    );
}

fn start(arguments: &[&str]) -> Child {
    let mut command = bench(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the binary runs")
}

#[test]
fn ctrl_c_prints_the_figures_so_far() {
    let server = Server::start(|_| Reply::ok("", "x"));
    let child = start(&[&server.url("/"), "-d", "10m", "-c", "2"]);
    server.wait_for_requests(100);
    signal(child.id(), Signal::INT);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("Interrupted: figures up to the interruption."),
        "{text}"
    );
    assert!(text.contains("status  200: "), "{text}");
}

#[test]
fn conditions_decide_the_exit_code() {
    let server = Server::start(|_| Reply::status(500));
    let url = server.url("/");
    let fine = run(&[
        &url,
        "-n",
        "10",
        "--fail-if",
        "p99>50s",
        "--fail-if",
        "errors>0",
    ]);
    assert_eq!(fine.status.code(), Some(0), "{}", stderr(&fine));
    let failed = run(&[
        &url,
        "-n",
        "10",
        "--fail-if",
        "p99>50s",
        "--fail-if",
        "status-5xx>0",
    ]);
    assert_eq!(failed.status.code(), Some(1));
    assert_eq!(
        stderr(&failed),
        "microcache bench: failed: status-5xx>0: it is 10\n"
    );
    assert!(
        !failed.stdout.is_empty(),
        "the report is there all the same"
    );
}

#[test]
fn the_origin_s_counter_is_read_before_and_after() {
    let server = Server::start(|request| match request.path() {
        "/count" => Reply::ok("", "{\"requests\":SEEN,\"renders\":7}"),
        _ => Reply::ok("", "x"),
    });
    let (url, counter) = (server.url("/"), server.url("/count"));
    let arguments = [
        &url[..],
        "-n",
        "50",
        "--origin-counter",
        &counter,
        "--fail-if",
        "origin-requests>50",
    ];
    let report = report(&arguments);
    assert_eq!(number(&report, "/origin/requests"), 50);
    assert_eq!(number(&report, "/origin/renders"), 0);
    let wrong = run(&[&url, "-n", "5", "--origin-counter", &url]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        stderr(&wrong).contains("cannot read the origin's counter"),
        "{}",
        stderr(&wrong)
    );
}

#[test]
fn files_are_written() {
    let server = Server::start(|_| Reply::ok("Cache-Status: c; hit\r\n", "x"));
    let folder = Folder::new();
    let [html, hgrm] = ["report.html", "report.hgrm"].map(|name| folder.file(name));
    report(&[
        &server.url("/"),
        "-n",
        "50",
        "--html",
        &html,
        "--hgrm",
        &hgrm,
    ]);
    let [html, hgrm] = [html, hgrm].map(|file| fs::read_to_string(file).expect("a file"));
    assert!(html.starts_with("<!doctype html>"));
    assert!(html.contains("class=\"line hit\""));
    assert!(hgrm.contains("Total count    =           50]"));
}

#[test]
fn bad_input_gets_one_line_and_exit_code_2() {
    let server = Server::start(|_| Reply::ok("", "x"));
    let url = server.url("/");
    let folder = Folder::new();
    let file = folder.write("bad.txt", format!("{url}\nlocalhost/x\n"));
    let place = format!("{file}:2: `localhost/x` is not a URL; did you mean http://localhost/x?");
    for (arguments, says) in [
        (&[][..], "microcache bench http://localhost"),
        (&["localhost:1"], "did you mean http://localhost:1?"),
        (&["--urls", &file], &place),
        (&["--urls", "no/such/file"], "cannot read no/such/file"),
        (
            &[&url, "--format", "xml"],
            "unknown format `xml`; use one of own, ab",
        ),
        (
            &[&url, "-c", "0"],
            "--connections: expected a number from 1",
        ),
        (&[&url, "-d", "5"], "--duration: `5` is not a duration"),
        (&[&url, "-d", "0s"], "--duration: it must be more than zero"),
        (&[&url, "--rate", "0"], "the rate must be more than zero"),
        (&[&url, "--think", "1s"], "add --users N"),
        (
            &[&url, "--users", "5", "--think", "9s..1s"],
            "--think: `9s..1s` is not a valid range",
        ),
        (
            &[&url, "--choose", "first"],
            "--choose: `first` is not valid",
        ),
        (
            &[&url, "-H", "X"],
            "--header: `X` is not a valid header field",
        ),
        (
            &[&url, "--fail-if", "p99"],
            "--fail-if: `p99` has no comparison",
        ),
        (
            &[&url, "--fail-if", "origin-requests>1"],
            "needs --origin-counter",
        ),
        (&[&url, "--conections", "1"], "--connections"),
        (&["http://127.0.0.1:1/"], "cannot reach http://127.0.0.1:1"),
        (
            &["http://no-such-host.invalid/"],
            "cannot resolve http://no-such-host.invalid",
        ),
        (
            &[&url, "-n", "1", "--html", "no/such/dir/x"],
            "cannot write no/such/dir/x",
        ),
    ] {
        assert_refused(arguments, says);
    }
}

#[test]
fn bad_input_about_streams_gets_one_line_and_exit_code_2() {
    let server = Server::start(|_| Reply::ok("", "x"));
    let url = server.url("/");
    let websocket = url.replacen("http", "ws", 1);
    let cases: [(&[&str], &str); _] = [
        (
            &[&url, "--publish", "1s"],
            "--publish needs streams; add --subscribe N",
        ),
        (
            &[&url, "--subscribe", "1", "--publish-size", "9"],
            "--publish-size needs an interval; add --publish DURATION",
        ),
        (&[&url, "--subscribe", "1", "-c", "1"], "--connections"),
        (
            &[&url, &url, "--subscribe", "1"],
            "all streams share one URL",
        ),
        (
            &[&url, "--subscribe", "1", "--stalled", "101"],
            "--stalled: expected a number from 0 to 100",
        ),
        (
            &[&url, "--subscribe", "1", "--format", "ab"],
            "streams are reported as own or json only",
        ),
        (
            &[&url, "--subscribe", "1", "-n", "5"],
            "a duration or a number of publications is required",
        ),
        (
            &[&url, "--subscribe", "2", "-d", "1s"],
            "no event stream could be opened: not an event stream: 2",
        ),
        (
            &[&websocket, "--subscribe", "2", "-d", "1s"],
            "no event stream could be opened: 200: 2",
        ),
        (&[&websocket], "is not a URL"),
        (
            &[
                &url,
                "--subscribe",
                "1",
                "--publish",
                "1s",
                "--publish-data",
                "x",
            ],
            "--publish-data: `x` must contain {event} exactly once",
        ),
    ];
    for (arguments, says) in cases {
        assert_refused(arguments, says);
    }
}

fn assert_refused(arguments: &[&str], says: &str) {
    let output = run(arguments);
    let stderr = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
    assert!(stderr.contains(says), "{arguments:?}: {stderr}");
    assert_eq!(stderr.lines().count(), 1, "{arguments:?}: {stderr}");
}

#[test]
fn help_names_every_flag() {
    let output = run(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    let help = String::from_utf8_lossy(&output.stdout);
    for flag in [
        "--connections",
        "--rate",
        "--users",
        "--fail-if",
        "--html",
        "--http2",
        "--subscribe",
        "Exit status",
    ] {
        assert!(help.contains(flag), "{flag}: {help}");
    }
}
