//! What the origin confirms keeps its body where processes share it.

use super::{assert_found, end};
use crate::support::{Origin, Proxy, Reply, TierKind, TierServer, noise};

/// Two pieces and more in memcached.
const LARGE: usize = 2_500_000;

/// How many bytes a server has been sent so far.
fn received(server: &TierServer) -> usize {
    match server.kind() {
        TierKind::Memcached => server.statistic("bytes_read"),
        TierKind::Redis => {
            let reported = server.say("INFO stats");
            let bytes = reported
                .lines()
                .find_map(|line| line.strip_prefix("total_net_input_bytes:"));
            bytes.expect("it counts").parse().expect("a number")
        }
    }
}

#[test]
fn a_large_body_that_is_confirmed_is_sent_neither_by_the_origin_nor_to_the_tier_again() {
    for kind in TierKind::ALL {
        let (origin, server) = (Origin::start(), TierServer::start(kind));
        let body = noise(LARGE, 31);
        let first = Reply::ok(&["Cache-Control: max-age=0", "ETag: \"a\""], &body);
        let confirmed = Reply::new(304).with_all(&[
            "Cache-Control: max-age=1000",
            "ETag: \"a\"",
            "X-Confirmed: yes",
        ]);
        origin.on("/large").reply(first).reply(confirmed);
        let [flag, address] = server.flags();
        let flags = [
            &*flag,
            &*address,
            "--memory",
            "64MiB",
            "--memcached-timeout",
            "5s",
            "--redis-timeout",
            "5s",
            "--stale-while-revalidate",
            "0s",
        ];
        let proxy = Proxy::start(&origin, &flags);
        assert!(proxy.get("/large").body == body);
        end(proxy);
        let before = received(&server);
        assert!(before > LARGE, "{kind:?}: it is there");

        let proxy = Proxy::start(&origin, &flags);
        let confirmed = proxy.get("/large");
        assert!(confirmed.body == body, "{kind:?}");
        assert_eq!(confirmed.cache().get("fwd-status"), Some("304"), "{kind:?}");
        end(proxy);
        let sent = received(&server) - before;
        assert!(sent < LARGE / 10, "{kind:?}: {sent} bytes for a head");

        let proxy = Proxy::start(&origin, &flags);
        let found = proxy.get("/large");
        assert_found(&found, kind.name(), &body);
        assert_eq!(found.field("x-confirmed"), Some("yes"), "{kind:?}");
        assert_eq!(origin.count("/large"), 2, "{kind:?}");
    }
}
