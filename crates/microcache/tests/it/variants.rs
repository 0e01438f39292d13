//! Variants of one url: what one client sends takes nothing away from the others.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{Gate, Origin, Proxy, Reply, Seen};

const LONG: &str = "Cache-Control: max-age=100";

/// An origin that varies on a field, and answers with what that says and the number of the answer.
fn varying(origin: &Origin, target: &str, name: &'static str) {
    let number = AtomicUsize::new(0);
    origin.on(target).answer(move |request| {
        let value = request.field(name).unwrap_or("-").to_owned();
        let number = number.fetch_add(1, Ordering::SeqCst);
        Reply::new(200)
            .with(LONG)
            .with(&format!("Vary: {name}"))
            .body(format!("{value} {number}"))
    });
}

#[test]
fn unused_variants_are_evicted() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &[]);
    varying(&origin, "/", "User-Agent");
    let honest = &["User-Agent: en"];
    proxy.get_with("/", honest).assert_is(200, "en 0");
    proxy.get_with("/", honest).assert_hit();
    for number in 0..100 {
        let strange = format!("User-Agent: {number}");
        let response = proxy.get_with("/", &[&strange]);
        response.assert_forwarded("vary-miss");
        assert!(response.cache().has("stored"), "{response:?}");
        proxy.get_with("/", &[&strange]).assert_hit();
        proxy.get_with("/", honest).assert_hit();
    }
}

#[test]
fn the_bound_on_variants_never_stops_collapsing() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &[]);
    let gate = Gate::default();
    let behind = gate.clone();
    origin.on("/").answer(move |request| {
        let reply = Reply::new(200)
            .with(LONG)
            .with("Vary: User-Agent")
            .body("x");
        if request.field("user-agent") == Some("slow") {
            reply.after(&behind)
        } else {
            reply
        }
    });
    for number in 0..20 {
        proxy.get_with("/", &[&format!("User-Agent: {number}")]);
    }
    let slow = &["User-Agent: slow"];
    let mut clients: Vec<_> = (0..5).map(|_| proxy.ask_with("/", slow)).collect();
    origin.wait_for("/", 20);
    proxy.settle();
    gate.open();
    for client in &mut clients {
        client.response().assert_is(200, "x");
    }
    assert_eq!(origin.count("/"), 21);
}

/// Eight browsers and tools, and an origin that knows one coding.
#[test]
fn codings_that_the_origin_does_not_use_make_no_variants() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &[]);
    let number = AtomicUsize::new(0);
    origin.on("/").answer(move |request| {
        let accepted = request.field("accept-encoding").unwrap_or_default();
        let reply = Reply::new(200).with(LONG).with("Vary: Accept-Encoding");
        let number = number.fetch_add(1, Ordering::SeqCst);
        if accepted.contains("gzip") {
            reply
                .with("Content-Encoding: gzip")
                .body(format!("gzip {number}"))
        } else {
            reply.body(format!("plain {number}"))
        }
    });
    let get = |codings: &str| proxy.get_with("/", &[&format!("Accept-Encoding: {codings}")]);
    get("gzip, deflate, br, zstd").assert_is(200, "gzip 0");
    for same in [
        "gzip",
        "gzip, deflate",
        "gzip, deflate, br",
        "deflate, gzip, br, zstd",
        "br;q=1.0, gzip;q=0.8, *;q=0.1",
        "gzip, x-evil",
        "gzip, compress;q=0",
        "x-gzip",
    ] {
        get(same).assert_is(200, "gzip 0");
    }
    proxy.get("/").assert_is(200, "plain 1");
    get("identity").assert_is(200, "plain 2");
    for same in ["br", "zstd, br", "deflate", "x-evil", "gzip;q=0"] {
        get(same).assert_is(200, "plain 2");
    }
    get("gzip, br").assert_is(200, "gzip 0");
}

#[test]
fn cookies_that_do_not_count_share_a_page_that_varies_on_cookies() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &[]);
    let number = AtomicUsize::new(0);
    origin.on("/").answer(move |_| {
        let number = number.fetch_add(1, Ordering::SeqCst);
        let reply = Reply::new(200).with(LONG).with("Vary: Cookie");
        reply.body(number.to_string())
    });
    proxy.get("/").assert_is(200, "0");
    for visitor in 0..12 {
        let cookie = format!("Cookie: _ga=GA1.1.{visitor}.1; _gid=GA1.1.{visitor}");
        let response = proxy.get_with("/", &[&cookie]);
        response.assert_hit();
        response.assert_is(200, "0");
    }
    let personal = proxy.get_with("/", &["Cookie: _ga=1; session=me"]);
    personal.assert_is(200, "1");
}

#[test]
fn a_route_ignores_the_named_fields_of_vary() {
    let origin = Origin::start();
    let proxy = Proxy::with_config(&format!(
        "listen = [\"127.0.0.1:0\"]\norigin = \"{}\"\nignore_vary = [\"User-Agent\"]\n",
        origin.url()
    ));
    varying(&origin, "/", "User-Agent");
    proxy
        .get_with("/", &["User-Agent: a"])
        .assert_is(200, "a 0");
    proxy
        .get_with("/", &["User-Agent: b"])
        .assert_is(200, "a 0");
}

/// One value gets what cannot be shared, by this answer.
fn check_uncacheable_for_one(reply: fn() -> Reply) {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &[]);
    origin
        .on("/")
        .answer(move |request: &Seen| match request.field("x-lang") {
            Some("odd") => reply().with("Vary: X-Lang").body(""),
            _ => Reply::new(200).with(LONG).with("Vary: X-Lang").body("good"),
        });
    proxy.get("/").assert_is(200, "good");
    for _ in 0..6 {
        let odd = proxy.get_with("/", &["X-Lang: odd"]);
        assert!(!odd.is_hit() && !odd.cache().has("stored"), "{odd:?}");
        let good = proxy.get("/");
        good.assert_hit();
        good.assert_is(200, "good");
    }
    let last = proxy.get_with("/", &["X-Lang: odd"]);
    assert_eq!(last.cache().get("detail"), Some("hit-for-miss"), "{last:?}");
    let new = proxy.get_with("/", &["X-Lang: new"]);
    assert!(
        new.cache().has("stored") && new.cache().get("detail").is_none(),
        "{new:?}"
    );
}

#[test]
fn a_personal_variant_leaves_the_others_alone() {
    check_uncacheable_for_one(|| Reply::new(200).with("Cache-Control: private"));
    check_uncacheable_for_one(|| Reply::new(200).with(LONG).with("Set-Cookie: a=b"));
    check_uncacheable_for_one(|| Reply::new(302).with("Location: /login"));
}

/// The origin forgets to say that an error page varies.
#[test]
fn an_answer_without_vary_does_not_answer_the_other_variants() {
    for line in ["X-A: 1", "Vary: Accept-Encoding"] {
        let origin = Origin::start();
        let proxy = Proxy::start(&origin, &[]);
        origin.on("/").answer(
            move |request: &Seen| match request.field("accept-language") {
                Some("zz") => Reply::new(404)
                    .with(LONG)
                    .with(line)
                    .body("no such language"),
                language => Reply::new(200)
                    .with(LONG)
                    .with("Vary: Accept-Language, Accept-Encoding")
                    .body(language.unwrap_or("-")),
            },
        );
        let get = |language: &str| proxy.get_with("/", &[&format!("Accept-Language: {language}")]);
        get("en").assert_is(200, "en");
        get("zz").assert_is(404, "no such language");
        let en = get("en");
        en.assert_is(200, "en");
        en.assert_hit();
        get("fr").assert_is(200, "fr");
        get("zz").assert_hit();
    }
}

/// Every client has an address of its own on loopback.
#[test]
fn rewritten_fields_select_as_the_origin_sees_them() {
    for name in ["X-Forwarded-For", "Forwarded"] {
        let origin = Origin::start();
        let proxy = Proxy::start(&origin, &[]);
        varying(&origin, "/", name);
        let from = |client: &str, fields: &[&str]| proxy.get_from(client, "/", fields);
        let one = from("127.0.0.1", &[]);
        assert!(one.text().contains("127.0.0.1"), "{one:?}");
        from("127.0.0.1", &[]).assert_hit();
        let other = from("127.0.0.2", &[]);
        assert!(other.text().contains("127.0.0.2"), "{other:?}");
        let lie = format!("{name}: 127.0.0.1");
        let liar = from("127.0.0.2", &[&lie]);
        liar.assert_hit();
        assert_eq!(liar.text(), other.text());
        assert_eq!(origin.count("/"), 2);
    }
}

/// A copy that is asked for each time, and confirmed with these lines.
fn confirmed_with(lines: &'static [&'static str]) -> (Origin, Proxy) {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &[]);
    origin.on("/").answer(move |request: &Seen| {
        if request.field("if-none-match").is_some() {
            return Reply::new(304).with_all(lines);
        }
        Reply::new(200)
            .with("Cache-Control: max-age=0, stale-while-revalidate=0")
            .with("Vary: Accept-Language")
            .with("ETag: \"a\"")
            .body(request.field("user-agent").unwrap_or("-"))
    });
    (origin, proxy)
}

#[test]
fn a_304_with_another_vary_is_for_its_client() {
    let (_origin, proxy) = confirmed_with(&["Vary: User-Agent", LONG]);
    proxy.get_with("/", &["User-Agent: a"]).assert_is(200, "a");
    let confirmed = proxy.get_with("/", &["User-Agent: a"]);
    confirmed.assert_is(200, "a");
    assert_eq!(confirmed.cache().get("fwd-status"), Some("304"));
    let again = proxy.get_with("/", &["User-Agent: a"]);
    again.assert_hit();
    proxy.get_with("/", &["User-Agent: b"]).assert_is(200, "b");
    proxy.get("/").assert_is(200, "-");
}

#[test]
fn a_confirmation_that_forbids_to_share_ends_the_copy() {
    for line in [
        &["Cache-Control: private"],
        &["Cache-Control: no-store"],
        &["Vary: *"],
    ] as [&'static [&'static str]; 3]
    {
        let (origin, proxy) = confirmed_with(line);
        proxy.get("/").assert_is(200, "-");
        let last = proxy.get("/");
        last.assert_is(200, "-");
        assert_eq!(last.cache().get("fwd-status"), Some("304"));
        assert!(!last.cache().has("stored"), "{last:?}");
        assert!(last.cache().get("detail").is_some(), "{last:?}");
        let next = proxy.get("/");
        next.assert_is(200, "-");
        assert!(!next.is_hit(), "{next:?}");
        let requested = origin.seen("/");
        assert_eq!(
            requested[2].field("if-none-match"),
            None,
            "the copy is gone"
        );
    }
}
