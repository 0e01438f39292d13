//! One page for all users of a role, by a hash that the application gives for their cookie (`user_context`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::support::{ANY, Gate, Origin, Proxy, Reply, eventually};

const HASH: &str = "X-User-Context-Hash";
const PUBLIC: &str = "Cache-Control: public, max-age=100";
const ANN: [&str; 1] = ["Cookie: PHPSESSID=ann"];
const ANA: [&str; 1] = ["Cookie: PHPSESSID=ana"];
const BOB: [&str; 1] = ["Cookie: PHPSESSID=bob"];

/// An application with two editors and a reader.
struct Application {
    origin: Origin,
    proxy: Proxy,
    roles: Arc<Mutex<HashMap<String, &'static str>>>,
}

fn application() -> Application {
    let origin = Origin::start();
    let roles = [("ann", "editor"), ("ana", "editor"), ("bob", "reader")];
    let roles = roles.map(|(user, role)| (format!("PHPSESSID={user}"), role));
    let roles = Arc::new(Mutex::new(HashMap::from(roles)));
    let known = Arc::clone(&roles);
    origin.on("/hash").answer(move |seen| {
        let cookie = seen.field("cookie").unwrap_or_default().to_owned();
        match known.lock().unwrap().get(&cookie) {
            Some(role) => Reply::new(200).with(&format!("{HASH}: {role}")).body(""),
            None => Reply::new(403).body(""),
        }
    });
    origin.on(ANY).answer(|seen| {
        let hash = seen
            .field("x-user-context-hash")
            .unwrap_or("none")
            .to_owned();
        let cookie = seen.field("cookie").unwrap_or("none");
        let body = format!("{hash}, asked by {cookie}");
        let control = match &*seen.target {
            "/private" => "Cache-Control: private",
            "/silent" => "X-Nothing: said",
            _ => PUBLIC,
        };
        Reply::new(200)
            .with(control)
            .with(&format!("Vary: {HASH}"))
            .body(body)
    });
    let proxy = Proxy::with_config(&format!(
        "origin = \"{}\"\nuser_context = {{ url = \"/hash\", cookies = [\"PHPSESSID\"], ttl = \"100s\" }}\n",
        origin.url()
    ));
    Application {
        origin,
        proxy,
        roles,
    }
}

#[test]
fn users_of_a_role_share_a_page_and_others_do_not() {
    let Application { origin, proxy, .. } = application();
    proxy
        .get_with("/", &ANN)
        .assert_is(200, "editor, asked by PHPSESSID=ann");
    let second = proxy.get_with("/", &ANA);
    second.assert_is(200, "editor, asked by PHPSESSID=ann");
    second.assert_hit();
    // A cache behind this one does not know the role.
    let control = second.field("cache-control");
    assert!(control.is_some_and(|it| it.contains("private") && !it.contains("public")));
    proxy
        .get_with("/", &BOB)
        .assert_is(200, "reader, asked by PHPSESSID=bob");
    proxy.get("/").assert_is(200, "none, asked by none");
    for (fields, expected) in [(&ANN[..], "editor"), (&BOB, "reader"), (&[], "none")] {
        let again = proxy.get_with("/", fields);
        again.assert_hit();
        assert!(again.text().starts_with(expected), "{again:?}");
    }
    let asked = origin.seen("/hash");
    assert_eq!(asked.len(), 3, "one for each session, none without");
    assert_eq!(
        asked[0].field("accept"),
        Some("application/vnd.fos.user-context-hash")
    );
    assert_eq!(asked[0].field("cookie"), Some("PHPSESSID=ann"));
    // The hash is the session's, whatever other cookies there are.
    let more = proxy.get_with("/", &["Cookie: theme=dark; PHPSESSID=ana"]);
    more.assert_hit();
    assert_eq!(origin.count("/hash"), 3);
}

#[test]
fn a_clients_own_hash_never_counts() {
    let Application { origin, proxy, .. } = application();
    proxy.get_with("/", &ANN);
    for name in [HASH, "x-user-context-hash", "X_User_Context_Hash"] {
        let forged = format!("{name}: editor");
        let none = proxy.get_with("/", &[&forged]);
        none.assert_is(200, "none, asked by none");
        let own = proxy.get_with("/", &[&forged, BOB[0]]);
        own.assert_is(200, "reader, asked by PHPSESSID=bob");
        proxy.send("POST", "/", &[&forged, BOB[0]]);
    }
    let posts = origin
        .requests()
        .into_iter()
        .filter(|seen| seen.method == "POST");
    for seen in posts {
        let names = ["x-user-context-hash", "x_user_context_hash"];
        assert!(
            names.iter().all(|name| seen.field(name).is_none()),
            "{:?}",
            seen.head
        );
    }
}

#[test]
fn what_does_not_permit_sharing_stays_one_users() {
    let Application { origin, proxy, .. } = application();
    for target in ["/private", "/silent"] {
        for (fields, user) in [(ANN, "ann"), (ANA, "ana"), (ANN, "ann")] {
            let own = proxy.get_with(target, &fields);
            own.assert_is(200, &format!("editor, asked by PHPSESSID={user}"));
        }
        assert_eq!(origin.count(target), 3, "{target}");
    }
}

#[test]
fn without_a_hash_the_request_passes() {
    let Application { origin, proxy, .. } = application();
    proxy.get_with("/", &ANN);
    for fields in [
        "Cookie: PHPSESSID=eve",
        "Cookie: PHPSESSID=\"a; PHPSESSID=ann\"",
        "Authorization: Basic a",
    ] {
        for _ in 0..2 {
            let passed = proxy.get_with("/", &[fields]);
            passed.assert_forwarded("bypass");
            assert_eq!(passed.cache().get("detail"), Some("user-context"));
            assert!(passed.text().starts_with("none, asked by"), "{passed:?}");
        }
    }
    // A cookie that is not the application's session says nothing about a role.
    let other = proxy.get_with("/", &["Cookie: theme=dark"]);
    other.assert_is(200, "none, asked by theme=dark");
    assert_eq!(origin.seen("/").len(), 8);
}

#[test]
fn an_unsafe_request_ends_what_was_known_about_its_cookie() {
    let Application {
        origin,
        proxy,
        roles,
    } = application();
    proxy
        .get_with("/page", &ANN)
        .assert_is(200, "editor, asked by PHPSESSID=ann");
    roles
        .lock()
        .unwrap()
        .insert("PHPSESSID=ann".to_owned(), "reader");
    proxy
        .get_with("/page", &ANN)
        .assert_is(200, "editor, asked by PHPSESSID=ann");
    proxy.send("POST", "/login", &BOB);
    proxy.get_with("/page", &ANN).assert_hit();
    assert_eq!(
        origin.count("/hash"),
        1,
        "another user's request ends nothing"
    );
    proxy.send("POST", "/login", &ANN);
    proxy
        .get_with("/page", &ANN)
        .assert_is(200, "reader, asked by PHPSESSID=ann");
    assert_eq!(origin.count("/hash"), 2);
}

#[test]
fn a_hash_that_was_asked_for_before_an_unsafe_request_is_not_kept() {
    let origin = Origin::start();
    let gate = Gate::default();
    let hash = |role: &str| Reply::new(200).with(&format!("{HASH}: {role}")).body("");
    let (held, mut asked) = (gate.clone(), 0);
    origin.on("/hash").answer(move |_| {
        asked += 1;
        if asked == 1 {
            hash("old").after(&held)
        } else {
            hash("new")
        }
    });
    origin.on(ANY).answer(|seen| {
        let hash = seen
            .field("x-user-context-hash")
            .unwrap_or("none")
            .to_owned();
        Reply::ok(&[PUBLIC], hash)
    });
    let proxy = Proxy::with_config(&format!(
        "origin = \"{}\"\nuser_context = {{ url = \"/hash\", cookies = [\"PHPSESSID\"] }}\n",
        origin.url()
    ));
    let mut early = proxy.ask_with("/", &ANN);
    origin.wait_for("/hash", 1);
    proxy.send("POST", "/login", &ANN);
    gate.open();
    early.response().assert_is(200, "old");
    proxy.get_with("/", &ANN).assert_is(200, "new");
}

#[test]
fn users_of_a_role_wait_for_one_fetch_and_others_for_none() {
    let Application { origin, proxy, .. } = application();
    let gate = Gate::default();
    for fields in [&ANN[..], &ANA, &BOB] {
        proxy.get_with("/warm", fields);
    }
    let held = gate.clone();
    origin.on("/slow").answer(move |seen| {
        let hash = seen
            .field("x-user-context-hash")
            .unwrap_or("none")
            .to_owned();
        let reply = Reply::ok(&[PUBLIC, &format!("Vary: {HASH}")], &hash);
        if hash == "editor" {
            reply.after(&held)
        } else {
            reply
        }
    });
    let mut waiting: Vec<_> = (0..10)
        .map(|number| proxy.ask_with("/slow", if number % 2 == 0 { &ANN } else { &ANA }))
        .collect();
    origin.wait_for("/slow", 1);
    proxy.get_with("/slow", &BOB).assert_is(200, "reader");
    proxy.settle();
    gate.open();
    for client in &mut waiting {
        client.response().assert_is(200, "editor");
    }
    eventually("two fetches", || (origin.count("/slow") == 2).then_some(()));
    assert!(
        origin
            .seen("/slow")
            .iter()
            .all(|seen| seen.field("cookie").is_some())
    );
}
