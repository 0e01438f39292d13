//! Reports for operators: which coding was sent, and why none was.

use std::process::Command;

use serde_json::json;

use super::{ALL, html, in_coding, metrics, page};
use crate::operators::Operator;
use crate::support::{Origin, Proxy, Reply};

#[test]
fn it_is_explained_in_which_coding_a_page_is_sent_or_why_in_none() {
    let origin = Origin::start();
    origin.on("/").reply(html(&page(1)));
    origin.on("/small").reply(html("a page"));
    let picture = Reply::new(200)
        .with("Content-Type: image/png")
        .with("Cache-Control: max-age=1000");
    origin.on("/picture").reply(picture.body(page(2)));
    let untouchable = html_untouchable();
    origin.on("/untouchable").reply(untouchable);
    let (proxy, admin) = Proxy::operated(&origin, ALL);
    let explain = |target: &str, headers: &[&str]| {
        let requested = json!({"url": format!("http://example.com{target}"), "headers": headers});
        Operator::at(admin).post("/v1/explain", &requested)["steps"].to_string()
    };
    let check = |target: &str, headers: &[&str], expected: &str| {
        let steps = explain(target, headers);
        assert!(steps.contains(expected), "{target}: {expected}: {steps}");
    };
    for target in ["/", "/small", "/picture", "/untouchable"] {
        assert!(!explain(target, &[]).contains("compressed"), "{target}");
        proxy.get(target);
    }
    let br = ["Accept-Encoding: br"];
    check("/", &[], "the request accepts no coding of `compress`");
    check("/", &br, "has not been compressed yet");
    let part = [br[0], "Range: bytes=0-9"];
    check("/", &part, "ranges refer to the stored body");
    check("/small", &br, "shorter than `compress_min`");
    check("/picture", &br, "not in `compress_types`");
    check("/untouchable", &br, "`no-transform` forbids compression");
    // Nothing was made for who only wants to know.
    let before = metrics(admin);
    assert!(before.contains("microcache_compressed_bodies_total{coding=\"br\"} 0\n"));
    let sent = in_coding(&proxy, "/", "br").body.len();
    let whole = page(1).len();
    let expected = format!("sent as `br`, {sent} B instead of {whole} B");
    check("/", &br, &expected);
}

fn html_untouchable() -> Reply {
    super::html_for("max-age=1000, no-transform", &page(3))
}

#[test]
fn compressed_responses_are_counted_by_coding_and_logged() {
    let origin = Origin::start();
    origin.on("/").reply(html(&page(1)));
    let flags = [ALL, &["--access-log", "stdout"]].concat();
    let (proxy, admin) = Proxy::operated(&origin, &flags);
    proxy.get("/");
    in_coding(&proxy, "/", "br");
    in_coding(&proxy, "/", "gzip");
    // Nothing is saved where nothing would have been sent.
    let br = "Accept-Encoding: br";
    assert_eq!(proxy.send("HEAD", "/", &[br]).status, 200);
    for (condition, status) in [("If-None-Match: \"a\"", 304), ("If-Match: \"a\"", 412)] {
        let response = proxy.get_with("/", &[br, condition]);
        assert_eq!(response.status, status, "{condition}");
    }
    let compression = &Operator::at(admin).get("/v1/stats")["compression"];
    assert_eq!(
        compression["sent"],
        json!({"br": 1, "dcb": 0, "dcz": 0, "gzip": 1, "zstd": 0})
    );
    assert_eq!(compression["responses"], 2);
    let metrics = metrics(admin);
    let counted = "microcache_compressed_responses_by_coding_total{coding=\"gzip\"} 1\n";
    assert!(metrics.contains(counted), "{metrics}");
    for coding in ["br", "gzip"] {
        let logged = format!(" coding=\"{coding}\"");
        proxy.output_with(&logged);
    }
    let shown = Command::new(env!("CARGO_BIN_EXE_microcache"))
        .args(["stats", "--admin", &admin.to_string()])
        .output()
        .expect("it runs");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let row = shown.lines().find(|line| line.contains("compressed"));
    let row = row.unwrap_or_else(|| panic!("{shown}"));
    assert!(row.contains("2 responses, 1 br, 1 gzip, "), "{row}");
}
