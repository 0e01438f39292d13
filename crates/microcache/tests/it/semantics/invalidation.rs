//! Unsafe methods end what is stored: RFC 9111 §4.4.

use super::exact;
use crate::support::{Origin, Proxy, Reply};

const FRESH: &str = "Cache-Control: max-age=100";

/// Stores the targets, sends the request, and says which of them are no longer hits.
fn ended_by(method: &str, status: u16, fields: &[&str], targets: &[&str]) -> Vec<String> {
    let origin = Origin::start();
    let proxy = exact(&origin);
    for target in targets {
        let fields: Vec<String> = fields.iter().map(|&line| line.to_owned()).collect();
        origin.on(target).answer(move |request| {
            let lines: Vec<&str> = fields.iter().map(String::as_str).collect();
            match request.method.as_str() {
                "GET" => Reply::new(200).with(FRESH).body("x"),
                _ => Reply::new(status).with_all(&lines).body(""),
            }
        });
        proxy.get(target);
        proxy.get(target).assert_hit();
    }
    assert_eq!(
        proxy
            .send(method, targets[0], &["Content-Length: 0"])
            .status,
        status
    );
    ended(&proxy, targets)
}

fn ended(proxy: &Proxy, targets: &[&str]) -> Vec<String> {
    let gone = targets.iter().filter(|target| !proxy.get(target).is_hit());
    gone.map(|&target| target.to_owned()).collect()
}

#[test]
fn unsafe_methods_end_the_target() {
    for method in ["POST", "PUT", "DELETE", "PATCH", "BREW"] {
        for status in [200, 201, 303] {
            assert_eq!(
                ended_by(method, status, &[], &["/a", "/b"]),
                ["/a"],
                "{method} {status}"
            );
        }
    }
}

#[test]
fn an_answer_ends_the_groups_that_it_names() {
    for (method, status, ends) in [
        ("POST", 200, true),
        ("POST", 500, false),
        ("GET", 200, false),
    ] {
        let origin = Origin::start();
        let proxy = exact(&origin);
        for (target, groups) in [
            ("/in", "Cache-Groups: \"a\", \"b\""),
            ("/other", "Cache-Groups: \"A\""),
            ("/tagged", "Cache-Tag: a"),
        ] {
            let reply = Reply::new(200).with(FRESH).with(groups);
            origin.on(target).reply(reply.body("x"));
            proxy.get(target);
            proxy.get(target).assert_hit();
        }
        let names = Reply::new(status).with("Cache-Group-Invalidation: \"a\";x");
        origin
            .on("/change")
            .reply(names.with("Cache-Control: no-store").body(""));
        proxy.send(method, "/change", &["Content-Length: 0"]);
        let expected: &[&str] = if ends { &["/in"] } else { &[] };
        let gone = ended(&proxy, &["/in", "/other", "/tagged"]);
        assert_eq!(gone, expected, "{method} {status}");
    }
}

#[test]
fn a_failure_ends_nothing() {
    for status in [400, 403, 404, 500, 503] {
        assert!(
            ended_by("POST", status, &["Location: /b"], &["/a", "/b"]).is_empty(),
            "{status}"
        );
    }
}

#[test]
fn safe_methods_end_nothing() {
    for method in ["OPTIONS", "TRACE", "PROPFIND"] {
        // TRACE may be refused by the proxy itself, and PROPFIND is safe only to programs that know it.
        if method == "OPTIONS" {
            assert!(
                ended_by(method, 200, &[], &["/a", "/b"]).is_empty(),
                "{method}"
            );
        }
    }
}

#[test]
fn location_and_content_location_are_ended_too() {
    let targets = ["/dir/a", "/dir/b", "/c", "/dir/d?e", "/other"];
    let fields = |location: &'static str, content: &'static str| [location, content];
    let rows: [([&str; 2], &[&str]); 5] = [
        (fields("Location: /c", "X: 1"), &["/dir/a", "/c"]),
        (
            fields("Location: /c", "Content-Location: /dir/b"),
            &["/dir/a", "/dir/b", "/c"],
        ),
        (
            fields("Location: b", "Content-Location: d?e"),
            &["/dir/a", "/dir/b", "/dir/d?e"],
        ),
        (
            fields("Location: ../c", "Content-Location: ./b"),
            &["/dir/a", "/dir/b", "/c"],
        ),
        (
            fields(
                "Location: http://example.com/c",
                "Content-Location: //example.com/dir/b",
            ),
            &["/dir/a", "/dir/b", "/c"],
        ),
    ];
    for (fields, expected) in rows {
        assert_eq!(
            ended_by("POST", 201, &fields, &targets),
            expected,
            "{fields:?}"
        );
    }
}

/// Behind a TLS terminator applications name the visitors' scheme, which is not that of the connection.
#[test]
fn the_scheme_of_a_visitor_behind_a_trusted_terminator_is_that_of_its_urls() {
    const BY_TLS: &str = "X-Forwarded-Proto: https";
    const BY_FORWARDED: &str = "Forwarded: for=192.0.2.1;proto=https";
    for (flags, forwarded, ends) in [
        (&["--trusted-proxies", "127.0.0.1"][..], BY_TLS, true),
        (
            &[
                "--trusted-proxies",
                "127.0.0.1",
                "--trusted-headers",
                "Forwarded",
            ],
            BY_FORWARDED,
            true,
        ),
        (&["--trusted-proxies", "127.0.0.1"], BY_FORWARDED, false),
        (
            &["--trusted-proxies", "127.0.0.1"],
            "X-Forwarded-Proto: http",
            false,
        ),
        (&[], BY_TLS, false),
    ] {
        let origin = Origin::start();
        let proxy = Proxy::start(&origin, flags);
        origin
            .on("/list")
            .reply(Reply::new(200).with(FRESH).body("x"));
        origin.on("/form").reply(
            Reply::new(303)
                .with("Location: https://example.com/list")
                .body(""),
        );
        let fields = [forwarded];
        proxy.get_with("/list", &fields);
        proxy.get_with("/list", &fields).assert_hit();
        let posted = proxy.send("POST", "/form", &[forwarded, "Content-Length: 0"]);
        assert_eq!(posted.status, 303);
        let is_hit = proxy.get_with("/list", &fields).is_hit();
        assert_eq!(is_hit, !ends, "{flags:?} {forwarded}");
    }
}

#[test]
fn another_origins_location_is_left_alone() {
    let locations = [
        "http://other.example/b",
        "https://example.com/b",
        "http://example.com:81/b",
        "//other.example/b",
        "http://example.com@other.example/b",
        "http:///b",
        "\\b",
    ];
    for location in locations {
        let fields = [
            &*format!("Location: {location}"),
            &format!("Content-Location: {location}"),
        ];
        let ended = ended_by("POST", 200, &fields, &["/a", "/b"]);
        assert_eq!(ended, ["/a"], "{location}");
    }
}

#[test]
fn every_variant_of_the_target_is_ended() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin
        .on("/")
        .answer(|request| match request.method.as_str() {
            "GET" => Reply::ok(&[FRESH, "Vary: X-Color"], "x"),
            _ => Reply::new(200).body(""),
        });
    let colors = ["X-Color: red", "X-Color: blue"];
    for color in colors {
        proxy.get_with("/", &[color]);
        proxy.get_with("/", &[color]).assert_hit();
    }
    proxy.send("DELETE", "/", &[]);
    for color in colors {
        assert!(!proxy.get_with("/", &[color]).is_hit(), "{color}");
    }
}

#[test]
fn a_fill_that_began_before_is_not_stored_after() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    let gate = crate::support::Gate::default();
    let mut gets = 0;
    let slow = gate.clone();
    origin.on("/").answer(move |request| {
        if request.method != "GET" {
            return Reply::new(200).body("");
        }
        gets += 1;
        match gets {
            1 => Reply::new(200)
                .with(FRESH)
                .with("Content-Length: 3")
                .send("o")
                .pause(&slow)
                .send("ld"),
            _ => Reply::new(200).with(FRESH).body("new"),
        }
    });
    let mut reader = proxy.ask("/");
    origin.wait_for("/", 1);
    assert_eq!(proxy.send("POST", "/", &["Content-Length: 0"]).status, 200);
    gate.open();
    reader.response().assert_is(200, "old");
    proxy.get("/").assert_is(200, "new");
}
