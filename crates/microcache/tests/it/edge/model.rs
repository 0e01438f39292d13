//! Many visitors at once, some of whom leave: nothing of one reaches another.

use std::io::Read;
use std::sync::Arc;
use std::thread;

use serde_json::json;

use super::*;
use crate::operators::Operator;
use crate::support::{config_file, request};

const VISITORS: usize = 8;
const ROUNDS: usize = 120;

/// A cookie that is itself a tag, which fragments show.
fn cookie(visitor: usize) -> String {
    format!("session=v{visitor}<esi:include src=/f/passed />")
}

#[test]
fn nothing_of_one_visitor_reaches_another() {
    let origin = Origin::start();
    let routes = "threads = 2\n\
        [[routes]]\nmatch = { path = \"/f/kept\" }\nkey = { cookies = [\"session\"] }\nttl = \"50ms\"\n\
        [[routes]]\nmatch = { path = \"/known\" }\nignore_cookies = [\"session\"]\n\
        [[routes]]\n";
    let file = config_file(&config(&origin, routes));
    let name = file.display().to_string();
    let (proxy, admin) = Proxy::operated(&origin, &["--config", &name]);
    show_cookie(&origin, "/f/passed", &[HTML, PERSONAL]);
    show_cookie(&origin, "/f/kept", &[HTML, "Cache-Tag: kept"]);
    show_cookie(&origin, "/f/silent", &[HTML]);
    show_cookie(&origin, "/f/varies", &[HTML, SHARED, "Vary: Cookie"]);
    origin.on("/f/shared").answer(|_| shared("(shared)"));
    let nested = format!("<{}{}>", tag("/f/kept"), tag("/f/shared"));
    origin.on("/f/nested").answer(move |_| page(&nested));
    let tags = [
        "passed", "kept", "silent", "shared", "varies", "nested", "none",
    ]
    .map(|name| name.to_owned() + &tag(&format!("/f/{name}")))
    .concat();
    for target in ["/", "/known", "/short", "/account"] {
        let body = tags.clone();
        origin.on(target).answer(move |seen| {
            let lifetime = match target {
                "/account" => PERSONAL,
                "/short" => "Cache-Control: public, s-maxage=0",
                _ => SHARED,
            };
            let greeting = if target == "/account" {
                shown(seen)
            } else {
                String::new()
            };
            let fields = [HTML, ANNOUNCED, lifetime, "Cache-Tag: page"];
            Reply::ok(&fields, greeting + &body)
        });
    }
    proxy.get("/");
    let proxy = Arc::new(proxy);
    let threads: Vec<_> = (0..VISITORS)
        .map(|visitor| {
            let proxy = Arc::clone(&proxy);
            thread::spawn(move || visit(&proxy, visitor))
        })
        .collect();
    let operator = Operator::at(admin);
    for round in 0.. {
        if threads.iter().all(thread::JoinHandle::is_finished) {
            break;
        }
        let name = if round % 2 == 0 { "kept" } else { "page" };
        operator.purge(&json!({"tag": name}));
    }
    let whole: usize = threads
        .into_iter()
        .map(|it| it.join().expect("no panic"))
        .sum();
    assert!(whole > VISITORS * ROUNDS / 2, "{whole} pages were complete");
}

/// Asks for pages, and checks whose cookies they show. Returns the number of pages that were not cancelled.
fn visit(proxy: &Proxy, visitor: usize) -> usize {
    let field = format!("Cookie: {}", cookie(visitor));
    let mut random = visitor as u64 + 1;
    let mut whole = 0;
    for _ in 0..ROUNDS {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let target = ["/", "/known", "/short", "/account", "/f/nested"][random as usize % 5];
        let method = if random.is_multiple_of(11) {
            "POST"
        } else {
            "GET"
        };
        let mut client = proxy.connect();
        client.send(request(method, target, &[&field, "Content-Length: 0"]));
        match random >> 32 & 7 {
            0 => client.reset(),
            1 => {
                let mut some = [0; 64];
                let read = client.stream().read(&mut some).unwrap_or(0);
                assert!(read > 0, "a response begins");
                client.reset();
            }
            _ => {
                let response = client.response();
                assert_eq!(response.status, 200, "{response:?}");
                let text = response.text();
                for other in (0..VISITORS).filter(|it| *it != visitor) {
                    let stranger = format!("session=v{other}<");
                    assert!(!text.contains(&stranger), "{target} of {visitor}: {text}");
                }
                let own = format!("[{}]", cookie(visitor));
                assert!(text.contains(&own), "{target} of {visitor}: {text}");
                assert!(!text.contains("[-]"), "{target} of {visitor}: {text}");
                let lifetime = response.field("cache-control").unwrap_or_default();
                assert!(
                    lifetime.contains("private"),
                    "{target}: {:?}",
                    response.head
                );
                whole += 1;
            }
        }
    }
    whole
}
