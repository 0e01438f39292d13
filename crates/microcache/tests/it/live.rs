//! Pages that keep themselves up to date by `live.js`, in a real browser. What is to be seen in them they tell
//! themselves, by requests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use crate::operators::Operator;
use crate::support::{Browser, Gate, Origin, Proxy, Reply, eventually};

const SCRIPT_PATH: &str = "/.well-known/microcache/live.js";
const SCRIPT: &str = include_str!("../../../push/src/live.js");

/// Time goes fifty times as fast for the page.
const HASTE: &str = "<script>
    for (const name of ['setTimeout', 'setInterval']) {
        const real = window[name];
        window[name] = (act, time, ...more) => real(act, time / 50, ...more);
    }
    </script>";

/// The page says what it shows after each change: its heading, where the focus is, what stands in the field, and how
/// far it is scrolled.
const TELLS: &str = "<script>
    document.addEventListener('microcache:update', ({ detail }) => {
        const field = document.getElementById('field');
        const seen = [document.querySelector('h1').textContent, document.activeElement.id, field.value, scrollY > 0];
        fetch('/told?' + detail.url + '=' + seen.join('-'));
    });
    </script>";

/// A visitor begins to fill in the form, further down.
const TYPES: &str = "<script type=module>
    document.getElementById('field').focus();
    document.execCommand('insertText', false, 'words');
    scrollTo(0, 700);
    </script>";

/// An origin whose page has another heading whenever the test says so.
struct Changing {
    origin: Origin,
    version: Arc<AtomicUsize>,
}

impl Changing {
    fn new() -> Self {
        Self {
            origin: Origin::start(),
            version: Arc::default(),
        }
    }

    fn page(&self, target: &str, field: &'static str, scripts: &[&str]) {
        let version = Arc::clone(&self.version);
        let scripts = scripts.concat();
        self.origin.on(target).answer(move |_| {
            let version = version.load(Ordering::SeqCst);
            let list = "<li>another".repeat(version);
            // What the form stands in is each time another element, which takes the place of the one before.
            let around = ["div", "section"][version % 2];
            let html = format!(
                "<!doctype html><title>{version}</title>
                <script type=\"module\" src=\"{SCRIPT_PATH}\"></script>
                <ul>{list}</ul><h1>{version}</h1>
                <{around}><form><input id=\"field\"></form></{around}>
                <p style=\"height: 5000px\">far down</p>{scripts}"
            );
            let html_type = "Content-Type: text/html; charset=utf-8";
            Reply::new(200).with_all(&[field, html_type]).body(html)
        });
    }

    fn change(&self) {
        self.version.fetch_add(1, Ordering::SeqCst);
    }

    /// Waits until a page has said this.
    fn wait_for(&self, reported: &str) {
        self.origin.wait_for(&format!("/told?{reported}"), 1);
    }
}

fn url(proxy: &Proxy, target: &str) -> String {
    format!("http://{}{target}", proxy.address())
}

pub(crate) fn wait_for_subscribers(admin: SocketAddr, wanted: u64) {
    eventually("so many connections", || {
        let stats = Operator::at(admin).get("/v1/stats");
        (stats["push"]["subscribers"] == wanted).then_some(())
    });
}

const FRESH: &str = "Cache-Control: max-age=1000";
const WATCH: [&str; 2] = ["--watch", "refresh"];

#[test]
fn a_page_shows_changes_and_keeps_the_rest() {
    let site = Changing::new();
    site.page("/page?a=1", FRESH, &[TELLS, TYPES]);
    let (proxy, admin) = Proxy::operated(&site.origin, &WATCH);
    let url = url(&proxy, "/page?a=1");
    let Some(_browser) = Browser::open(&url, &[], "a page that is kept up to date") else {
        return;
    };
    wait_for_subscribers(admin, 1);
    for version in 1..=3 {
        site.change();
        Operator::at(admin).purge(&json!({ "url": url }));
        site.wait_for(&format!("/page?a=1={version}-field-words-true"));
    }
    // The page was loaded, and fetched once for each purge.
    assert_eq!(site.origin.count("/page?a=1"), 4);
}

/// As content management systems do: a script of its own gives an id to what has none, and puts something before it.
#[test]
fn changes_by_scripts_do_not_hide_updates() {
    let site = Changing::new();
    let gives_ids = "<script>
        document.addEventListener('DOMContentLoaded', () => {
            const list = document.querySelector('ul');
            list.id = 'from-a-script';
            list.before(Object.assign(document.createElement('nav'), { id: 'another', textContent: 'put in' }));
        });
        </script>";
    let tells = "<script>
        document.addEventListener('microcache:update', () => {
            const items = document.querySelectorAll('#from-a-script li').length;
            fetch('/told?items=' + items + '-' + document.getElementById('another').textContent);
        });
        </script>";
    site.page("/page", FRESH, &[gives_ids, tells]);
    let (proxy, admin) = Proxy::operated(&site.origin, &WATCH);
    let url = url(&proxy, "/page");
    let Some(_browser) = Browser::open(&url, &[], "a page that its scripts change") else {
        return;
    };
    wait_for_subscribers(admin, 1);
    for version in 1..=2 {
        site.change();
        Operator::at(admin).purge(&json!({ "url": url }));
        site.wait_for(&format!("items={version}-put%20in"));
    }
}

#[test]
fn a_change_between_the_page_and_the_first_event_is_shown() {
    let site = Changing::new();
    let waits = "<script>
        const { locks } = navigator;
        const real = locks.request.bind(locks);
        locks.request = async (...all) => {
            await fetch('/gate');
            return real(...all);
        };
        </script>";
    site.page("/page", FRESH, &[TELLS, waits]);
    let gate = Gate::default();
    let opened = Reply::new(200).with("Cache-Control: no-store").after(&gate);
    site.origin.on("/gate").reply(opened.body(""));
    let (proxy, admin) = Proxy::operated(&site.origin, &WATCH);
    let url = url(&proxy, "/page");
    let Some(_browser) = Browser::open(&url, &[], "a page that changes early") else {
        return;
    };
    site.origin.wait_for("/gate", 1);
    site.change();
    Operator::at(admin).purge(&json!({ "url": url }));
    gate.open();
    site.wait_for("/page=1---false");
}

#[test]
fn resources_of_a_page_are_not_fetched_again() {
    let site = Changing::new();
    let tells = "<script>
        const real = fetch;
        window.fetch = (what, how) => {
            if (how?.cache === 'no-cache') real('/told?fetched');
            return real(what, how);
        };
        window.EventSource = class extends EventSource {
            constructor(url) {
                super(url);
                this.addEventListener('page', () => setTimeout(() => real('/told?heard'), 1000));
            }
        };
        </script>";
    let version = Arc::clone(&site.version);
    site.origin.on("/page").answer(move |_| {
        let version = version.load(Ordering::SeqCst);
        let html = format!(
            "<!doctype html><script type=\"module\" src=\"{SCRIPT_PATH}\"></script>{tells}{TELLS}<h1>{version}</h1>
            <input id=\"field\">"
        );
        let html_type = "Content-Type: text/html; charset=utf-8";
        let tag = ["ETag: \"even\"", "ETag: \"odd\""][version % 2];
        Reply::new(200).with_all(&[FRESH, html_type, tag]).body(html)
    });
    let (proxy, admin) = Proxy::operated(&site.origin, &WATCH);
    let url = url(&proxy, "/page");
    let Some(_browser) = Browser::open(&url, &[], "a page that has an entity tag") else {
        return;
    };
    site.wait_for("heard");
    site.change();
    Operator::at(admin).purge(&json!({ "url": url }));
    site.wait_for("/page=1---false");
    assert_eq!(site.origin.count("/told?fetched"), 1);
}

#[test]
fn two_tabs_have_one_connection() {
    let site = Changing::new();
    let opens = "<script>open('/second', '_blank', 'noopener')</script>";
    site.page("/first", FRESH, &[TELLS, opens]);
    site.page("/second", FRESH, &[TELLS]);
    let (proxy, admin) = Proxy::operated(&site.origin, &WATCH);
    let flags = ["--disable-popup-blocking"];
    let url = url(&proxy, "/first");
    let Some(_browser) = Browser::open(&url, &flags, "tabs that share a connection") else {
        return;
    };
    site.origin.wait_for("/second", 1);
    wait_for_subscribers(admin, 1);
    site.change();
    Operator::at(admin).purge(&json!({ "all": true }));
    site.wait_for("/first=1---false");
    site.wait_for("/second=1---false");
    wait_for_subscribers(admin, 1);
}

#[test]
fn an_unstorable_page_is_not_fetched_repeatedly() {
    let site = Changing::new();
    let waits = "<script>
        window.EventSource = class extends EventSource {
            constructor(url) {
                super(url);
                this.addEventListener('unwatchable', () => {
                    setTimeout(() => fetch('/told?now'), 30000);
                    setTimeout(() => fetch('/told?later'), 90000);
                });
            }
        };
        </script>";
    site.page("/private", "Cache-Control: private", &[HASTE, waits]);
    let (proxy, admin) = Proxy::operated(&site.origin, &WATCH);
    let url = url(&proxy, "/private");
    let Some(_browser) = Browser::open(&url, &[], "a page that cannot be watched") else {
        return;
    };
    site.wait_for("now");
    let requested = site.origin.count("/private");
    site.wait_for("later");
    assert_eq!(site.origin.count("/private"), requested);
    wait_for_subscribers(admin, 0);
}

#[test]
fn where_nothing_may_be_watched_a_page_is_fetched_every_few_seconds() {
    let site = Changing::new();
    site.page("/page", "Cache-Control: max-age=0", &[HASTE, TELLS]);
    let script_type = "Content-Type: text/javascript";
    let script = Reply::new(200).with(script_type).body(SCRIPT);
    site.origin.on(SCRIPT_PATH).reply(script);
    let proxy = Proxy::start(&site.origin, &[]);
    let url = url(&proxy, "/page");
    let Some(_browser) = Browser::open(&url, &[], "a page that asks now and then") else {
        return;
    };
    site.origin.wait_for("/page", 3);
    site.change();
    site.wait_for("/page=1---false");
}

/// Without locks, which browsers have only where a page came by https or from this machine, each tab would hold one of the
/// six connections of a browser.
#[test]
fn a_tab_that_is_not_seen_and_shares_nothing_holds_no_connection() {
    let site = Changing::new();
    let hides = "<script>
        delete Navigator.prototype.locks;
        let isHidden = false;
        Object.defineProperty(document, 'hidden', { get: () => isHidden });
        const turn = (now) => {
            isHidden = now;
            dispatchEvent(new Event('visibilitychange'));
        };
        fetch('/gate?hide').then(() => turn(true)).then(() => fetch('/gate?show')).then(() => turn(false));
        </script>";
    site.page("/page", FRESH, &[TELLS, hides]);
    let [hide, show] = ["/gate?hide", "/gate?show"].map(|target| {
        let gate = Gate::default();
        let opened = Reply::new(200).with("Cache-Control: no-store").after(&gate);
        site.origin.on(target).reply(opened.body(""));
        gate
    });
    let (proxy, admin) = Proxy::operated(&site.origin, &WATCH);
    let url = url(&proxy, "/page");
    let Some(_browser) = Browser::open(&url, &[], "a tab that is hidden") else {
        return;
    };
    wait_for_subscribers(admin, 1);
    hide.open();
    wait_for_subscribers(admin, 0);
    site.change();
    Operator::at(admin).purge(&json!({ "url": url }));
    show.open();
    site.wait_for("/page=1---false");
    wait_for_subscribers(admin, 1);
}
