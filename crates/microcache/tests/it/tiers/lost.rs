//! A tier that is slow, gone or another program: requests go on from the origin.

use super::servers::babbling;
use super::{PATIENT, assert_found, end, lasting, refused, tier_of};
use crate::support::{Origin, Proxy, TierKind, TierServer, eventually, noise};

fn pages(origin: &Origin, number: usize) {
    for page in 0..number {
        origin
            .on(&format!("/{page}"))
            .reply(lasting(format!("page {page}")));
    }
}

fn check(proxy: &Proxy, page: usize) {
    proxy
        .get(&format!("/{page}"))
        .assert_is(200, &format!("page {page}"));
}

/// Asks for one page after the other in one process, until a second one finds it in the tier.
fn assert_used_again(origin: &Origin, proxy: &Proxy, kind: TierKind, flags: &[&str]) {
    let mut page = 100;
    eventually("the tier to be used again", || {
        page += 1;
        let target = format!("/again/{page}");
        origin.on(&target).reply(lasting("again"));
        proxy.get(&target).assert_is(200, "again");
        let other = Proxy::start(origin, flags);
        let response = other.get(&target);
        response.assert_is(200, "again");
        (tier_of(&response).as_deref() == Some(kind.name())).then_some(())
    });
}

#[test]
fn a_frozen_server_delays_no_request_and_is_used_again_later() {
    for kind in TierKind::ALL {
        let (origin, server) = (Origin::start(), TierServer::start(kind));
        pages(&origin, 50);
        let [flag, address] = server.flags();
        let flags = [&*flag, &*address];
        let proxy = Proxy::start(&origin, &flags);
        check(&proxy, 0);
        server.freeze();
        for page in 1..50 {
            check(&proxy, page);
            proxy.get("/0").assert_hit();
        }
        assert_eq!(origin.requests().len(), 50);
        server.thaw();
        assert_used_again(&origin, &proxy, kind, &flags);
    }
}

#[test]
fn the_state_of_a_tier_is_reported() {
    for kind in TierKind::ALL {
        let (origin, mut server) = (Origin::start(), TierServer::start(kind));
        pages(&origin, 10);
        let [flag, address] = server.flags();
        let mut proxy = Proxy::start(&origin, &[&flag, &address]);
        let name = kind.name();
        let says = |proxy: &Proxy, what: &str| {
            eventually(what, || proxy.output().contains(what).then_some(()));
        };
        says(&proxy, &format!("tiers   {name}, 1 server"));
        check(&proxy, 0);
        server.kill();
        let mut page = 1;
        eventually("trouble to be told", || {
            page += 1;
            let target = format!("/other/{page}");
            origin.on(&target).reply(lasting("other"));
            proxy.get(&target).assert_is(200, "other");
            let reported = format!("microcache: {name}: 127.0.0.1");
            proxy.output().contains(&reported).then_some(())
        });
        server.restart();
        says(&proxy, &format!("microcache: {name}: in service again"));
        proxy.terminate();
        assert!(proxy.wait().success());
        says(&proxy, &format!("  {name}: 0 hits, "));
        assert!(
            !proxy.output().contains("redis://"),
            "it may hold a password"
        );
    }
}

#[test]
fn a_server_that_dies_is_done_without_and_used_again_when_it_is_back() {
    for kind in TierKind::ALL {
        let (origin, mut server) = (Origin::start(), TierServer::start(kind));
        pages(&origin, 20);
        let [flag, address] = server.flags();
        let flags = [&*flag, &*address];
        let proxy = Proxy::start(&origin, &flags);
        check(&proxy, 0);
        server.kill();
        for page in 0..20 {
            check(&proxy, page);
        }
        server.restart();
        assert_used_again(&origin, &proxy, kind, &flags);
    }
}

#[test]
fn a_server_that_is_down_at_the_start_is_used_when_it_is_there() {
    for kind in TierKind::ALL {
        let (origin, mut server) = (Origin::start(), TierServer::start(kind));
        pages(&origin, 3);
        server.kill();
        let [flag, address] = server.flags();
        let flags = [&*flag, &*address];
        let proxy = Proxy::start(&origin, &flags);
        for page in 0..3 {
            check(&proxy, page);
        }
        server.restart();
        assert_used_again(&origin, &proxy, kind, &flags);
    }
}

#[test]
fn an_unresolvable_tier_is_skipped_or_refused_at_the_start() {
    let origin = Origin::start();
    pages(&origin, 5);
    let proxy = Proxy::start(&origin, &["--memcached", "nowhere.invalid:11211"]);
    for page in 0..5 {
        check(&proxy, page);
        check(&proxy, page);
    }
    assert_eq!(origin.requests().len(), 5);
    end(proxy);

    let (reported, code) = refused(&origin, &["--redis", "redis://nowhere.invalid:6379"]);
    assert_eq!(code, Some(1));
    assert!(
        reported.contains("cannot resolve nowhere.invalid"),
        "{reported}"
    );
}

#[test]
fn a_server_of_another_protocol_is_bypassed_or_reported() {
    let (origin, address) = (Origin::start(), babbling());
    pages(&origin, 5);
    let proxy = Proxy::start(&origin, &["--memcached", &address.to_string()]);
    for page in 0..5 {
        check(&proxy, page);
        check(&proxy, page);
    }
    assert_eq!(origin.requests().len(), 5);

    let (reported, code) = refused(&origin, &["--redis", &format!("redis://{address}")]);
    assert_eq!(code, Some(1));
    assert!(reported.contains(&address.to_string()), "{reported}");
}

#[test]
fn a_wrong_password_is_reported_at_the_start() {
    let origin = Origin::start();
    origin.on("/page").reply(lasting("one"));
    let server = TierServer::start_with(TierKind::Redis, &["--requirepass", "right"]);
    let with = |password: &str| server.address().replace("//", &format!("//:{password}@"));
    for url in [server.address(), with("wrong")] {
        let (reported, code) = refused(&origin, &["--redis", &url]);
        assert_eq!(code, Some(1));
        assert!(reported.starts_with("microcache: redis: "), "{reported}");
        assert!(
            !reported.contains("wrong@"),
            "a password is nobody's business: {reported}"
        );
    }
    let flags = ["--redis", &with("right")];
    let proxy = Proxy::start(&origin, &flags);
    proxy.get("/page").assert_is(200, "one");
    let other = Proxy::start(&origin, &flags);
    assert_found(&other.get("/page"), "redis", b"one");
}

#[test]
fn of_a_pool_only_the_pages_of_the_lost_server_are_fetched_anew() {
    const PAGES: usize = 60;
    let origin = Origin::start();
    pages(&origin, PAGES);
    let mut servers = [(); 3].map(|()| TierServer::start(TierKind::Memcached));
    let flags = servers.each_ref().map(TierServer::flags).concat();
    let flags: Vec<&str> = flags.iter().map(|flag| &**flag).collect();
    let proxy = Proxy::start(&origin, &flags);
    for page in 0..PAGES {
        check(&proxy, page);
    }
    end(proxy);
    // A process that begins while the log of purges is lost uses nothing that was stored before.
    let lost = servers.iter().position(|server| !server.has("mcl1"));
    servers[lost.expect("one has the log")].kill();
    let proxy = Proxy::start(&origin, &flags);
    for page in 0..PAGES {
        check(&proxy, page);
    }
    let anew = origin.requests().len() - PAGES;
    assert!((1..PAGES * 2 / 3).contains(&anew), "{anew} of {PAGES}");
}

#[test]
fn bodies_larger_than_an_item_are_shared() {
    for kind in TierKind::ALL {
        let (origin, server) = (Origin::start(), TierServer::start(kind));
        let body = noise(3_500_000, 11);
        origin.on("/page").reply(lasting(&body));
        let [flag, address] = server.flags();
        let flags = [&[&*flag, &*address][..], PATIENT].concat();
        // On a busy machine the first process may give up a write, which another one makes then.
        let response = eventually("a second process to find it", || {
            let proxy = Proxy::start(&origin, &flags);
            let response = proxy.get("/page");
            assert!(response.body == body);
            end(proxy);
            response.is_hit().then_some(response)
        });
        assert_found(&response, kind.name(), &body);
    }
}
