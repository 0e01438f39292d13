//! What `microcache bench --subscribe` says of a server with documents is what that server did.

use std::process::{Command, Output};

use serde_json::Value;

use crate::support::{Folder, Origin, Proxy};

const SECRET: &str = "a-secret-that-is-long-enough";

/// Starts a server with documents, with the secret of publishers in a file.
fn start(folder: &Folder, origin: &Origin) -> Proxy {
    let token = folder.write("token", format!("{SECRET}\n"));
    let flags = ["--push", "/live/", "--push-token-file", &token];
    Proxy::start(
        origin,
        &[&flags[..], &["--push-directory", "none"]].concat(),
    )
}

fn bench(proxy: &Proxy, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_microcache"))
        .args(["bench", "--format", "json", "--subscribe"])
        .args(arguments)
        .arg(format!("http://{}/live/x", proxy.address()))
        .output()
        .expect("the binary runs")
}

fn report(proxy: &Proxy, arguments: &[&str]) -> Value {
    let authorization = format!("Authorization: Bearer {SECRET}");
    let output = bench(proxy, &[arguments, &["-H", &authorization]].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("the report is JSON")
}

fn check(report: &Value, expected: &[(&str, u64)]) {
    for (path, count) in expected {
        let found = report.pointer(path).and_then(Value::as_u64);
        assert_eq!(found, Some(*count), "{path} in {report:#}");
    }
}

#[test]
fn every_stream_sees_every_publication() {
    let (origin, folder) = (Origin::start(), Folder::new());
    let proxy = start(&folder, &origin);
    // Slowly enough that no stream skips a version.
    let report = report(&proxy, &["50", "--publish", "100ms", "-n", "10"]);
    check(
        &report,
        &[
            ("/streams/opened", 50),
            ("/streams/healthy", 50),
            ("/streams/gone", 0),
            ("/publications/published", 10),
            ("/publications/lost", 0),
            ("/publications/out_of_order", 0),
            ("/publications/duplicates", 0),
        ],
    );
    // On a busy machine it may get only the latest all the same, and then that is said.
    let count = |name: &str| report["publications"][name].as_u64().expect("a number");
    assert_eq!(count("deliveries") + count("skipped"), 500, "{report:#}");
    assert_eq!(count("size"), 200);
    // Each stream got the current version when it was opened.
    assert_eq!(report["events"], count("deliveries") + 50);
}

#[test]
fn stalled_subscribers_take_nothing_from_the_others() {
    let (origin, folder) = (Origin::start(), Folder::new());
    let proxy = start(&folder, &origin);
    let flags = ["20", "--stalled", "50%", "--publish", "100ms", "-n", "5"];
    let report = report(&proxy, &flags);
    check(
        &report,
        &[
            ("/streams/opened", 20),
            ("/streams/stalled", 10),
            ("/streams/healthy", 10),
            ("/streams/gone", 0),
            ("/publications/lost", 0),
        ],
    );
}

#[test]
fn streams_are_held_without_publishing() {
    let (origin, folder) = (Origin::start(), Folder::new());
    let proxy = start(&folder, &origin);
    let report = report(&proxy, &["10", "-d", "100ms"]);
    check(&report, &[("/streams/opened", 10), ("/events", 0)]);
    assert_eq!(report["publications"], Value::Null);
}

#[test]
fn a_refused_publisher_is_reported_before_any_stream_is_opened() {
    let (origin, folder) = (Origin::start(), Folder::new());
    let proxy = start(&folder, &origin);
    let output = bench(&proxy, &["10", "--publish", "100ms"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let reported = String::from_utf8_lossy(&output.stderr);
    let says =
        "the response has status 401; add credentials, such as -H 'Authorization: Bearer SECRET'";
    assert!(reported.contains(says), "{reported}");
    assert_eq!(reported.lines().count(), 1, "{reported}");
}
