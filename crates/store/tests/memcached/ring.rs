//! Ring compatibility with libmemcached clients.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

use microcache_store::memcached::{ApplicationPages, MemcachedSettings, ServerAddress, value};
use microcache_store::tier::ApplicationPage;
use microcache_store::{SharedTier, Tier};
use microcache_testkit::TierServer;

use crate::pool::{LONG, Pool, address_of, entry, id, patient};

/// Weighted libmemcached through its Python client: each side finds the items of the other, including pages
/// for nginx's memcached module.
#[tokio::test]
async fn other_clients_use_the_same_ring() {
    const KEYS: usize = 200;
    let nodes = [(); 4].map(|()| TierServer::memcached());
    for weights in [[1, 1, 1, 1], [600, 300, 200, 1000]] {
        let addresses: Vec<ServerAddress> = nodes
            .iter()
            .zip(weights)
            .map(|(node, weight)| ServerAddress {
                weight,
                ..address_of(node)
            })
            .collect();
        let settings = MemcachedSettings {
            pages: Some(ApplicationPages {
                key: "app:$uri?$args".parse().unwrap(),
                default_type: "text/html".to_owned(),
            }),
            ..patient()
        };
        let pool = Pool::at(addresses.clone(), settings);
        let mut expected = BTreeMap::new();
        for number in 0..KEYS {
            let body = format!("body {number}");
            pool.put(id(number), entry(b"", body.as_bytes()), LONG, None)
                .await
                .unwrap();
            expected.insert(format!("mc1:{}", id(number)), body);
        }
        let servers = addresses.iter().map(|one| format!("{one}:{}", one.weight));
        let found = libmemcached(&servers.collect::<Vec<_>>(), expected.keys());
        let whole = |body: &String| [&value::whole(b"")[..], body.as_bytes()].concat();
        let lengths: Vec<String> = expected
            .values()
            .map(|body| whole(body).len().to_string())
            .collect();
        assert_eq!(found, lengths, "what we keep, they find");
        for number in 0..KEYS {
            let target = format!("/page/{number}?a=b%20c");
            let page = page(&pool, &target).await.expect("a page");
            assert_eq!(page.body, format!("page {number}"));
            assert_eq!(page.content_type, "text/html");
        }
        let serialised = page(&pool, "/serialised").await;
        assert_eq!(serialised, None, "flags say it is no body");
        assert_eq!(page(&pool, "/nothing").await, None);
    }
}

async fn page(pool: &Pool, target: &str) -> Option<ApplicationPage> {
    let requested = pool.page(b"example.com", target.as_bytes());
    requested.expect("pages are looked for").await.unwrap()
}

/// Prints the length of each value found, and stores pages for nginx.
const SCRIPT: &str = r#"
import sys, pylibmc
client = pylibmc.Client(sys.argv[1].split(","), behaviors={"ketama_weighted": True})
for key in sys.stdin.read().split():
    value = client.get(key)
    print(len(value) if value is not None else "missing " + key)
for number in range(200):
    client.set("app:/page/%d?a=b%%2520c" % number, b"page %d" % number)
client.set("app:/serialised?", {"not": "a body"})
"#;

fn libmemcached<'a>(servers: &[String], keys: impl Iterator<Item = &'a String>) -> Vec<String> {
    // Debian's Python modules require Debian's interpreter.
    let pythons = ["python3", "/usr/bin/python3"];
    let has_it = |python: &&str| {
        let import = Command::new(python).args(["-c", "import pylibmc"]).output();
        import.is_ok_and(|output| output.status.success())
    };
    let python = pythons.iter().find(|python| has_it(python));
    let python =
        python.expect("Python's client of libmemcached: install the package python3-pylibmc");
    let mut child = Command::new(python)
        .args(["-c", SCRIPT, &servers.join(",")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Python runs");
    let keys: Vec<&str> = keys.map(String::as_str).collect();
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin
        .write_all(keys.join("\n").as_bytes())
        .expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().map(str::to_owned).collect()
}
