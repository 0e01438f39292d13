//! What it costs to read a head.

#[path = "../../engine/benches/support/mod.rs"]
mod support;

use std::hint::black_box;

use microcache_policy::FieldIndex;
use microcache_wire::h1::{HeadLimits, parse_request, parse_response, split_target};
use support::{BROWSER_FIELDS, Case};

const RESPONSE: &str = "HTTP/1.1 200 OK\r\n\
    Server: nginx\r\n\
    Date: Fri, 15 Jan 2027 08:00:00 GMT\r\n\
    Content-Type: text/html; charset=utf-8\r\n\
    Content-Length: 1024\r\n\
    Connection: keep-alive\r\n\
    Cache-Control: max-age=60, stale-while-revalidate=600\r\n\
    ETag: \"5f1e-63a0c7\"\r\n\
    Last-Modified: Thu, 14 Jan 2027 17:31:05 GMT\r\n\r\n";

fn request(fields: &str) -> Box<dyn FnMut()> {
    let head = format!(
        "GET /articles/2026/a-page-worth-caching?page=2 HTTP/1.1\r\n\
         Host: www.example.com\r\n{fields}\r\n"
    );
    let mut index = FieldIndex::default();
    Box::new(move || {
        let parsed = parse_request(
            black_box(head.as_bytes()),
            &HeadLimits::default(),
            &mut index,
        );
        let (request, length) = parsed.expect("a valid head").expect("a whole head");
        assert_eq!(length, head.len());
        black_box(split_target(request.method, request.target)).expect("a path");
    })
}

fn response() -> Box<dyn FnMut()> {
    let mut index = FieldIndex::default();
    Box::new(move || {
        let parsed = parse_response(
            black_box(RESPONSE.as_bytes()),
            false,
            &HeadLimits::default(),
            &mut index,
        );
        let (response, length) = parsed.expect("a valid head").expect("a whole head");
        assert_eq!((response.status, length), (200, RESPONSE.len()));
    })
}

const CASES: &[Case] = &[
    Case {
        name: "request head of curl",
        prepare: || request("User-Agent: curl/8.14.1\r\nAccept: */*\r\n"),
    },
    Case {
        name: "request head of a browser",
        prepare: || request(BROWSER_FIELDS),
    },
    Case {
        name: "response head",
        prepare: response,
    },
];

fn main() {
    support::main("Reading heads", CASES);
}
