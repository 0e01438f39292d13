//! What HTTP asks of a shared cache, clause by clause.

mod conditional;
mod fields;
mod freshness;
mod head;
mod interim;
mod invalidation;
mod max_forwards;
mod ranges;
mod request_directives;
mod stale_forbidden;
mod status_field;
mod storing;
mod too_large;
mod validation;
mod vary;

use crate::support::{Origin, Proxy, Reply};

/// Nothing stale is served, so that fresh and hit are the same; the ttl is long enough to be seen.
const EXACT: [&str; 6] = [
    "--ttl",
    "60s",
    "--stale-while-revalidate",
    "0s",
    "--stale-if-error",
    "0s",
];

fn exact(origin: &Origin) -> Proxy {
    Proxy::start(origin, &EXACT)
}

/// Whether the second of two equal requests is a hit, for each response of a table.
fn check_reused(rows: &[(&str, u16, &[&str], bool)]) {
    check_reused_with(&[], rows);
}

/// The same for requests that carry these fields.
fn check_reused_with(request: &[&str], rows: &[(&str, u16, &[&str], bool)]) {
    let origin = Origin::start();
    let proxy = exact(&origin);
    let mut wrong = Vec::new();
    for (number, (name, status, lines, expected)) in rows.iter().enumerate() {
        let target = format!("/{number}");
        let reply = Reply::new(*status).with_all(lines);
        let bodyless = matches!(status, 204 | 304);
        origin
            .on(&target)
            .reply(if bodyless { reply } else { reply.body("x") });
        let first = proxy.get_with(&target, request);
        assert_eq!(first.status, *status, "{name}: {first:?}");
        let second = proxy.get_with(&target, request);
        assert_eq!(second.status, *status, "{name}: {second:?}");
        if second.is_hit() != *expected || (origin.count(&target) == 1) != *expected {
            wrong.push(format!("{name}: {:?}", second.head.all("cache-status")));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
