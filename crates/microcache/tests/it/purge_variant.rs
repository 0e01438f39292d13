//! Purges of one variant of a url: by the name that lists of entries have for it, and by what its requests
//! say.

use std::process::Command;

use serde_json::{Value, json};

use crate::operators::Operator;
use crate::support::{Origin, Proxy, Reply};

/// A page in as many languages as are asked for, which says how often each was.
fn translated(origin: &Origin) {
    let mut times = std::collections::BTreeMap::new();
    origin.on("/").answer(move |request| {
        let language = request.field("x-lang").unwrap_or("-").to_owned();
        let count = times.entry(language.clone()).or_insert(0);
        *count += 1;
        Reply::ok(
            &["Cache-Control: max-age=600", "Vary: X-Lang"],
            format!("{language} {count}"),
        )
    });
}

fn get(proxy: &Proxy, language: &str) -> String {
    let field = format!("X-Lang: {language}");
    proxy.get_with("/", &[&field]).text()
}

const URL: &str = "http://example.com/";

/// The name of the variant in a language.
fn variant(operator: &Operator, language: &str) -> String {
    let listed = operator.get(&format!("/v1/entries?url={URL}"));
    let entries = listed["entries"].as_array().expect("a list");
    let is_it = |entry: &&Value| entry["varies_on"][0]["value"] == language;
    let entry = entries.iter().find(is_it).expect("it is stored");
    entry["variant"].as_str().expect("a name").to_owned()
}

#[test]
fn one_variant_is_purged_and_the_others_stay() {
    let origin = Origin::start();
    translated(&origin);
    let (proxy, admin) = Proxy::operated(&origin, &[]);
    let operator = Operator::at(admin);
    let bodies = || ["de", "en", "fr"].map(|language| get(&proxy, language));
    assert_eq!(bodies(), ["de 1", "en 1", "fr 1"]);
    let german = variant(&operator, "de");
    let reported = operator.post("/v1/purges", &json!({"url": URL, "variant": german}));
    assert_eq!(reported["purges"][0]["url"], "example.com/");
    assert_eq!(reported["purges"][0]["variant"], german);
    assert_eq!(bodies(), ["de 2", "en 1", "fr 1"]);

    operator.purge(&json!({"url": URL, "headers": ["X-Lang: en"]}));
    assert_eq!(bodies(), ["de 2", "en 2", "fr 1"]);
    // That one was not requested.
    operator.purge(&json!({"url": URL, "headers": ["X-Lang: it"]}));
    assert_eq!(bodies(), ["de 2", "en 2", "fr 1"]);
    let both = [variant(&operator, "de"), variant(&operator, "fr")];
    operator.purge(&json!({"url": URL, "variant": both, "soft": false}));
    assert_eq!(bodies(), ["de 3", "en 2", "fr 2"]);
    operator.purge(&json!({"url": URL}));
    assert_eq!(bodies(), ["de 4", "en 3", "fr 3"]);
}

#[test]
fn the_command_line_shows_variants_and_purges_one() {
    let origin = Origin::start();
    translated(&origin);
    let (proxy, admin) = Proxy::operated(&origin, &[]);
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_microcache"))
            .args(arguments)
            .args(["--admin", &format!("http://{admin}")])
            .output()
            .expect("it runs");
        let reported = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{reported}{output:?}");
        reported
    };
    assert_eq!(get(&proxy, "de"), "de 1");
    assert_eq!(get(&proxy, "en"), "en 1");
    let listed = run(&["entries", URL]);
    let line = listed.lines().find(|line| line.contains("x-lang: de"));
    let line = line.unwrap_or_else(|| panic!("{listed}"));
    let name = line.split_whitespace().nth(1).expect("a name");
    let reported = run(&["purge", URL, "--variant", name]);
    let expected = format!("purged: variant {name} of URL example.com/, 1 entry in memory\n");
    assert_eq!(reported, expected);
    assert_eq!([get(&proxy, "de"), get(&proxy, "en")], ["de 2", "en 1"]);
    run(&["purge", URL, "-H", "X-Lang: en"]);
    assert_eq!([get(&proxy, "de"), get(&proxy, "en")], ["de 2", "en 2"]);
}

#[test]
fn a_variant_that_is_named_wrongly_is_refused_and_nothing_is_purged() {
    let origin = Origin::start();
    translated(&origin);
    let (proxy, admin) = Proxy::operated(&origin, &[]);
    let operator = Operator::at(admin);
    assert_eq!(get(&proxy, "de"), "de 1");
    for (wrong, field) in [
        (json!({"url": URL, "variant": "de"}), "variant"),
        (json!({"url": URL, "variant": []}), "variant"),
        (json!({"variant": "0123456789abcdef"}), "variant"),
        (
            json!({"url": [URL, URL], "variant": "0123456789abcdef"}),
            "variant",
        ),
        (
            json!({"url": URL, "variant": "0123456789abcdef", "headers": []}),
            "variant",
        ),
        (json!({"headers": ["X-Lang: de"], "all": true}), "headers"),
        (json!({"url": URL, "headers": ["X-Lang"]}), "headers"),
        (json!({"url": URL, "headers": ["Host: a b"]}), "url"),
    ] {
        let refused = operator.ask("POST", "/v1/purges", Some(&wrong.to_string()));
        assert_eq!(refused.status, 400, "{wrong}");
        let reported: Value = serde_json::from_str(&refused.text()).expect("JSON");
        assert_eq!(reported["field"], field, "{wrong}: {reported}");
    }
    let field = &["X-Lang: de"];
    proxy.get_with("/", field).assert_hit();
}

#[test]
fn a_variant_is_purged_by_both_schemes_whichever_is_named() {
    let origin = Origin::start();
    translated(&origin);
    let (proxy, admin) = Proxy::operated(&origin, &["--trusted-proxies", "127.0.0.1"]);
    let operator = Operator::at(admin);
    let by_tls = |language: &str| {
        let field = format!("X-Lang: {language}");
        let fields = ["X-Forwarded-Proto: https", &field];
        proxy.get_with("/", &fields).text()
    };
    let bodies = || (get(&proxy, "de"), by_tls("de"));
    let reported = |plain: &str, secure: &str| (plain.to_owned(), secure.to_owned());
    assert_eq!(bodies(), reported("de 1", "de 2"));
    assert_eq!(bodies(), reported("de 1", "de 2"));
    let url = |scheme: &str| format!("{scheme}://example.com/");
    operator.purge(&json!({"url": url("http"), "headers": ["X-Lang: de"]}));
    assert_eq!(bodies(), reported("de 3", "de 4"));
    operator.purge(&json!({"url": url("https"), "headers": ["X-Lang: de"]}));
    assert_eq!(bodies(), reported("de 5", "de 6"));
}
