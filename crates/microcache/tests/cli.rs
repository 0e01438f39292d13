//! The command line, run for real: what it prints, and the exit code.

use std::process::{Command, Output};

use microcache_testkit::Folder;

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_microcache"))
        .args(arguments)
        .output()
        .expect("the binary runs")
}

/// Runs it, and looks for a text in what it prints on the way that belongs to the exit code.
fn check(arguments: &[&str], code: i32, says: &str) -> String {
    let output = run(arguments);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(
        output.status.code(),
        Some(code),
        "{arguments:?}\n{out}{err}"
    );
    let (reported, silent) = if code == 0 { (out, err) } else { (err, out) };
    assert!(reported.contains(says), "{arguments:?}: {reported}");
    assert_eq!(silent, "", "{arguments:?}");
    reported
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("it prints UTF-8")
}

#[test]
fn help_and_version() {
    check(
        &["--version"],
        0,
        concat!("microcache ", env!("CARGO_PKG_VERSION")),
    );
    check(&["-h"], 0, "--stale-while-revalidate DURATION");
    check(&["--help"], 0, "--pool-idle-timeout DURATION");
}

#[test]
fn check_warns_of_options_that_give_one_visitors_page_to_another() {
    let folder = Folder::new();
    let file = folder.write(
        "warnings",
        "origin = \"http://localhost:3000\"\ntrusted_proxies = \"0.0.0.0/0\"\nignore_cookies = [\"theme\", \"wordpress_*\"]\n\
         [[routes]]\nset_cookie = \"store\"\nignore_cookies = \"*\"\n",
    );
    let output = run(&["check", &file]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    assert!(out.contains("is fine"), "{out}");
    for place in [
        ":2:19: warning: `trusted_proxies` contains addresses of strangers",
        ":3:28: warning: `wordpress_*` ignores a cookie that identifies visitors, such as `wordpress_",
        ":5:14: warning: \"store\" gives the cookie",
        ":6:18: warning: `*` ignores a cookie",
    ] {
        assert!(err.contains(place), "{place}: {err}");
    }
    assert_eq!(err.matches(": warning: ").count(), 4, "{err}");

    let folder = Folder::new();
    let file = folder.write(
        "no-warnings",
        "origin = \"http://localhost:3000\"\nignore_cookies = [\"theme\", \"consent_*\"]\nremove_cookies = \"*\"\n",
    );
    check(&["check", &file], 0, "is fine");
}

#[test]
fn a_bad_command_line_gets_one_line_and_a_remedy() {
    for (arguments, says) in [
        (&[][..], "microcache http://localhost:3000"),
        (&["localhost:3000"], "write http://localhost:3000"),
        (&["127.0.0.1:3000/app"], "write http://127.0.0.1:3000/app"),
        (&["nosuch"], "`nosuch` is neither a URL nor a command"),
        (&["strats"], "did you mean `microcache stats`?"),
        (&["http://localhost/a?b"], "remove `?`"),
        (&["--tll", "1s", "http://a"], "'--ttl'"),
        (
            &["--ttl", "1", "http://a"],
            "--ttl: expected a number and a unit",
        ),
        (
            &["--threads", "0", "http://a"],
            "--threads: expected a number from 1",
        ),
        (&["--listen", "8080", "http://a"], "127.0.0.1:8080"),
        (&["check"], "microcache check FILE"),
        (&["config"], "microcache config --sample"),
        (
            &["--config", "/does/not/exist"],
            "cannot read /does/not/exist",
        ),
        (&["check", "/does/not/exist"], "cannot read /does/not/exist"),
    ] {
        let reported = check(arguments, 2, says);
        assert_eq!(reported.lines().count(), 1, "{arguments:?}: {reported}");
    }
}

#[test]
fn check_reports_every_mistake_with_its_place() {
    let folder = Folder::new();
    let file = folder.write(
        "bad",
        "origin = \"ftp://a\"\nmemroy = \"1GB\"\n\n[[routes]]\nupstream = \"app\"\nttl = 5\n",
    );
    let reported = check(&["check", &file], 2, "4 mistakes");
    for place in [":1:10: ", ":2:1: ", ":5:12: ", ":6:7: "] {
        let place = format!("{file}{place}");
        assert!(reported.contains(&place), "{place} is not in:\n{reported}");
    }
    assert!(
        reported.contains("2 | memroy = \"1GB\"\n  | ^^^^^^\n  = did you mean `memory`?"),
        "{reported}"
    );
    check(&["--config", &file], 2, "did you mean `memory`?");
}

#[test]
fn check_reports_a_valid_file() {
    let folder = Folder::new();
    let file = folder.write(
        "good",
        "origin = \"http://a\"\n[[routes]]\nmatch = { path = \"/a\" }\npass = true\n",
    );
    check(
        &["check", &file],
        0,
        "is fine: 1 listener, 1 upstream group, 2 routes",
    );
}

#[test]
fn the_printed_sample_is_fine() {
    let sample = check(
        &["config", "--sample"],
        0,
        "origin = \"http://localhost:3000\"",
    );
    let folder = Folder::new();
    let file = folder.write("sample", &sample);
    check(&["check", &file], 0, "is fine");
}

#[test]
fn the_printed_reference_is_the_committed_one() {
    let printed = check(&["config", "--reference"], 0, "# Configuration");
    assert_eq!(printed, include_str!("../../../docs/configuration.md"));
}
