//! Authentication, and its servers.

use super::{mistakes, read};

#[test]
fn authentication_is_checked() {
    let check_top = |line: &str, says: &str| {
        let report = mistakes(&format!("origin = \"http://a\"\n{line}"));
        assert!(report.contains(says), "{line}: {report}");
    };
    check_top(
        "basic_auth = { realm = \"a\" }",
        "`basic_auth` has no `file`",
    );
    check_top("allow = []", "allow = \"all\" to admit every client");
    check_top("deny = \"any\"", "write an address such as");
    check_top("basic_auth = \"on\"", "expected a table");
    check_top(
        "basic_auth = { file = \"a\", realm = \"a\\\"b\" }",
        "use ASCII without quotes",
    );
    check_top("forward_auth = {}", "`forward_auth` has no `url`");
    check_top(
        "forward_auth = { url = \"127.0.0.1\" }",
        "write http://127.0.0.1",
    );
    check_top(
        "forward_auth = { url = \"http://127.0.0.1:8080/verify\" }",
        "is Microcache itself",
    );
    check_top(
        "forward_auth = { url = \"http://b/\", copy_headers = \"Cookie\" }",
        "one client's identity",
    );
    check_top(
        "forward_auth = { url = \"http://b/\", copy_headers = \"X-A\" }\nrequest_headers = { set = { x-a = \"b\" } }",
        "is set by `request_headers` and by `forward_auth`",
    );
    check_top(
        "forward_auth = { url = \"http://b/\" }\nbasic_auth = { file = \"a\" }",
        "exclude each other",
    );
}

#[test]
fn servers_of_authentication_are_groups_of_their_own() {
    let config = read(
        r#"
        origin = "http://a"
        forward_auth = { url = "http://b:9091/verify", session_cookie = "sid_*" }
        push = "/live/"
        [[routes]]
        match = { path = "/a" }
        forward_auth = { url = "http://b:9091/other", timeout = "1s" }
        [[routes]]
        match = { path = "/b" }
        forward_auth = { url = "http://b:9091/third" }
        [[routes]]
        match = { path = "/c" }
        basic_auth = { file = "users" }
        [[routes]]
        match = { path = "/d" }
        forward_auth = "off"
        "#,
    );
    let names: Vec<_> = config.upstreams.iter().map(|group| &*group.name).collect();
    assert_eq!(names, ["origin", "auth b:9091", "auth b:9091 2"]);
    let groups = config
        .routes
        .iter()
        .map(|route| route.forward_auth.as_ref());
    let groups: Vec<_> = groups
        .map(|auth| auth.map(super::super::ForwardAuth::group))
        .collect();
    let (first, second) = (Some(1), Some(2));
    assert_eq!(
        groups,
        [first, first, first, first, second, first, None, None, first]
    );
    assert_eq!(config.settings.upstreams.len(), 1);
    let default = config.routes.last().expect("a route");
    assert!(default.rules.request.removed_cookies.matches(b"sid_1"));
    assert_eq!(default.rules.key.route.as_deref(), Some("default"));
}
