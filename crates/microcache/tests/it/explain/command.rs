//! `microcache explain`: what it prints, and how it ends.

use std::process::Command;

use serde_json::Value;

use crate::support::{Origin, Proxy, Reply};

#[test]
fn the_command_prints_text_or_json_and_exits_by_the_verdict() {
    let origin = Origin::start();
    origin
        .on("/page")
        .reply(Reply::ok(&["Cache-Control: max-age=600"], "page"));
    origin
        .on("/mine")
        .reply(Reply::new(200).with("Cache-Control: private").body("mine"));
    let (proxy, admin) = Proxy::operated(&origin, &[]);
    let run = |target: &str, flags: &[&str]| {
        let admin = admin.to_string();
        let output = Command::new(env!("CARGO_BIN_EXE_microcache"))
            .args(["explain", "--admin", &admin])
            .args(flags)
            .arg(format!("http://example.com{target}"))
            .output()
            .expect("it runs");
        let out = String::from_utf8(output.stdout).expect("UTF-8");
        let err = String::from_utf8(output.stderr).expect("UTF-8");
        (output.status.code(), out, err)
    };
    let check = |target: &str, flags: &[&str], code: i32, says: &[&str]| {
        let (ended, out, err) = run(target, flags);
        assert_eq!(ended, Some(code), "{out}{err}");
        for said in says {
            assert!(out.contains(said), "{said}: {out}{err}");
        }
    };
    check("/page", &[], 4, &["fwd=uri-miss", "--fetch", "RFC 9111"]);
    proxy.get("/page");
    check(
        "/page",
        &[],
        0,
        &[
            "Served from memory",
            "Cache-Status: microcache; hit; ttl=",
            "RFC 9111 §5.2.2.1",
            "* memory",
        ],
    );
    check(
        "/page",
        &["-H", "Cookie: session=s3cret"],
        3,
        &["`session`", "ignore_cookies"],
    );
    check("/page", &["--method", "POST"], 3, &["fwd=method"]);
    check(
        "/mine",
        &["--fetch"],
        3,
        &["not stored", "RFC 9111 §5.2.2.7", "detail=private"],
    );
    // It is remembered why, and told without asking again.
    check(
        "/mine",
        &[],
        3,
        &["hit-for-miss", "RFC 9111 §5.2.2.7", "without coalescing"],
    );
    let (code, out, _) = run("/page", &["--json"]);
    let reported: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, reported["verdict"].as_str()), (Some(0), Some("hit")));
    let (code, out, err) = run("/page", &["--header", "no colon"]);
    assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
    assert!(err.contains("Accept-Language"), "{err}");
}
