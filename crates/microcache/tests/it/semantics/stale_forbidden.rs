//! Directives that no stale window overrides: RFC 9111 §4.2.4.

use crate::support::{Origin, Proxy, Reply};

/// What is stored says when it must not be served stale, although the operator allows it.
fn check(fields: &[&str], may_be_stale: bool) {
    let origin = Origin::start();
    let proxy = Proxy::start(
        &origin,
        &["--stale-while-revalidate", "1h", "--stale-if-error", "1h"],
    );
    origin
        .on("/")
        .reply(
            Reply::new(200)
                .with_all(fields)
                .with("ETag: \"a\"")
                .body("old"),
        )
        .reply(Reply::new(503).body("broken"));
    proxy.get("/").assert_is(200, "old");
    let next = proxy.get("/");
    let (status, body) = if may_be_stale {
        (200, "old")
    } else {
        (503, "broken")
    };
    assert_eq!(
        (next.status, next.text().as_str()),
        (status, body),
        "{fields:?}: {next:?}"
    );
}

#[test]
fn must_revalidate() {
    check(&["Cache-Control: max-age=0, must-revalidate"], false);
}

#[test]
fn proxy_revalidate() {
    check(&["Cache-Control: max-age=0, proxy-revalidate"], false);
}

#[test]
fn s_maxage() {
    check(&["Cache-Control: s-maxage=0"], false);
}

#[test]
fn no_cache() {
    check(&["Cache-Control: no-cache, max-age=100"], false);
}

#[test]
fn they_win_over_explicit_windows() {
    let windows = "stale-while-revalidate=100, stale-if-error=100";
    check(
        &[&format!(
            "Cache-Control: max-age=0, must-revalidate, {windows}"
        )],
        false,
    );
    check(&[&format!("Cache-Control: s-maxage=0, {windows}")], false);
}

#[test]
fn a_window_of_zero_is_obeyed() {
    check(
        &["Cache-Control: max-age=0, stale-while-revalidate=0, stale-if-error=0"],
        false,
    );
}

#[test]
fn windows_of_the_response() {
    check(
        &["Cache-Control: max-age=0, stale-while-revalidate=100"],
        true,
    );
    check(
        &["Cache-Control: max-age=0, stale-while-revalidate=0, stale-if-error=100"],
        true,
    );
    check(
        &["CDN-Cache-Control: max-age=0, stale-while-revalidate=100"],
        true,
    );
}

#[test]
fn a_targeted_must_revalidate() {
    check(&["CDN-Cache-Control: max-age=0, must-revalidate"], false);
}
