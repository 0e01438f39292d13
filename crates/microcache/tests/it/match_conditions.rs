//! Routes by more than the URL: each has entries of its own.

use crate::operators::Operator;
use crate::support::{Origin, Proxy, Reply};

#[test]
fn a_visitor_never_gets_the_entry_of_another_route() {
    let (live, beta) = (Origin::start(), Origin::start());
    let proxy = Proxy::with_config(&format!(
        r#"
upstreams = {{ live = {{ servers = "{}" }}, beta = {{ servers = "{}" }} }}
routes = [
    {{ name = "beta", match = {{ cookie = "beta=1" }}, upstream = "beta", ignore_cookies = "beta" }},
    {{ name = "phones", match = {{ header = "User-Agent=*Mobile*" }}, upstream = "beta" }},
    {{ name = "live", upstream = "live" }},
]
"#,
        live.url(),
        beta.url()
    ));
    let page = |text: &str| Reply::new(200).with("Cache-Control: max-age=60").body(text);
    live.on("/").reply(page("live"));
    beta.on("/").reply(page("beta"));
    for _ in 0..2 {
        proxy.get("/").assert_is(200, "live");
        proxy
            .get_with("/", &["Cookie: beta=1"])
            .assert_is(200, "beta");
        proxy
            .get_with("/", &["User-Agent: X Mobile"])
            .assert_is(200, "beta");
        proxy
            .get_with("/", &["User-Agent: X"])
            .assert_is(200, "live");
    }
    assert_eq!((live.count("/"), beta.count("/")), (1, 2));
}

#[test]
fn a_change_invalidates_the_entries_of_all_routes() {
    let origin = Origin::start();
    let proxy = Proxy::with_config(&format!(
        r#"
origin = "{}"
routes = [{{ match = {{ header = "X-Kind" }} }}]
"#,
        origin.url()
    ));
    origin.on("/").answer(|seen| match seen.method.as_str() {
        "POST" => Reply::new(204),
        _ => Reply::new(200).with("Cache-Control: max-age=60").body("x"),
    });
    let both = || {
        let (plain, kind) = (proxy.get("/"), proxy.get_with("/", &["X-Kind: a"]));
        (plain.is_hit(), kind.is_hit())
    };
    assert_eq!(both(), (false, false));
    assert_eq!(both(), (true, true));
    assert_eq!(proxy.send("POST", "/", &["Content-Length: 0"]).status, 204);
    assert_eq!(both(), (false, false));
}

#[test]
fn addresses_are_those_that_trusted_proxies_report() {
    let (office, all) = (Origin::start(), Origin::start());
    let proxy = Proxy::with_config(&format!(
        r#"
trusted_proxies = "127.0.0.1"
upstreams = {{ office = {{ servers = "{}" }}, all = {{ servers = "{}" }} }}
routes = [
    {{ match = {{ client = "192.0.2.0/24", path = "/admin/*" }}, upstream = "office" }},
    {{ upstream = "all" }},
]
"#,
        office.url(),
        all.url()
    ));
    for (origin, name) in [(&office, "office"), (&all, "all")] {
        origin.on("/admin/").reply(Reply::new(200).body(name));
    }
    let check = |field: &str, expected: &str| {
        proxy.get_with("/admin/", &[field]).assert_is(200, expected);
    };
    check("X-Forwarded-For: 192.0.2.1", "office");
    check("X-Forwarded-For: 192.0.2.1, 198.51.100.1", "all");
    check("X-Real-IP: 192.0.2.1", "all");
    check("Forwarded: for=192.0.2.1", "all");
}

#[test]
fn a_url_is_listed_and_purged_on_all_its_routes() {
    let origin = Origin::start();
    let (proxy, admin) = Proxy::operated_by_file(&format!(
        r#"
origin = "{}"
purge_from = ["127.0.0.1"]
routes = [
    {{ match = {{ cookie = "beta=1" }}, ignore_cookies = "beta", key = {{ query = {{ ignore = ["utm_*"] }} }} }},
]
"#,
        origin.url()
    ));
    let page = Reply::new(200).with("Cache-Control: max-age=60");
    origin.on("/").reply(page.clone().body("beta"));
    origin.on("/?utm_source=a").reply(page.body("live"));
    let both = || {
        proxy.get("/?utm_source=a").assert_is(200, "live");
        let beta = proxy.get_with("/?utm_source=a", &["Cookie: beta=1"]);
        beta.assert_is(200, "beta");
        (origin.count("/?utm_source=a"), origin.count("/"))
    };
    assert_eq!((both(), both()), ((1, 1), (1, 1)));
    let listed = Operator::at(admin).get("/v1/entries?url=http://example.com/?utm_source=a");
    assert_eq!(
        listed["entries"].as_array().map(Vec::len),
        Some(2),
        "{listed}"
    );
    assert_eq!(proxy.send("PURGE", "/?utm_source=a", &[]).status, 200);
    assert_eq!(both(), (2, 2));
}
