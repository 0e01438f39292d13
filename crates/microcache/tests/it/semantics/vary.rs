//! Variants side by side: RFC 9111 §4.1.

use super::exact;
use crate::support::{Origin, Proxy, Reply};

/// An origin that varies on the fields and answers with their values.
fn varying(origin: &Origin, target: &str, vary: &'static [&str], names: &'static [&str]) {
    origin.on(target).answer(move |request| {
        let values: Vec<_> = names
            .iter()
            .map(|name| request.field(name).unwrap_or("-"))
            .collect();
        Reply::new(200)
            .with("Cache-Control: max-age=100")
            .with_all(vary)
            .body(values.join("|"))
    });
}

fn check_side_by_side(proxy: &Proxy, target: &str, requests: &[(&[&str], &str)]) {
    for (fields, body) in requests {
        let first = proxy.get_with(target, fields);
        first.assert_is(200, body);
        assert!(!first.is_hit(), "{first:?}");
    }
    for (fields, body) in requests {
        let again = proxy.get_with(target, fields);
        again.assert_is(200, body);
        again.assert_hit();
    }
}

#[test]
fn variants_live_side_by_side() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    varying(&origin, "/", &["Vary: X-Color"], &["x-color"]);
    let requests: &[(&[&str], &str)] = &[
        (&["X-Color: red"], "red"),
        (&["X-Color: blue"], "blue"),
        (&["X-Color: Blue"], "Blue"),
        (&[], "-"),
    ];
    check_side_by_side(&proxy, "/", requests);
}

#[test]
fn every_vary_line_counts() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    varying(
        &origin,
        "/",
        &["Vary: X-A", "Vary: x-b , X-C"],
        &["x-a", "x-b", "x-c"],
    );
    let requests: &[(&[&str], &str)] = &[
        (&["X-A: 1", "X-B: 2", "X-C: 3"], "1|2|3"),
        (&["X-A: 1", "X-B: 2", "X-C: 4"], "1|2|4"),
        (&["X-A: 1", "X-B: 3", "X-C: 3"], "1|3|3"),
        (&["X-A: 2", "X-B: 2", "X-C: 3"], "2|2|3"),
        (&["X-B: 2", "X-C: 3"], "-|2|3"),
    ];
    check_side_by_side(&proxy, "/", requests);
}

#[test]
fn a_star_anywhere_matches_nothing() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    let lines: [&'static [&str]; 3] = [&["Vary: *"], &["Vary: X-A, *"], &["Vary: X-A", "Vary: *"]];
    for (number, vary) in lines.into_iter().enumerate() {
        let target = format!("/{number}");
        varying(&origin, &target, vary, &["x-a"]);
        proxy.get(&target);
        assert!(!proxy.get(&target).is_hit(), "{vary:?}");
        assert_eq!(origin.count(&target), 2, "{vary:?}");
    }
}

#[test]
fn a_variant_not_there_is_a_vary_miss() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    varying(&origin, "/", &["Vary: X-Color"], &["x-color"]);
    proxy
        .get_with("/", &["X-Color: red"])
        .assert_forwarded("uri-miss");
    proxy
        .get_with("/", &["X-Color: blue"])
        .assert_forwarded("vary-miss");
}

#[test]
fn other_fields_do_not_matter() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    varying(&origin, "/", &["Vary: X-Color"], &["x-color"]);
    proxy.get_with("/", &["X-Color: red", "X-Other: 1"]);
    proxy
        .get_with("/", &["X-Other: 2", "x-color:   red  "])
        .assert_hit();
}

#[test]
fn forged_values_do_not_collide() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    varying(&origin, "/", &["Vary: X-A, X-B"], &["x-a", "x-b"]);
    let requests: &[(&[&str], &str)] = &[
        (&["X-A: 1", "X-B: 2"], "1|2"),
        (&["X-A: 1|2"], "1|2|-"),
        (&["X-A: 1, x-b: 2"], "1, x-b: 2|-"),
        (&["X-B: 1", "X-A: 2"], "2|1"),
    ];
    check_side_by_side(&proxy, "/", requests);
}

/// Requests that select the same variant whatever their order, case, weights and white space.
fn check_same(name: &'static str, groups: &[&[&str]]) {
    let origin = Origin::start();
    let proxy = exact(&origin);
    let vary = format!("Vary: {name}");
    let fetched = std::sync::atomic::AtomicUsize::new(0);
    origin.on("/").answer(move |request| {
        let number = fetched.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let accepted = request.field("accept-encoding").unwrap_or_default();
        let used = ["br", "gzip"]
            .into_iter()
            .find(|one| accepted.contains(one));
        let coding = used.map(|coding| format!("Content-Encoding: {coding}"));
        Reply::new(200)
            .with("Cache-Control: max-age=100")
            .with_all(&coding.iter().map(String::as_str).collect::<Vec<_>>())
            .with(&vary)
            .body(number.to_string())
    });
    for (number, group) in groups.iter().enumerate() {
        for value in *group {
            let response = proxy.get_with("/", &[&format!("{name}: {value}")]);
            response.assert_is(200, &number.to_string());
        }
    }
}

#[test]
fn accept_encoding_is_normalised() {
    check_same(
        "Accept-Encoding",
        &[
            &[
                "gzip, br",
                "br, gzip",
                "gzip,br",
                "GZIP ,  Br",
                "br;q=1.0, gzip;q=1",
                "gzip, br, zstd;q=0",
            ],
            &[
                "gzip",
                "gzip;q=1",
                "x-gzip",
                "gzip, br;q=0",
                "\tgzip",
                "gzip, gzip",
            ],
            &["identity", "IDENTITY", "identity;q=1", "identity, gzip;q=0"],
        ],
    );
}

#[test]
fn accept_language_is_normalised() {
    check_same(
        "Accept-Language",
        &[
            &[
                "en, de;q=0.5",
                "EN,de;q=0.5",
                "de;q=0.5, en",
                "en;q=1.0 , de; q=0.5",
                "en;q=1, de;q=0.500",
            ],
            &["de, en;q=0.5", "DE;q=1,EN;q=0.5"],
        ],
    );
}

#[test]
fn a_malformed_accept_encoding_does_not_escape_the_cache() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin.on("/").reply(
        Reply::new(200)
            .with("Cache-Control: max-age=100")
            .with("Vary: Accept-Encoding")
            .body("x"),
    );
    let malformed = [
        "gzip;q=foo;;",
        ";;;",
        "gzip;q=2",
        "\"",
        "gzip;;q",
        "@@@",
        "gzip br",
        "=,=",
        "\u{ff}",
    ];
    for value in malformed {
        proxy
            .get_with("/", &[&format!("Accept-Encoding: {value}")])
            .assert_is(200, "x");
    }
    assert!(
        origin.count("/") <= 2,
        "{} variants of nothing",
        origin.count("/")
    );
}

#[test]
fn the_origin_is_asked_for_the_compared_codings() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    varying(
        &origin,
        "/",
        &["Vary: Accept-Encoding"],
        &["accept-encoding"],
    );
    proxy
        .get_with("/", &["Accept-Encoding: GZIP ;q=0.9,  Br, x-odd"])
        .assert_is(200, "gzip, br");
}

#[test]
fn variants_of_one_key_are_capped() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    varying(&origin, "/", &["Vary: User-Agent"], &["user-agent"]);
    for number in 0..40 {
        proxy
            .get_with("/", &[&format!("User-Agent: {number}")])
            .assert_is(200, &number.to_string());
    }
    let fields: Vec<String> = (0..40)
        .map(|number| format!("User-Agent: {number}"))
        .collect();
    let hits = fields
        .iter()
        .rev()
        .filter(|line| proxy.get_with("/", &[line]).is_hit())
        .count();
    assert_eq!(hits, 8, "of 40 variants");
}
