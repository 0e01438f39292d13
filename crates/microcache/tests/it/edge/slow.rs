//! Clients that take nothing of a composed page hold little memory.

use super::*;
use crate::support::eventually;

const CLIENTS: usize = 80;
const LARGE: usize = 3_900_000;
/// Memory of the cache, the quarter of it that all clients may hold together, and the process with what its allocator keeps.
const BOUND: u64 = (64 << 20) + (16 << 20) + (80 << 20);

/// Stalls clients at pages of their own, and waits until what they hold is given back, long before they time out.
fn stall(large_page: bool, fields: &'static [&'static str]) {
    let origin = Origin::start();
    let proxy = proxy(&origin, "memory = \"64MiB\"\nclient_write_timeout = \"1h\"");
    let large = || "x".repeat(LARGE);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (target, source) = (format!("/{number}"), format!("/f/{number}"));
            let tag = tag(&source);
            origin.on(&target).answer(move |_| {
                let text = if large_page { large() } else { "x".to_owned() };
                page(&(text + &tag))
            });
            origin.on(&source).answer(move |_| {
                let text = if large_page { "x".to_owned() } else { large() };
                Reply::ok(fields, text)
            });
            for _ in 0..2 {
                assert_eq!(proxy.get(&target).body.len(), LARGE + 1);
            }
            proxy.ask_and_stall(&target)
        })
        .collect();
    eventually("what they hold to be given back", || {
        (proxy.resident() <= BOUND).then_some(())
    });
    drop(clients);
}

#[test]
fn personal_fragments() {
    stall(false, &[HTML, PERSONAL]);
}

#[test]
fn stored_fragments_that_were_evicted() {
    stall(false, &[HTML, SHARED]);
}

#[test]
fn pages_that_were_evicted() {
    stall(true, &[HTML, SHARED]);
}
