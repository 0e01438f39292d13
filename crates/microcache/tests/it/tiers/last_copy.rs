//! A copy that lies behind memory alone is there when the origin fails.

use super::{disk_in, end};
use crate::support::{Folder, Origin, Proxy, Reply, TierKind, TierServer, eventually};

/// Fields of a response that is stale when it comes, and may be used for a day if the origin fails.
const OVERDUE: [&str; 3] = [
    "Cache-Control: public, max-age=10",
    "Age: 20",
    "ETag: \"a\"",
];
const NO_WINDOW: [&str; 2] = ["--stale-while-revalidate", "0s"];

/// The origin's end, and after that nothing but the copy.
fn failures() -> [(&'static str, Option<Reply>); 4] {
    [
        ("gone", None),
        ("garbage", Some(Reply::raw("garbage\r\n\r\n"))),
        ("hang-up", Some(Reply::hang_up())),
        ("503", Some(Reply::new(503).body("broken"))),
    ]
}

/// Has a page stored by a process that then ends, and the origin fail from then on.
fn stored_before(origin: &Origin, flags: &[&str], body: &str, failure: Option<&Reply>) {
    let page = Reply::new(200).with_all(&OVERDUE).body(body);
    let script = origin.on("/page").reply(page);
    if let Some(failure) = failure {
        script.reply(failure.clone());
    }
    let proxy = Proxy::start(origin, &[flags, &NO_WINDOW].concat());
    proxy.get("/page").assert_is(200, body);
    end(proxy);
    if failure.is_none() {
        origin.stop();
    }
}

fn check(tier: &[&str], flags: &[&str], request: &[&str], body: &str) {
    for (name, failure) in failures() {
        let origin = Origin::start();
        stored_before(&origin, tier, body, failure.as_ref());
        let proxy = Proxy::start(&origin, &[tier, &NO_WINDOW, flags].concat());
        for _ in 0..2 {
            let response = proxy.get_with("/page", request);
            assert_eq!(response.status, 200, "{name}: {response:?}");
            assert_eq!(response.text(), body, "{name}");
        }
        end(proxy);
    }
}

#[test]
fn a_restart_changes_nothing() {
    for kind in TierKind::ALL {
        let server = TierServer::start(kind);
        let [flag, address] = server.flags();
        check(&[&flag, &address], &[], &[], "page");
    }
    let folder = Folder::absent();
    check(&["--disk", &disk_in(&folder)], &[], &[], "page");
}

#[test]
fn a_copy_too_large_for_this_processs_memory_is_used() {
    let body = "x".repeat(200 * 1024);
    for kind in TierKind::ALL {
        let server = TierServer::start(kind);
        let [flag, address] = server.flags();
        check(&[&flag, &address], &["--memory", "1MiB"], &[], &body);
    }
}

#[test]
fn a_request_without_coalescing_gets_it_too() {
    let folder = Folder::absent();
    let server = TierServer::start(TierKind::Memcached);
    let [flag, address] = server.flags();
    for tier in [["--disk", &*disk_in(&folder)], [&*flag, &*address]] {
        check(&tier, &["--collapse", "false"], &[], "page");
        check(&tier, &[], &["Cookie: a=b"], "page");
        check(&tier, &[], &["Authorization: Basic eDp5"], "page");
    }
}

#[test]
fn a_personal_response_is_not_given_to_requests_without_coalescing() {
    let (origin, folder) = (Origin::start(), Folder::absent());
    let page = ["Cache-Control: max-age=10", "Age: 20", "ETag: \"a\""];
    origin
        .on("/page")
        .reply(Reply::new(200).with_all(&page).body("page"));
    let disk = disk_in(&folder);
    let flags = [&["--disk", &*disk][..], &NO_WINDOW].concat();
    let proxy = Proxy::start(&origin, &flags);
    proxy.get("/page").assert_is(200, "page");
    end(proxy);
    origin.stop();
    let proxy = Proxy::start(&origin, &flags);
    assert_eq!(proxy.get_with("/page", &["Cookie: a=b"]).status, 502);
    assert_eq!(proxy.get("/page").text(), "page");
}

#[test]
fn a_newer_copy_of_another_process_stands_in_for_ones_own() {
    for kind in TierKind::ALL {
        let (origin, server) = (Origin::start(), TierServer::start(kind));
        let [flag, address] = server.flags();
        let flags = [&[&*flag, &*address][..], &NO_WINDOW].concat();
        let not_for_errors = "Cache-Control: max-age=10, stale-if-error=0";
        let page = Reply::new(200).with_all(&[not_for_errors, "Age: 20", "ETag: \"a\""]);
        origin.on("/page").reply(page.body("one"));
        let [first, second] = [(); 2].map(|()| Proxy::start(&origin, &flags));
        first.get("/page").assert_is(200, "one");
        let renewed = Reply::new(200).with_all(&OVERDUE).body("two");
        origin.on("/page").reply(renewed);
        eventually("another process to have the newer one", || {
            (second.get("/page").text() == "two").then_some(())
        });
        end(second);
        origin.stop();
        first.get("/page").assert_is(200, "two");
    }
}
