//! A page and parts of it under one url, of an application that says nothing of it in `Vary`. The parts are asked for
//! by the libraries that do so, in a real browser. Whatever is asked for first, a page stays a page and a part a part.

use std::fs;
use std::path::Path;

use crate::recipes::configuration_of;
use crate::support::{Browser, Origin, Proxy, Reply, Response, left_out};

/// Where `make test` puts the libraries.
const LIBRARIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fragments/node_modules");
/// For caches like this one alone: browsers keep nothing of it.
const LONG: &str = "Cache-Control: s-maxage=100";
const NAVIGATION: [&str; 3] = [
    "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8",
    "Sec-Fetch-Mode: navigate",
    "Sec-Fetch-Dest: document",
];
const PAGE: &str =
    "<!doctype html><h1>page</h1><turbo-frame id=\"place\">in the page</turbo-frame>";

/// Says what has come into the place, and then what a frame with the whole page shows.
const TELLS: &str = "<iframe id=\"frame\"></iframe><script>
    const wait = setInterval(() => {
        const text = document.getElementById('place').textContent.trim();
        if (text === 'waiting') return;
        clearInterval(wait);
        fetch('/told?part=' + encodeURIComponent(text));
        const frame = document.getElementById('frame');
        frame.onload = () => {
            const heading = frame.contentDocument.querySelector('h1');
            fetch('/told?page=' + (heading ? heading.textContent : 'none'));
        };
        frame.src = '/list';
    }, 20);
    </script>";

/// A library, the field by which it asks for a part of `/list`, and what it takes to have it do so.
struct Library {
    file: &'static str,
    field: &'static str,
    place: &'static str,
    part: &'static str,
}

const HTMX: Library = Library {
    file: "htmx.org/dist/htmx.js",
    field: "HX-Request",
    place: "<div id=\"place\" hx-get=\"/list\" hx-trigger=\"load\">waiting</div>",
    part: "<b>part</b>",
};
const HTMX_4: Library = Library {
    file: "htmx4/dist/htmx.js",
    ..HTMX
};
const TURBO: Library = Library {
    file: "@hotwired/turbo/dist/turbo.es2017-umd.js",
    field: "Turbo-Frame",
    place: "<turbo-frame id=\"place\" src=\"/list\">waiting</turbo-frame>",
    part: "<turbo-frame id=\"place\">part</turbo-frame>",
};

/// Opens the list as a browser does, under its host: another one has its own entries.
fn navigate(proxy: &Proxy) -> Response {
    let (host, fields) = (proxy.address(), NAVIGATION.join("\r\n"));
    proxy.request(format!(
        "GET /list HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n\r\n"
    ))
}

impl Library {
    /// An origin with a page that asks for a part of another one.
    fn origin(&self) -> Option<Origin> {
        let Ok(script) = fs::read(Path::new(LIBRARIES).join(self.file)) else {
            left_out("pages and their parts with htmx and Turbo, which are not installed (npm)");
            return None;
        };
        let origin = Origin::start();
        let script_type = "Content-Type: text/javascript; charset=utf-8";
        origin
            .on("/script.js")
            .reply(Reply::new(200).with(script_type).body(script));
        let html = format!(
            "<!doctype html><head><script src=\"/script.js\"></script></head><body>{}{TELLS}</body>",
            self.place
        );
        let html_type = "Content-Type: text/html; charset=utf-8";
        origin
            .on("/start")
            .reply(Reply::new(200).with(html_type).body(html));
        let (field, part) = (self.field, self.part);
        origin.on("/list").answer(move |request| {
            let is_part = request.field(field).is_some();
            let body = if is_part { part } else { PAGE };
            Reply::new(200).with_all(&[LONG, html_type]).body(body)
        });
        Some(origin)
    }

    /// Has the library ask behind a proxy, with the page stored already or nothing at all.
    fn check(&self, page_first: bool) {
        let Some(origin) = self.origin() else { return };
        let proxy = Proxy::start(&origin, &[]);
        let page = || navigate(&proxy);
        if page_first {
            page().assert_is(200, PAGE);
            page().assert_hit();
        }
        let url = format!("http://{}/start", proxy.address());
        let Some(_browser) = Browser::open(&url, &[], "pages and their parts") else {
            return;
        };
        origin.wait_for("/told?part=part", 1);
        origin.wait_for("/told?page=page", 1);
        let requested = origin.seen("/list");
        let parts = requested.iter().filter(|it| it.field(self.field).is_some());
        assert_eq!((requested.len(), parts.count()), (2, 1));
        let again = page();
        again.assert_is(200, PAGE);
        again.assert_hit();
    }
}

#[test]
fn htmx_gets_a_part_and_a_visitor_the_page_after_it() {
    HTMX.check(false);
    HTMX_4.check(false);
}

#[test]
fn htmx_gets_a_part_of_a_page_that_is_stored() {
    HTMX.check(true);
    HTMX_4.check(true);
}

#[test]
fn turbo_gets_a_frame_and_a_visitor_the_page_after_it() {
    TURBO.check(false);
}

#[test]
fn turbo_gets_a_frame_of_a_page_that_is_stored() {
    TURBO.check(true);
}

/// What the router of Next.js sends for a page that is shown, prefetched, or prefetched in segments. A server of it is
/// not run here (docs/guides/nextjs.md says what was): these are the names and values of its client
/// (packages/next/src/client/components, 16.0).
const NEXT: [&[&str]; 4] = [
    &[
        "Accept: */*",
        "rsc: 1",
        "next-router-state-tree: %5B%22%22%2C%7B%22children%22%3A%5B%22__PAGE__%22%2C%7B%7D%5D%7D%5D",
        "next-url: /",
    ],
    &[
        "Accept: */*",
        "rsc: 1",
        "next-router-prefetch: 1",
        "next-url: /",
    ],
    &[
        "Accept: */*",
        "rsc: 1",
        "next-router-prefetch: 1",
        "next-router-segment-prefetch: /_tree",
    ],
    &[
        "Accept: */*",
        "rsc: 1",
        "next-router-prefetch: 1",
        "purpose: prefetch",
        "prefer: return=minimal",
    ],
];
/// What its server says of each page.
const NEXT_VARY: &str =
    "Vary: rsc, next-router-state-tree, next-router-prefetch, next-router-segment-prefetch";

/// An origin that answers as the server of Next.js does, and its answer to a request with these fields.
fn next(vary: Option<&'static str>) -> Origin {
    let origin = Origin::start();
    origin.on("/list").answer(move |request| {
        let reply = Reply::new(200).with(LONG);
        let reply = vary.into_iter().fold(reply, Reply::with);
        if request.field("rsc").is_none() {
            let html_type = "Content-Type: text/html; charset=utf-8";
            return reply.with(html_type).body(PAGE);
        }
        let names = [
            "next-router-state-tree",
            "next-router-prefetch",
            "next-router-segment-prefetch",
        ];
        let values = names.map(|name| request.field(name).unwrap_or("-"));
        let body = format!("0:{}", values.join("|"));
        reply.with("Content-Type: text/x-component").body(body)
    });
    origin
}

fn assert_is_component(response: &Response, fields: &[&str]) {
    let value = |name: &str| {
        let line = fields.iter().find_map(|line| line.strip_prefix(name));
        line.unwrap_or("-").to_owned()
    };
    let values = [
        "next-router-state-tree: ",
        "next-router-prefetch: ",
        "next-router-segment-prefetch: ",
    ]
    .map(value);
    response.assert_is(200, &format!("0:{}", values.join("|")));
}

#[test]
fn the_router_of_next_js_gets_components_and_visitors_pages() {
    let by_default: fn(&Origin) -> Proxy = |origin| Proxy::start(origin, &[]);
    let by_guide: fn(&Origin) -> Proxy =
        |origin| Proxy::with_config(&configuration_of("nextjs.md", origin));
    let ways = [None, Some(NEXT_VARY)].map(|vary| [(vary, by_default), (vary, by_guide)]);
    for (vary, start) in ways.into_iter().flatten() {
        for page_first in [false, true] {
            let origin = next(vary);
            let proxy = start(&origin);
            let page = || navigate(&proxy);
            if page_first {
                page().assert_is(200, PAGE);
            }
            for _ in 0..2 {
                for fields in NEXT {
                    assert_is_component(&proxy.get_with("/list", fields), fields);
                }
                page().assert_is(200, PAGE);
            }
            page().assert_hit();
        }
    }
}
