//! Applications that authenticate connections (NTLM, Negotiate): a connection that a user has signed in on is
//! used for no other client.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::support::{Client, Origin, Proxy, Reply, Response, request};

/// An application that signs connections in: three messages on one connection, and from then on every request
/// on it is alice's.
fn sign_in_at(origin: &Origin, targets: &[&'static str], fields: &'static [&'static str]) {
    for target in targets {
        let mut connections: HashMap<usize, bool> = HashMap::new();
        origin.on(target).answer(move |seen| {
            let known = connections.get(&seen.connection).copied();
            let refused = Reply::new(401);
            match (seen.field("authorization"), known) {
                (Some("NTLM one"), _) => {
                    connections.insert(seen.connection, false);
                    refused.with("WWW-Authenticate: NTLM two").body("go on")
                }
                (Some("NTLM three"), Some(false)) | (None, Some(true)) => {
                    connections.insert(seen.connection, true);
                    Reply::new(200).with_all(fields).body("hello, alice")
                }
                _ => refused
                    .with("WWW-Authenticate: Basic realm=\"a\", negotiate")
                    .with("WWW-Authenticate: NTLM")
                    .body("who are you?"),
            }
        });
    }
}

fn ask(client: &mut Client, target: &str, fields: &[&str]) -> Response {
    client.send(request("GET", target, fields));
    client.response()
}

fn sign_in(client: &mut Client, target: &str) -> Response {
    let challenge = ask(client, target, &["Authorization: NTLM one"]);
    challenge.assert_is(401, "go on");
    assert_eq!(challenge.field("www-authenticate"), Some("NTLM two"));
    ask(client, target, &["Authorization: NTLM three"])
}

#[test]
fn a_user_signs_in_and_no_other_client_acts_as_that_user() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--threads", "1"]);
    sign_in_at(&origin, &["/"], &["Cache-Control: max-age=1000"]);
    let stranger = || proxy.get("/").assert_is(401, "who are you?");
    let mut alice = proxy.connect();
    ask(&mut alice, "/", &[]).assert_is(401, "who are you?");
    // Others come in between, and each of the three messages still finds its connection.
    stranger();
    let challenge = ask(&mut alice, "/", &["authorization: NTLM one"]);
    challenge.assert_is(401, "go on");
    stranger();
    let welcome = ask(&mut alice, "/", &["Authorization: NTLM three"]);
    welcome.assert_is(200, "hello, alice");
    assert!(!welcome.cache().has("stored"), "{welcome:?}");
    stranger();
    // From now on no field says who it is.
    for _ in 0..3 {
        let page = ask(&mut alice, "/", &[]);
        page.assert_is(200, "hello, alice");
        assert!(!page.is_hit() && !page.cache().has("stored"), "{page:?}");
        assert_eq!(page.cache().get("detail"), Some("credentials"));
        stranger();
    }
    // Those of others who try the same meanwhile are theirs.
    let mut other = proxy.connect();
    ask(&mut other, "/", &["Authorization: NTLM three"]).assert_is(401, "who are you?");
    let seen = origin.seen("/");
    let her = seen
        .iter()
        .find(|seen| seen.field("authorization") == Some("NTLM one"))
        .expect("the first message")
        .connection;
    drop(alice);
    origin.wait_for_close(her);
    stranger();
}

#[test]
fn a_connection_with_a_sign_in_is_used_for_one_client() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--threads", "1"]);
    origin.on("/page").reply(Reply::new(200).body("page"));
    for (target, line) in [
        ("/ntlm", "WWW-Authenticate: NTLM"),
        (
            "/negotiate",
            "www-authenticate: Basic realm=\"a, b\", nEgOtIaTe",
        ),
        ("/proxy", "Proxy-Authenticate: NTLM"),
    ] {
        origin
            .on(target)
            .reply(Reply::new(401).with(line).body("no"));
        proxy.get(target).assert_is(401, "no");
        let connection = origin.seen(target)[0].connection;
        origin.wait_for_close(connection);
    }
    // Nor does one who signs in come on a connection that others have used, whatever the answer.
    proxy.get("/page").assert_is(200, "page");
    let used = origin.seen("/page")[0].connection;
    origin.on("/in").reply(Reply::new(200).body("in"));
    proxy
        .get_with(
            "/in",
            &["Authorization: Basic x", "Authorization: Negotiate x"],
        )
        .assert_is(200, "in");
    let connection = origin.seen("/in")[0].connection;
    assert_ne!(connection, used);
    origin.wait_for_close(connection);
}

#[test]
fn requests_of_a_signed_in_connection_use_no_other() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--threads", "1"]);
    sign_in_at(&origin, &["/"], &[]);
    origin.on("/lost").reply(Reply::hang_up());
    let mut alice = proxy.connect();
    sign_in(&mut alice, "/").assert_is(200, "hello, alice");
    let lost = ask(&mut alice, "/lost", &[]);
    assert_eq!(lost.status, 502, "{lost:?}");
    assert_eq!(origin.count("/lost"), 1, "a GET, and yet not sent again");
    // She is a stranger again, and can sign in again.
    ask(&mut alice, "/", &[]).assert_is(401, "who are you?");
    sign_in(&mut alice, "/").assert_is(200, "hello, alice");
}

#[test]
fn a_signed_in_client_shares_public_responses() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--threads", "1"]);
    sign_in_at(&origin, &["/"], &[]);
    let public = Reply::new(200).with("Cache-Control: public, max-age=1000");
    origin.on("/logo").reply(public.body("logo"));
    let mut alice = proxy.connect();
    sign_in(&mut alice, "/").assert_is(200, "hello, alice");
    ask(&mut alice, "/logo", &[]).assert_is(200, "logo");
    ask(&mut alice, "/logo", &[]).assert_hit();
    proxy.get("/logo").assert_hit();
    assert_eq!(origin.count("/logo"), 1);
}

#[test]
fn signed_in_connections_are_bounded() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--threads", "1", "--max-signed-in", "1"]);
    sign_in_at(&origin, &["/"], &[]);
    let mut alice = proxy.connect();
    sign_in(&mut alice, "/").assert_is(200, "hello, alice");
    let mut other = proxy.connect();
    sign_in(&mut other, "/").assert_is(401, "who are you?");
    ask(&mut alice, "/", &[]).assert_is(200, "hello, alice");
}

#[test]
fn one_address_leaves_signed_in_connections_to_others() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--threads", "1", "--max-signed-in", "4"]);
    sign_in_at(&origin, &["/"], &[]);
    let address = |last| IpAddr::from([127, 0, 0, last]);
    let signs_in = |client: &mut Client| sign_in(client, "/").status == 200;
    let mut greedy: Vec<_> = (0..4)
        .map(|_| Client::connect_from(address(2), proxy.address()))
        .collect();
    let signed_in: Vec<_> = greedy.iter_mut().map(signs_in).collect();
    assert_eq!(signed_in, [true, true, false, false]);
    let mut other = Client::connect_from(address(3), proxy.address());
    assert!(signs_in(&mut other));
    for client in &mut greedy[..2] {
        ask(client, "/", &[]).assert_is(200, "hello, alice");
    }
}
