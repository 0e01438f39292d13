//! `microcache fetch`: what it prints, how it ends, and what its cache is good for.

mod broken;
mod curl;
mod explain;
mod large;
mod output;
pub(crate) mod place;
mod progress;
mod several;

use std::fs;

use place::{Place, printed};

use crate::support::{CertificateFile, Origin, Proxy, Reply};

/// One with a page that may be kept.
fn origin_with_page() -> Origin {
    let origin = Origin::start();
    let page = Reply::new(200).with("Cache-Control: max-age=600");
    origin.on("/page").reply(page.body("the page"));
    origin
}

#[test]
fn a_second_run_is_a_hit_without_a_request() {
    let origin = origin_with_page();
    let place = Place::new();
    let url = format!("{}/page", origin.url());
    let first = place.run(&["--explain", &url]);
    assert_eq!(
        (first.code, first.out.as_str()),
        (0, "the page"),
        "{}",
        first.err
    );
    assert!(
        first
            .err
            .contains("miss: the server answered 200; it is stored"),
        "{}",
        first.err
    );
    let second = place.run(&["--explain", &url]);
    assert_eq!(
        (second.code, second.out.as_str()),
        (0, "the page"),
        "{}",
        second.err
    );
    for part in [
        "hit: stored",
        "(in the directory)",
        "the server was not contacted",
    ] {
        assert!(second.err.contains(part), "{part}: {}", second.err);
    }
    assert_eq!(origin.count("/page"), 1);
    let silent = place.run(&[&url]);
    assert_eq!((silent.out.as_str(), silent.err.as_str()), ("the page", ""));
}

#[test]
fn the_directory_is_where_caches_are() {
    let origin = origin_with_page();
    let url = format!("{}/page", origin.url());
    let place = Place::new();
    for (name, below) in [
        ("XDG_CACHE_HOME", "microcache/fetch"),
        ("HOME", ".cache/microcache/fetch"),
    ] {
        let home = place.path(name);
        let mut command = place.bare();
        let output = command
            .env(name, &home)
            .arg(&url)
            .output()
            .expect("it runs");
        assert_eq!(printed(output).out, "the page");
        let lies = home.join(below).join("microcache-shared-v1");
        assert!(lies.is_dir(), "{}", lies.display());
    }
    // A path that means something else in every folder is none.
    let output = place
        .bare()
        .env("XDG_CACHE_HOME", "caches")
        .arg(&url)
        .output();
    let without = printed(output.expect("it runs"));
    assert_eq!((without.code, without.out.as_str()), (0, "the page"));
    assert!(
        without.err.contains("name a directory with --cache"),
        "{}",
        without.err
    );
    assert_eq!(origin.count("/page"), 3);
}

#[test]
fn a_stale_response_is_revalidated_and_kept() {
    let origin = Origin::start();
    let page = |status| Reply::new(status).with_all(&["Cache-Control: no-cache", "ETag: \"a\""]);
    origin
        .on("/page")
        .answer(move |seen| match seen.field("if-none-match") {
            Some("\"a\"") => page(304),
            _ => page(200).body("the page"),
        });
    let place = Place::new();
    let url = format!("{}/page", origin.url());
    assert_eq!(place.run(&[&url]).out, "the page");
    for _ in 0..2 {
        let again = place.run(&["--explain", &url]);
        assert_eq!(
            (again.code, again.out.as_str()),
            (0, "the page"),
            "{}",
            again.err
        );
        let says = "validated: the server confirmed what is stored (304), in ";
        assert!(again.err.contains(says), "{}", again.err);
    }
    assert_eq!(origin.count("/page"), 3);
}

#[test]
fn offline_uses_stored_responses_that_their_server_allows() {
    let origin = Origin::start();
    for (target, says) in [
        ("/stale", "max-age=0"),
        ("/strict", "max-age=0, must-revalidate"),
        ("/fresh", "max-age=600"),
    ] {
        let says = format!("Cache-Control: {says}");
        let page = Reply::new(200).with(&says).with("ETag: \"a\"");
        origin.on(target).reply(page.body(target));
    }
    let place = Place::new();
    let url = |target: &str| format!("{}{target}", origin.url());
    for target in ["/stale", "/strict", "/fresh"] {
        assert_eq!(place.run(&[&url(target)]).out, target);
    }
    origin.stop();
    let stale = place.run(&["--offline", "--explain", &url("/stale")]);
    assert_eq!(
        (stale.code, stale.out.as_str()),
        (0, "/stale"),
        "{}",
        stale.err
    );
    for part in ["stale: stored", "no longer fresh", "--offline"] {
        assert!(stale.err.contains(part), "{part}: {}", stale.err);
    }
    let fresh = place.run(&["--offline", "--explain", &url("/fresh")]);
    assert_eq!((fresh.code, fresh.out.as_str()), (0, "/fresh"));
    assert!(fresh.err.contains("hit: "), "{}", fresh.err);
    for target in ["/strict", "/never"] {
        let none = place.run(&["--offline", &url(target)]);
        assert_eq!((none.code, none.out.as_str()), (3, ""), "{target}");
        assert!(none.err.contains("omit --offline"), "{}", none.err);
    }
    let head = place.run(&["--offline", "-I", &url("/stale")]);
    assert_eq!(head.code, 0, "{}", head.err);
    assert!(head.out.contains("etag: \"a\""), "{}", head.out);
    // Without that flag, a response that cannot be revalidated is not used.
    let unreached = place.run(&[&url("/stale")]);
    assert_eq!((unreached.code, unreached.out.as_str()), (1, ""));
    assert!(
        unreached.err.contains("--offline prints a stored response"),
        "{}",
        unreached.err
    );
}

#[test]
fn flags_say_how_the_cache_is_used() {
    let origin = Origin::start();
    let mut version = 0;
    origin.on("/page").answer(move |seen| {
        let page =
            |status| Reply::new(status).with_all(&["Cache-Control: max-age=600", "ETag: \"a\""]);
        if seen.field("if-none-match").is_some() {
            return page(304);
        }
        version += 1;
        page(200).body(version.to_string())
    });
    let place = Place::new();
    let url = format!("{}/page", origin.url());
    for (flags, body, requested) in [
        (&[][..], "1", 1),
        (&[], "1", 1),
        (&["--no-cache"], "1", 2),
        (&["--no-store"], "2", 3),
        (&[], "1", 3),
        (&["--reload"], "3", 4),
        (&["--cache-size", "2MiB"], "3", 4),
    ] {
        let run = place.run(&[flags, &[&url]].concat());
        assert_eq!(
            (run.code, run.out.as_str()),
            (0, body),
            "{flags:?}: {}",
            run.err
        );
        assert_eq!(origin.count("/page"), requested, "{flags:?}");
    }
}

#[test]
fn max_age_gives_a_lifetime_to_responses_without_one() {
    let origin = Origin::start();
    origin.on("/page").reply(Reply::new(200).body("the page"));
    let place = Place::new();
    let url = format!("{}/page", origin.url());
    place.run(&[&url]);
    place.run(&["--max-age", "1h", &url]);
    assert_eq!(
        origin.count("/page"),
        2,
        "nothing says that the first one may be used again"
    );
    let hit = place.run(&["--explain", &url]);
    assert!(hit.err.contains("hit: "), "{}", hit.err);
    assert_eq!(origin.count("/page"), 2);
}

#[test]
fn each_redirection_has_its_own_time() {
    let origin = Origin::start();
    let away = Reply::new(302).with_all(&["Cache-Control: max-age=600", "Location: /there"]);
    origin.on("/here").reply(away.body(""));
    let there = Reply::new(200).with("Cache-Control: no-store");
    origin.on("/there").reply(there.body("there"));
    let place = Place::new();
    let url = format!("{}/here", origin.url());
    for _ in 0..2 {
        let run = place.run(&["--explain", &url]);
        assert_eq!((run.code, run.out.as_str()), (0, "there"), "{}", run.err);
        let elsewhere = format!("redirected to {}/there", origin.url());
        assert!(run.err.contains(&elsewhere), "{}", run.err);
    }
    assert_eq!((origin.count("/here"), origin.count("/there")), (1, 2));
}

#[test]
fn a_server_is_trusted_by_its_named_authority() {
    let origin = origin_with_page();
    let certificate = CertificateFile::new(&["localhost"]);
    let tls = ["--tls", certificate.name(), "--tls-listen", "127.0.0.1:0"];
    let proxy = Proxy::start(&origin, &tls);
    let url = format!("https://localhost:{}/page", proxy.tls_address().port());
    let place = Place::new();
    let unknown = place.run(&[&url]);
    assert_eq!((unknown.code, unknown.out.as_str()), (1, ""));
    assert!(unknown.err.contains("--cacert FILE"), "{}", unknown.err);
    let known = place.run(&["-i", "--no-store", "--cacert", certificate.name(), &url]);
    assert_eq!(known.code, 0, "{}", known.err);
    assert!(known.out.starts_with("HTTP/2.0 200"), "{}", known.out);
    assert!(known.out.ends_with("\r\n\r\nthe page"), "{}", known.out);
    let by_system = place
        .command(&[&url])
        .env("SSL_CERT_FILE", certificate.path())
        .output();
    let by_system = printed(by_system.expect("it runs"));
    assert_eq!(
        (by_system.code, by_system.out.as_str()),
        (0, "the page"),
        "{}",
        by_system.err
    );
    // No certificate is needed where no request is sent.
    assert_eq!(place.run(&[&url]).out, "the page");
    let text = place.path("no.pem");
    fs::write(&text, "nothing").expect("written");
    let none = place.run(&["--cacert", text.to_str().expect("text"), &url]);
    assert_eq!(none.code, 2);
    assert!(none.err.contains("contains no certificate"), "{}", none.err);
}
