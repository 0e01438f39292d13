//! What a client may ask of the cache: RFC 9111 §5.2.1, within the safe rules.

use super::{EXACT, exact};
use crate::support::{Origin, Proxy, Reply};

const FRESH: &str = "Cache-Control: max-age=100";

fn stored(origin: &Origin, fields: &[&str]) -> Proxy {
    let proxy = exact(origin);
    origin
        .on("/")
        .reply(Reply::new(200).with_all(fields).body("x"));
    proxy.get("/").assert_is(200, "x");
    proxy
}

#[test]
fn only_if_cached() {
    let origin = Origin::start();
    let proxy = stored(&origin, &[FRESH]);
    let only = ["Cache-Control: only-if-cached"];
    proxy.get_with("/", &only).assert_hit();
    assert_eq!(proxy.get_with("/absent", &only).status, 504);
    assert_eq!(origin.count("/absent"), 0);
}

#[test]
fn only_if_cached_does_not_settle_for_stale() {
    let origin = Origin::start();
    let proxy = stored(&origin, &["Cache-Control: max-age=0"]);
    assert_eq!(
        proxy
            .get_with("/", &["Cache-Control: only-if-cached"])
            .status,
        504
    );
    assert_eq!(origin.count("/"), 1);
}

#[test]
fn max_age_and_min_fresh() {
    let origin = Origin::start();
    let proxy = stored(&origin, &[FRESH, "Age: 50"]);
    for accepted in [
        "max-age=60",
        "max-age=99999999999999999999",
        "min-fresh=30",
        "max-age=60, min-fresh=30",
    ] {
        proxy
            .get_with("/", &[&format!("Cache-Control: {accepted}")])
            .assert_hit();
    }
    for refused in [
        "max-age=40",
        "min-fresh=60",
        "max-age=60, min-fresh=99999999999999999999",
    ] {
        let response = proxy.get_with("/", &[&format!("Cache-Control: {refused}")]);
        response.assert_forwarded("request");
        response.assert_is(200, "x");
    }
}

#[test]
fn no_store_leaves_nothing_behind() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin.on("/").reply(Reply::new(200).with(FRESH).body("x"));
    proxy
        .get_with("/", &["Cache-Control: no-store"])
        .assert_is(200, "x");
    assert!(!proxy.get("/").is_hit());
    proxy.get("/").assert_hit();
}

#[test]
fn a_reload_does_not_reach_the_origin() {
    let origin = Origin::start();
    let proxy = stored(&origin, &[FRESH]);
    let reloads: [&[&str]; 4] = [
        &["Cache-Control: no-cache"],
        &["Cache-Control: no-cache", "Pragma: no-cache"],
        &["Pragma: no-cache"],
        &["Cache-Control: max-age=0"],
    ];
    for reload in reloads {
        proxy.get_with("/", reload).assert_hit();
    }
    assert_eq!(origin.count("/"), 1);
}

#[test]
fn max_stale_is_not_obeyed() {
    let origin = Origin::start();
    let proxy = stored(&origin, &["Cache-Control: max-age=0"]);
    for max_stale in ["max-stale", "max-stale=1000"] {
        let response = proxy.get_with("/", &[&format!("Cache-Control: {max_stale}")]);
        assert!(!response.is_hit(), "{response:?}");
    }
    assert_eq!(origin.count("/"), 3);
}

#[test]
fn nonsense_is_ignored() {
    let origin = Origin::start();
    let proxy = stored(&origin, &[FRESH]);
    for nonsense in [
        "",
        ",,",
        "max-stale=x",
        "what=ever",
        "\"",
        "=",
        "no-store-x",
    ] {
        proxy
            .get_with("/", &[&format!("Cache-Control: {nonsense}")])
            .assert_hit();
    }
}

#[test]
fn immutable_withstands_a_reload() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &EXACT);
    origin
        .on("/")
        .reply(Reply::ok(&["Cache-Control: immutable, max-age=100"], "x"));
    proxy.get("/");
    proxy
        .get_with("/", &["Cache-Control: no-cache"])
        .assert_hit();
    proxy
        .get_with("/", &["Cache-Control: max-age=0"])
        .assert_hit();
}
