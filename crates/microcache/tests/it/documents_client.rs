//! The client for documents in pages: its logic in Node, and tabs of two sign-ins in a real browser under a strict policy.

use std::process::Command;

use serde_json::json;

use crate::live::wait_for_subscribers;
use crate::operators::Operator;
use crate::private::{KEY, signed};
use crate::push::{Live, SECRET};
use crate::support::{Browser, Gate, Origin, Proxy, Reply, config_file, left_out};

const PAGE: &str = "<!doctype html><script type=module src=/page.js></script>";
const POLICY: &str =
    "Content-Security-Policy: default-src 'none'; script-src 'self'; connect-src 'self'";

/// The first tab opens one of the same visitor and one of another, and goes to another page when the test says so. Each
/// tells what it is given.
const SCRIPT: &str = "
    import { connect } from '/.well-known/microcache/client.js';
    const [tab, user] = location.search.slice(1);
    const tell = (...all) => fetch('/told?' + tab + '=' + all.join('-'));
    const hub = connect({ token: async () => (await fetch('/token?' + user)).text() });
    hub.subscribe('/live/p/' + user, ({ n, m }, { event }) => tell(n, m, event));
    hub.subscribe('/live/p/0', tell, { onerror: ({ status, ended }) => tell(status, ended) });
    if (tab === '1') {
        for (const other of ['/page?27', '/page?38']) open(other, '_blank', 'noopener');
        await fetch('/gate');
        location = '/end';
    }";

#[test]
fn requests_and_responses_of_the_client_are_as_documented() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/documents_client.mjs");
    let mut node = Command::new("node");
    match node.args(["--test", "--test-force-exit", file]).output() {
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        Err(_) => left_out("the client for documents with node, which is not installed"),
    }
}

#[test]
fn tabs_of_a_sign_in_share_a_stream() {
    let origin = Origin::start();
    let serve = |target: &str, field: &str, body: &str| {
        let reply = Reply::ok(&["Cache-Control: no-store", field], body);
        origin.on(target).reply(reply);
    };
    for target in ["/page?17", "/page?27", "/page?38"] {
        serve(target, POLICY, PAGE);
    }
    serve("/page.js", "Content-Type: text/javascript", SCRIPT);
    serve(
        "/end",
        "Content-Type: text/html",
        "<script src=/gone.js></script>",
    );
    serve("/gone.js", "Content-Type: text/javascript", "");
    for user in ["7", "8"] {
        let read = [format!("/live/p/{user}")];
        let token = signed(&json!({"sub": user, "microcache": {"read": read}}), KEY);
        serve(&format!("/token?{user}"), "Vary: Accept", &token);
    }
    let gate = Gate::default();
    let reply = Reply::new(200).with("Cache-Control: no-store").after(&gate);
    origin.on("/gate").reply(reply.body(""));
    let [secret, key] = [SECRET, KEY].map(config_file);
    let (proxy, admin) = Proxy::operated_by_file(&format!(
        "origin = {:?}\npush = [\"/live/\"]\npush_private = [\"/live/p/\"]\npush_directory = \"none\"
        push_token_file = {secret:?}\npush_reader_key_file = {key:?}",
        origin.url()
    ));
    let live = Live(proxy);
    live.put("/live/p/7", r#"{"n":1,"m":7}"#);
    live.put("/live/p/8", r#"{"n":1,"m":8}"#);
    let url = format!("http://{}/page?17", live.0.address());
    let Some(_browser) = Browser::open(&url, &["--disable-popup-blocking"], "tabs with documents")
    else {
        return;
    };
    for told in ["1=1-7-put", "2=1-7-put", "3=1-8-put", "1=403-true"] {
        origin.wait_for(&format!("/told?{told}"), 1);
    }
    wait_for_subscribers(admin, 2);
    let patch = |body: &str| {
        let merge = ["Content-Type: application/merge-patch+json"];
        assert_eq!(live.publish("PATCH", "/live/p/7", &merge, body).status, 204);
    };
    patch(r#"{"n":2}"#);
    origin.wait_for("/told?1=2-7-put", 1);
    origin.wait_for("/told?2=2-7-put", 1);
    let stats = Operator::at(admin).get("/v1/stats");
    assert_eq!(stats["push"]["deltas"], 1, "one patch for two tabs");
    gate.open();
    // The next page is there, so the one before is gone.
    origin.wait_for("/gone.js", 1);
    patch(r#"{"n":3}"#);
    origin.wait_for("/told?2=3-7-put", 1);
    wait_for_subscribers(admin, 2);
    assert_eq!(origin.count("/told?1=3-7-put"), 0);
}
