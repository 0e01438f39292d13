//! The honest client, who looks at what it gets.

use super::model::{Chance, HOSTILE_SECRET, Page, TestRequest, Version, honest};
use super::site::{Edits, Site};
use crate::support::{Proxy, Response};

/// One request, on a connection of its own.
pub(super) fn visit(proxy: &Proxy, site: &Site, chance: &mut Chance, number: usize, seed: u64) {
    let page = site.any_page(chance);
    let requested = honest(chance, page, number);
    let before = site.edits(page);
    let mut client = proxy.connect();
    client.send(bytes(&requested));
    let response = if requested.method == "HEAD" {
        client.response_to_head()
    } else {
        client.response()
    };
    let after = site.edits(page);
    let text = response.text();
    let leaks = text.contains(HOSTILE_SECRET)
        || response
            .head
            .fields
            .iter()
            .any(|(_, value)| value.contains(HOSTILE_SECRET))
        || response.field("set-cookie").is_some();
    assert!(
        !leaks && is_its_own(page, &requested, before, after, &response),
        "seed {seed}, visit {number}: {page:?}\n{}\ngot {} {:?}\n{}\nand the origin would have given {:?}",
        requested.text(),
        response.status,
        response.head.fields,
        text.trim_end_matches('.'),
        page.answer(
            &requested,
            Version {
                edits: after.begun,
                edition: 0
            },
            0
        )
        .fields,
    );
}

/// Whether the origin would have given it for some version since the last edit that was known of.
fn is_its_own(
    page: &Page,
    requested: &TestRequest,
    before: Edits,
    after: Edits,
    got: &Response,
) -> bool {
    (before.done..=after.begun).any(|edits| {
        let version = Version { edits, edition: 0 };
        let is_it = |requested| {
            let reply = page.answer(requested, version, 0);
            reply.matches(requested, got.status, &got.head.fields, &got.body)
        };
        // A part, or no news, is what a cache may give and need not.
        is_it(requested) || is_it(&requested.plain())
    })
}

pub(super) fn bytes(requested: &TestRequest) -> Vec<u8> {
    let mut head = format!("{} {} HTTP/1.1\r\n", requested.method, requested.target);
    for (name, value) in &requested.fields {
        head += &format!("{name}: {value}\r\n");
    }
    if requested.has_body {
        head += "Content-Length: 4\r\n\r\nbody";
    } else {
        head += "\r\n";
    }
    head.into_bytes()
}
