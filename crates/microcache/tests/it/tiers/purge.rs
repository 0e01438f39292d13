//! What an unsafe request takes away stays away, wherever it lay.

use super::servers::LOG_ITEMS;
use super::{assert_found, disk_in, end, lasting};
use crate::support::{Folder, Gate, Origin, Proxy, Reply, TierKind, TierServer, eventually};

/// A page that a POST changes from `one` to `two`.
fn changing(origin: &Origin) {
    let mut posted = false;
    origin.on("/page").answer(move |seen| {
        posted |= seen.method == "POST";
        match &*seen.method {
            "POST" => Reply::new(204),
            _ => lasting(if posted { "two" } else { "one" }),
        }
    });
}

fn post(proxy: &Proxy) {
    let response =
        proxy.request("POST /page HTTP/1.1\r\nHost: example.com\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(response.status, 204);
}

#[test]
fn a_post_takes_a_page_from_memory_and_from_every_tier() {
    for kind in TierKind::ALL {
        let (origin, folder, server) = (Origin::start(), Folder::absent(), TierServer::start(kind));
        let (disk, [flag, address]) = (disk_in(&folder), server.flags());
        changing(&origin);
        let proxy = Proxy::start(&origin, &["--disk", &disk, &flag, &address]);
        proxy.get("/page").assert_is(200, "one");
        proxy.get("/page").assert_hit();
        post(&proxy);
        let after = proxy.get("/page");
        after.assert_is(200, "two");
        after.assert_forwarded("uri-miss");
        end(proxy);
        for tier in [["--disk", &disk], [&*flag, &*address]] {
            let proxy = Proxy::start(&origin, &tier);
            proxy.get("/page").assert_is(200, "two");
        }
    }
}

#[test]
fn purged_entries_are_not_on_disk_after_a_restart() {
    let (origin, folder) = (Origin::start(), Folder::absent());
    changing(&origin);
    let flags = ["--disk", &disk_in(&folder)];
    let proxy = Proxy::start(&origin, &flags);
    proxy.get("/page").assert_is(200, "one");
    end(proxy);
    // It is on disk now, and in no memory.
    let proxy = Proxy::start(&origin, &flags);
    post(&proxy);
    end(proxy);
    let proxy = Proxy::start(&origin, &flags);
    let after = proxy.get("/page");
    after.assert_is(200, "two");
    assert!(!after.is_hit());
}

#[test]
fn purged_entries_are_not_on_disk_after_a_kill() {
    let (origin, folder) = (Origin::start(), Folder::absent());
    changing(&origin);
    let flags = ["--disk", &disk_in(&folder)];
    let proxy = Proxy::start(&origin, &flags);
    proxy.get("/page").assert_is(200, "one");
    end(proxy);
    let proxy = Proxy::start(&origin, &flags);
    post(&proxy);
    drop(proxy);
    let proxy = Proxy::start(&origin, &flags);
    proxy.get("/page").assert_is(200, "two");
}

#[test]
fn a_variant_that_was_purged_is_found_nowhere() {
    for kind in TierKind::ALL {
        let (origin, folder, server) = (Origin::start(), Folder::absent(), TierServer::start(kind));
        let mut posted = false;
        origin.on("/page").answer(move |seen| {
            posted |= seen.method == "POST";
            let body = format!("{}{posted}", seen.field("user-agent").unwrap_or(""));
            Reply::ok(&["Cache-Control: max-age=1000", "Vary: User-Agent"], body)
        });
        let [flag, address] = server.flags();
        let flags = [&*flag, &*address, "--disk", &disk_in(&folder)];
        let proxy = Proxy::start(&origin, &flags);
        let ask = |proxy: &Proxy, language: &str| {
            proxy.get_with("/page", &[&format!("User-Agent: {language}")])
        };
        ask(&proxy, "en").assert_is(200, "enfalse");
        ask(&proxy, "de").assert_is(200, "defalse");
        let post =
            proxy.request("POST /page HTTP/1.1\r\nHost: example.com\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(post.status, 200);
        ask(&proxy, "en").assert_is(200, "entrue");
        ask(&proxy, "de").assert_is(200, "detrue");
        end(proxy);
        let proxy = Proxy::start(&origin, &flags);
        ask(&proxy, "de").assert_is(200, "detrue");
        ask(&proxy, "en").assert_is(200, "entrue");
    }
}

#[test]
fn a_tier_that_missed_a_purge_does_not_bring_the_page_back() {
    for kind in TierKind::ALL {
        let (origin, server) = (Origin::start(), TierServer::start(kind));
        // What is there after the purge is too old at once, so that the tier is asked every time.
        let mut posted = false;
        origin.on("/page").answer(move |seen| {
            posted |= seen.method == "POST";
            match (&*seen.method, posted) {
                ("POST", _) => Reply::new(204),
                (_, false) => lasting("one"),
                (_, true) => Reply::new(200).with("Cache-Control: max-age=0").body("two"),
            }
        });
        let [flag, address] = server.flags();
        let flags = [&*flag, &*address, "--stale-while-revalidate", "0s"];
        let proxy = Proxy::start(&origin, &flags);
        proxy.get("/page").assert_is(200, "one");
        let other = Proxy::start(&origin, &flags);
        assert_found(&other.get("/page"), kind.name(), b"one");
        drop(other);

        server.freeze();
        post(&proxy);
        for _ in 0..5 {
            proxy.get("/page").assert_is(200, "two");
        }
        server.thaw();
        for _ in 0..20 {
            proxy.get("/page").assert_is(200, "two");
        }
        // The removal comes later, but it comes.
        eventually("the page to leave the tier", || {
            let other = Proxy::start(&origin, &flags);
            let response = other.get("/page");
            proxy.get("/page").assert_is(200, "two");
            (response.text() == "two").then_some(())
        });
    }
}

/// A page whose first answer is held back until the gate opens; `two` from then on.
fn held_back(origin: &Origin, gate: &Gate) {
    let (mut gets, gate) = (0, gate.clone());
    origin.on("/page").answer(move |seen| {
        if seen.method == "POST" {
            return Reply::new(204);
        }
        gets += 1;
        match gets {
            1 => lasting("one").after(&gate),
            _ => lasting("two"),
        }
    });
}

#[test]
fn a_fill_that_began_before_a_purge_is_stored_in_no_tier() {
    for kind in TierKind::ALL {
        let (origin, folder, server) = (Origin::start(), Folder::absent(), TierServer::start(kind));
        let (disk, [flag, address]) = (disk_in(&folder), server.flags());
        let gate = Gate::default();
        held_back(&origin, &gate);
        let proxy = Proxy::start(&origin, &["--disk", &disk, &flag, &address]);
        let mut client = proxy.ask("/page");
        origin.wait_for("/page", 1);
        post(&proxy);
        gate.open();
        client.response().assert_is(200, "one");
        end(proxy);
        for tier in [["--disk", &disk], [&*flag, &*address]] {
            let proxy = Proxy::start(&origin, &tier);
            proxy.get("/page").assert_is(200, "two");
        }
    }
}

#[test]
fn a_large_fill_that_began_before_a_purge_is_not_on_disk() {
    let (origin, folder, gate) = (Origin::start(), Folder::absent(), Gate::default());
    let (half, mut gets) = ("x".repeat(400_000), 0);
    let (opened, whole) = (gate.clone(), half.repeat(2));
    let expected = whole.clone();
    origin.on("/page").answer(move |seen| {
        if seen.method == "POST" {
            return Reply::new(204);
        }
        gets += 1;
        let reply =
            Reply::new(200).with_all(&["Cache-Control: max-age=1000", "Content-Length: 800000"]);
        match gets {
            1 => reply.send(&half).pause(&opened).send(&half),
            _ => reply.send(whole.to_uppercase()),
        }
    });
    let flags = ["--memory", "1MiB", "--disk", &disk_in(&folder)];
    let proxy = Proxy::start(&origin, &flags);
    let mut client = proxy.ask("/page");
    client.head();
    post(&proxy);
    gate.open();
    assert!(client.bytes(800_000) == expected.as_bytes());
    end(proxy);
    let proxy = Proxy::start(&origin, &flags);
    assert!(proxy.get("/page").text() == expected.to_uppercase());
}

#[test]
fn a_purge_by_another_process_keeps_a_fill_out_of_the_tier() {
    for kind in TierKind::ALL {
        let (origin, server, gate) = (Origin::start(), TierServer::start(kind), Gate::default());
        held_back(&origin, &gate);
        let [flag, address] = server.flags();
        let flags = [&*flag, &*address];
        let filling = Proxy::start(&origin, &flags);
        let purging = Proxy::start(&origin, &flags);
        let mut client = filling.ask("/page");
        origin.wait_for("/page", 1);
        post(&purging);
        // What is asked for after the purge is in the tier once the purge is.
        let after = purging.get("/page");
        after.assert_is(200, "two");
        gate.open();
        client.response().assert_is(200, "one");
        end(filling);
        let third = Proxy::start(&origin, &flags);
        third.get("/page").assert_is(200, "two");
        assert_eq!(third.get("/page").text(), "two", "{kind:?}");
    }
}

/// The purge takes away what says which variants there are, and what is fetched after it says so anew.
#[test]
fn a_purge_by_another_process_keeps_the_fill_of_a_variant_out_of_the_tier() {
    for (kind, others_ask) in TierKind::ALL
        .into_iter()
        .flat_map(|kind| [(kind, false), (kind, true)])
    {
        let (origin, server, gate) = (Origin::start(), TierServer::start(kind), Gate::default());
        let (mut posted, held) = (false, gate.clone());
        origin.on("/page").answer(move |seen| {
            posted |= seen.method == "POST";
            let language = seen.field("user-agent").unwrap_or("").to_owned();
            let reply = Reply::ok(
                &["Cache-Control: max-age=1000", "Vary: User-Agent"],
                format!("{language} {posted}"),
            );
            match (&*language, posted) {
                ("en", false) => reply.after(&held),
                _ => reply,
            }
        });
        let ask = |proxy: &Proxy, language: &str| {
            proxy.ask_with("/page", &[&format!("User-Agent: {language}")])
        };
        let [flag, address] = server.flags();
        let flags = [&*flag, &*address];
        let filling = Proxy::start(&origin, &flags);
        ask(&filling, "de").response().assert_is(200, "de false");
        let purging = Proxy::start(&origin, &flags);
        assert_found(
            &ask(&purging, "de").response(),
            kind.name(),
            "de false".as_bytes(),
        );
        let mut client = ask(&filling, "en");
        origin.wait_for("/page", 2);
        let posted = purging
            .request("POST /page HTTP/1.1\r\nHost: example.com\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(posted.status, 200);
        if others_ask {
            ask(&purging, "de").response().assert_is(200, "de true");
        }
        gate.open();
        client.response().assert_is(200, "en false");
        end(filling);
        let third = Proxy::start(&origin, &flags);
        ask(&third, "en").response().assert_is(200, "en true");
        ask(&third, "de").response().assert_is(200, "de true");
    }
}

#[test]
fn a_purge_by_another_process_reaches_the_tier() {
    for kind in TierKind::ALL {
        let (origin, server) = (Origin::start(), TierServer::start(kind));
        changing(&origin);
        let [flag, address] = server.flags();
        let flags = [&*flag, &*address];
        let one = Proxy::start(&origin, &flags);
        one.get("/page").assert_is(200, "one");
        end(one);
        let other = Proxy::start(&origin, &flags);
        post(&other);
        end(other);
        let third = Proxy::start(&origin, &flags);
        third.get("/page").assert_is(200, "two");
    }
}

#[test]
fn after_a_purge_the_next_answer_is_shared_again() {
    for kind in [TierKind::Memcached, TierKind::Redis] {
        let (origin, server) = (Origin::start(), TierServer::start(kind));
        changing(&origin);
        let [flag, address] = server.flags();
        let flags = [&*flag, &*address];
        let one = Proxy::start(&origin, &flags);
        one.get("/page").assert_is(200, "one");
        post(&one);
        one.get("/page").assert_is(200, "two");
        end(one);
        let other = Proxy::start(&origin, &flags);
        assert_found(&other.get("/page"), kind.name(), b"two");
    }
}

#[test]
fn a_page_that_becomes_private_leaves_every_tier() {
    for kind in TierKind::ALL {
        let (origin, folder, server) = (Origin::start(), Folder::absent(), TierServer::start(kind));
        let (disk, [flag, address]) = (disk_in(&folder), server.flags());
        let public = Reply::new(200).with("Cache-Control: max-age=1, stale-if-error=1000");
        origin
            .on("/page")
            .reply(public.body("for all"))
            .reply(Reply::new(200).with("Cache-Control: private").body("mine"))
            .reply(Reply::new(503).body("down"));
        let flags = [
            "--disk",
            &disk,
            &flag,
            &address,
            "--stale-while-revalidate",
            "0s",
        ];
        let proxy = Proxy::start(&origin, &flags);
        proxy.get("/page").assert_is(200, "for all");
        end(proxy);
        let proxy = Proxy::start(&origin, &flags);
        eventually("the private answer", || {
            (proxy.get("/page").text() == "mine").then_some(())
        });
        end(proxy);
        // What is there for the case that the origin fails would be the page for all.
        let proxy = Proxy::start(&origin, &flags);
        proxy.get("/page").assert_is(503, "down");
    }
}

#[test]
fn entries_never_stored_are_not_removed() {
    const PAGES: usize = 50;
    let (origin, server) = (Origin::start(), TierServer::start(TierKind::Memcached));
    let [flag, address] = server.flags();
    let proxy = Proxy::start(&origin, &[&flag, &address, "--memcached-timeout", "5s"]);
    for page in 0..PAGES {
        let target = format!("/{page}");
        let private = Reply::new(200).with("Cache-Control: private");
        origin.on(&target).reply(private.body("mine"));
        proxy.get(&target).assert_is(200, "mine");
    }
    end(proxy);
    // Each claim was replaced by the word that its page cannot be stored, and that is all.
    assert_eq!(server.statistic("delete_hits"), 0);
    assert_eq!(server.statistic("delete_misses"), 0);
    assert_eq!(server.statistic("curr_items"), LOG_ITEMS + PAGES);
}

/// The origin confirms one variant, and says in the same breath that it is not to be shared.
#[test]
fn a_variant_that_becomes_private_leaves_the_disk_and_the_others_stay() {
    let (origin, folder) = (Origin::start(), Folder::absent());
    origin.on("/page").answer(|seen| {
        if seen.field("if-none-match").is_some() {
            return Reply::new(304).with("Cache-Control: private");
        }
        let language = seen.field("x-lang").unwrap_or("-").to_owned();
        let lifetime = if language == "en" { 0 } else { 1000 };
        Reply::new(200)
            .with(&format!("Cache-Control: max-age={lifetime}"))
            .with("Vary: X-Lang")
            .with("ETag: \"a\"")
            .body(language)
    });
    let flags = ["--disk", &disk_in(&folder)];
    let proxy = Proxy::start(&origin, &flags);
    for language in ["en", "de"] {
        let field = format!("X-Lang: {language}");
        proxy.get_with("/page", &[&field]).assert_is(200, language);
    }
    end(proxy);
    let proxy = Proxy::start(&origin, &flags);
    let confirmed = proxy.get_with("/page", &["X-Lang: en"]);
    confirmed.assert_is(200, "en");
    assert_eq!(confirmed.cache().get("fwd-status"), Some("304"));
    assert!(!confirmed.cache().has("stored"), "{confirmed:?}");
    end(proxy);
    let requested = origin.count("/page");
    let proxy = Proxy::start(&origin, &flags);
    assert_found(&proxy.get_with("/page", &["X-Lang: de"]), "disk", b"de");
    proxy
        .get_with("/page", &["X-Lang: en"])
        .assert_is(200, "en");
    let last = &origin.seen("/page")[requested];
    assert_eq!(last.field("if-none-match"), None, "the copy is gone");
}
