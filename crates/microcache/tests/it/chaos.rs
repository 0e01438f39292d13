//! Many clients, few URLs, an origin that fails in every way: each answer is the right one.

use std::thread;

use crate::support::{Origin, Proxy, Reply, Seen};

const CLIENTS: u64 = 8;
const REQUESTS: u64 = 400;
const PAGES: u64 = 6;

#[test]
fn no_client_ever_gets_a_foreign_or_incomplete_response() {
    let origin = Origin::start();
    for page in 0..PAGES {
        let mut count = page;
        origin.on(&target(page)).answer(move |request| {
            count += 1;
            answer(request, scramble(count))
        });
    }
    let flags = [
        "--ttl",
        "20ms",
        "--stale-while-revalidate",
        "20ms",
        "--stale-if-error",
        "40ms",
        "--hit-for-miss",
        "10ms",
        "--threads",
        "2",
    ];
    let proxy = Proxy::start(&origin, &flags);
    let good: usize = thread::scope(|scope| {
        let client = |number| {
            scope.spawn({
                let proxy = &proxy;
                move || {
                    (0..REQUESTS)
                        .filter(|&request| ask(proxy, number, request))
                        .count()
                }
            })
        };
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
        clients
            .into_iter()
            .map(|client| client.join().unwrap())
            .sum()
    });
    assert!(
        good > (CLIENTS * REQUESTS) as usize / 2,
        "only {good} good answers"
    );
    origin.on("/calm").reply(Reply::new(200).body("calm"));
    proxy.get("/calm").assert_is(200, "calm");
}

/// One request of one client. Says whether there was a good answer; wrong ones end the test.
fn ask(proxy: &Proxy, client: u64, request: u64) -> bool {
    let chance = scramble(client * REQUESTS + request);
    let target = target(chance % PAGES);
    let user = format!("user-{client}-{request}");
    let (cookie, visitor) = (format!("Cookie: {user}=1"), "Cookie: _ga=1".to_owned());
    let personal = (chance >> 8).is_multiple_of(4);
    let mut connection = proxy.ask_with(&target, &[if personal { &cookie } else { &visitor }]);
    if (chance >> 16).is_multiple_of(16) {
        return false; // This one does not wait for the answer.
    }
    let Ok(response) = connection.try_response() else {
        return false;
    };
    if response.status >= 500 {
        return false;
    }
    let text = response.text();
    let owner = if personal { user.as_str() } else { "everyone" };
    let mine = format!("{target} for {owner}, or for one");
    let only = format!("{target} for {owner}");
    assert!(
        text.ends_with(&mine) || text.ends_with(&only),
        "{target} for {owner}: {response:?}"
    );
    assert_eq!(
        response.field("set-cookie").is_some(),
        text.ends_with("or for one"),
        "{response:?}"
    );
    if text.ends_with("or for one") {
        assert!(
            !response.is_hit() && !response.cache().has("collapsed"),
            "{response:?}"
        );
    }
    true
}

/// One of many kinds of answers, good and bad.
fn answer(request: &Seen, chance: u64) -> Reply {
    let cookie = request.field("cookie").unwrap_or_default();
    let owner = cookie
        .strip_suffix("=1")
        .filter(|name| *name != "_ga")
        .unwrap_or("everyone");
    let body = format!(
        "{}{} for {owner}",
        "-".repeat(chance as usize % 5000),
        request.target
    );
    let half = &body[..body.len() / 2];
    let announced = format!("Content-Length: {}", body.len());
    match (chance >> 32) % 16 {
        0 => Reply::hang_up(),
        1 => Reply::new(503).body("busy"),
        2 => Reply::new(200).with(&announced).send(half).close(),
        3 => Reply::new(200)
            .with("Transfer-Encoding: chunked")
            .chunk(half)
            .close(),
        4 => Reply::raw("garbage\r\n\r\n").close(),
        5 | 6 => Reply::ok(&["Set-Cookie: own=1"], format!("{body}, or for one")),
        7 => Reply::new(200).with("Cache-Control: private").body(body),
        8 => Reply::new(200).body(body).close(),
        9 | 10 => Reply::new(200)
            .with("Transfer-Encoding: chunked")
            .chunk(&body)
            .send("0\r\n\r\n"),
        _ => Reply::new(200).body(body),
    }
}

fn target(page: u64) -> String {
    format!("/page-{page}")
}

/// A number that looks like chance and is the same in every run.
fn scramble(seed: u64) -> u64 {
    let mut x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
