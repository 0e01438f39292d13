//! Claims of a process that stores nothing: because it must not, because no tier accepts the record, or
//! because it does not know that it has them. Others do not wait for their end, which is a minute away.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::lasting;
use crate::support::{Gate, Origin, Proxy, Reply, TierKind, TierServer, listen, noise};

/// A way to a server that breaks once: after a claim has been made, before its answer is through.
struct Break {
    address: SocketAddr,
    is_armed: Arc<AtomicBool>,
}

impl Break {
    fn before(server: &TierServer) -> Self {
        let is_armed = Arc::new(AtomicBool::new(false));
        let (armed, port) = (Arc::clone(&is_armed), server.port());
        let claims = match server.kind() {
            TierKind::Memcached => &b" c f t N"[..],
            TierKind::Redis => b"EVALSHA",
        };
        let address = listen(move |client| {
            let server = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it listens");
            let way = Way {
                client,
                server,
                has_claimed: AtomicBool::new(false),
            };
            let (way, armed) = (Arc::new(way), Arc::clone(&armed));
            let back = Arc::clone(&way);
            thread::spawn(move || way.there(&armed, claims));
            thread::spawn(move || back.back());
        });
        Self { address, is_armed }
    }

    fn arm(&self) {
        self.is_armed.store(true, Ordering::SeqCst);
    }

    fn has_broken(&self) -> bool {
        !self.is_armed.load(Ordering::SeqCst)
    }
}

struct Way {
    client: TcpStream,
    server: TcpStream,
    has_claimed: AtomicBool,
}

impl Way {
    fn there(&self, armed: &AtomicBool, claims: &[u8]) {
        let mut piece = [0; 16_384];
        while let Ok(length @ 1..) = (&self.client).read(&mut piece) {
            let sent = &piece[..length];
            let has_claim = sent.windows(claims.len()).any(|part| part == claims);
            if has_claim && armed.swap(false, Ordering::SeqCst) {
                self.has_claimed.store(true, Ordering::SeqCst);
            }
            if (&self.server).write_all(sent).is_err() {
                break;
            }
        }
        self.close();
    }

    fn back(&self) {
        let mut piece = [0; 16_384];
        while let Ok(length @ 1..) = (&self.server).read(&mut piece) {
            if self.has_claimed.load(Ordering::SeqCst)
                || (&self.client).write_all(&piece[..length]).is_err()
            {
                break;
            }
        }
        self.close();
    }

    fn close(&self) {
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

fn start(origin: &Origin, flag: &str, address: &str, more: &[&str]) -> Proxy {
    let own = [flag, address, "--claim-timeout", "60s"];
    Proxy::start(origin, &[&own, more].concat())
}

/// Two processes: of the first one, it is asked what becomes of its claims.
fn two(origin: &Origin, server: &TierServer, more: &[&str]) -> (Proxy, Proxy) {
    let [flag, address] = server.flags();
    let begin = || start(origin, &flag, &address, more);
    (begin(), begin())
}

#[test]
fn a_claim_with_a_lost_reply_is_released() {
    for kind in TierKind::ALL {
        let (origin, server) = (Origin::start(), TierServer::start(kind));
        let way = Break::before(&server);
        let [flag, address] = server.flags();
        let through = address.replace(&server.port().to_string(), &way.address.port().to_string());
        let time_limit = ["--memcached-timeout", "2s", "--redis-timeout", "2s"];
        let one = start(&origin, &flag, &through, &time_limit);
        let other = start(&origin, &flag, &address, &time_limit);
        // What is there on both ways, so that the next claim is all that is sent.
        origin.on("/warm").reply(lasting("warm"));
        one.get("/warm").assert_is(200, "warm");
        other.get("/warm").assert_is(200, "warm");

        origin.on("/page").reply(lasting("page"));
        way.arm();
        one.get("/page").assert_is(200, "page");
        assert!(way.has_broken(), "{kind:?}");
        other.get("/page").assert_is(200, "page");
        assert_eq!(origin.count("/page"), 2, "{kind:?}");
    }
}

#[test]
fn a_claim_that_could_not_be_given_back_is_given_back_later() {
    for kind in TierKind::ALL {
        let (origin, server, gate) = (Origin::start(), TierServer::start(kind), Gate::default());
        let failure = Reply::new(503).body("busy");
        origin
            .on("/page")
            .reply(failure.after(&gate))
            .reply(lasting("page"));
        let (one, other) = two(&origin, &server, &[]);
        let mut client = one.ask("/page");
        origin.wait_for("/page", 1);
        server.freeze();
        // When the claim is to be given back, the server is out of service already.
        for page in 0..5 {
            let target = format!("/other/{page}");
            origin.on(&target).reply(lasting("other"));
            one.get(&target).assert_is(200, "other");
        }
        gate.open();
        client.response().assert_is(503, "busy");
        server.thaw();
        other.get("/page").assert_is(200, "page");
        assert_eq!(origin.count("/page"), 2, "{kind:?}");
    }
}

#[test]
fn a_failing_or_personal_response_is_not_waited_for() {
    for kind in TierKind::ALL {
        let (origin, server) = (Origin::start(), TierServer::start(kind));
        let private = Reply::new(200).with("Cache-Control: private");
        let (one, other) = two(&origin, &server, &[]);
        let cut = Reply::new(200).with("Content-Length: 9").send("cut");
        for (target, first) in [
            ("/private", private.body("mine")),
            ("/failing", Reply::new(503).body("busy")),
            ("/garbled", Reply::raw("no HTTP\r\n\r\n").close()),
            ("/cut", cut.close()),
        ] {
            origin.on(target).reply(first).reply(lasting("page"));
            // What it gets is another test's matter.
            let first = one.ask(target).try_response();
            assert!(first.is_err() || first.is_ok_and(|first| first.text() != "page"));
            let page = other.get(target);
            page.assert_is(200, "page");
            assert_eq!(origin.count(target), 2, "{target} with {kind:?}");
        }
    }
}

#[test]
fn records_that_no_tier_accepts_are_not_waited_for() {
    for kind in TierKind::ALL {
        let (origin, server) = (Origin::start(), TierServer::start(kind));
        let body = noise(20_000, 5);
        origin.on("/page").reply(lasting(&body));
        let small = [
            "--memcached-max-object",
            "1KiB",
            "--redis-max-object",
            "1KiB",
        ];
        let (one, other) = two(&origin, &server, &small);
        for proxy in [&one, &other] {
            assert!(proxy.get("/page").body == body);
        }
        assert_eq!(origin.count("/page"), 2, "{kind:?}");
    }
}

#[test]
fn a_body_that_outgrows_memory_is_not_waited_for() {
    for kind in TierKind::ALL {
        let (origin, server, gate) = (Origin::start(), TierServer::start(kind), Gate::default());
        let body = noise(1_000_000, 6);
        let chunk = |part: &[u8]| {
            let length = format!("{:x}\r\n", part.len());
            [length.as_bytes(), part, b"\r\n"].concat()
        };
        let slow = Reply::new(200)
            .with_all(&["Cache-Control: max-age=1000", "Transfer-Encoding: chunked"])
            .send(chunk(&body[..500_000]))
            .pause(&gate)
            .send(chunk(&body[500_000..]))
            .send("0\r\n\r\n");
        origin.on("/page").reply(slow).reply(lasting(&body));
        let (one, other) = two(&origin, &server, &["--memory", "1MiB"]);
        let mut client = one.ask("/page");
        origin.wait_for("/page", 1);
        assert!(other.get("/page").body == body, "{kind:?}");
        gate.open();
        assert!(client.response().body == body);
    }
}
