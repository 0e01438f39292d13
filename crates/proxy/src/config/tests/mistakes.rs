//! Reports of mistakes.

use super::super::*;
use super::{FILE, check, read};

#[test]
fn an_option_in_the_wrong_table_is_reported_with_the_right_one() {
    check(
        "[[routes]]\nmatch = { path = \"/a\", ttl = \"1s\" }\nkey = { pass = true, query = { name = \"x\" } }",
        &[
            "2:24: unknown option `ttl`",
            "= it belongs to the route: next to `match`, not inside it",
            "3:9: unknown option `pass`",
            "= it belongs to the route: next to `key`, not inside it",
            "3:32: unknown option `name`",
            "= it belongs to the route: next to `key`, not inside it",
        ],
    );
    check(
        "[[routes]]\npath = \"/a\"\ncookies = \"a\"",
        &[
            "2:1: unknown option `path`",
            "= it belongs inside `match`: match = { path = [\"/blog/*\", \"*.css\"] }",
            "3:1: unknown option `cookies`",
            "= it belongs inside `key`: key = { cookies = [\"currency\"] }",
        ],
    );
}

#[test]
fn names_and_authorities_that_cannot_be_used_are_refused() {
    check(
        "acme = [\"*.a.example\", \"b\u{fc}cher.example\", \"a_b\", \"http://a\", \"a.example\", \"A.example\"]\n\
         acme_email = \"me\"\nacme_directory = \"http://ca.example/dir\"\nacme_storage = \"acme\"\nacme_profile = \"a b\"",
        &[
            "1:9: cannot use \"*.a.example\"",
            "= wildcard certificates need a DNS challenge, which is not supported: list each host, or configure a certificate from elsewhere as `tls`",
            "1:24: cannot use \"b\u{fc}cher.example\"",
            "= write it in ASCII, as in DNS (`xn--…`)",
            "1:42: cannot use \"a_b\"",
            "= write a host name, such as example.org",
            "1:49: cannot use \"http://a\"",
            "= write a host name, such as example.org",
            "1:74: a.example is listed twice",
            "2:14: cannot use \"me\"",
            "= write one mail address, such as me@example.org",
            "3:18: cannot use \"http://ca.example/dir\"",
            "= write the https URL of its directory, such as https://acme-v02.api.letsencrypt.org/directory",
            "4:16: cannot use \"acme\"",
            "= write an absolute path",
            "5:16: cannot use \"a b\"",
            "= write the name of a profile, such as shortlived",
        ],
    );
    check(
        "acme_email = \"me@a.example\"",
        &[
            "1:14: `acme_email` has no effect without `acme`",
            "= add acme = \"HOST\", or remove it",
        ],
    );
}

#[test]
fn the_report_shows_the_line_and_a_caret() {
    let text =
        "origin = \"http://a\"\r\n\tttl = \"1 sec\" # ä\nthreads = [\n  1,\n]\n\"größe\" = 1\n";
    let report = Config::read(Input {
        file: Some((FILE, text)),
        ..Input::default()
    });
    assert_eq!(
        report.unwrap_err().to_string(),
        "microcache.toml:2:8: expected a number and a unit, such as \"500ms\", \"1s\", \"10m\", \"1d\", found \"1 sec\"
  |
2 | \tttl = \"1 sec\" # ä
  | \t      ^^^^^^^
microcache.toml:3:11: expected a number from 1 to 1024, found a list
  |
3 | threads = [
  |           ^
microcache.toml:6:1: unknown option `größe`
  |
6 | \"größe\" = 1
  | ^^^^^^^
  = `microcache config --reference` lists all options"
    );
}

#[test]
fn unknown_names() {
    check(
        "memroy = \"1GB\"",
        &["1:1: unknown option `memroy`", "= did you mean `memory`?"],
    );
    check(
        "stale-if-error = \"1d\"",
        &[
            "1:1: unknown option `stale-if-error`",
            "= did you mean `stale_if_error`?",
        ],
    );
    check(
        "key = { header = [\"a\"] }",
        &["1:9: unknown option `header`", "= did you mean `headers`?"],
    );
    check(
        "key = { colour = 1 }",
        &[
            "1:9: unknown option `colour`",
            "= options here: query, headers, cookies",
        ],
    );
    check(
        "[[routes]]\nmatch = { path = \"/a\" }\nlisten = \"127.0.0.1:1\"",
        &[
            "3:1: unknown option `listen`",
            "= it belongs at the top of the file, above the first [table]",
        ],
    );
    check(
        "[upstreams.a]\nservers = [{ url = \"http://a\", wieght = 2 }]",
        &["2:32: unknown option `wieght`", "= did you mean `weight`?"],
    );
}

#[test]
fn impossible_values() {
    check(
        "threads = 0",
        &["1:11: expected a number from 1 to 1024, found 0"],
    );
    check(
        "threads = -1",
        &["1:11: expected a number from 1 to 1024, found -1"],
    );
    check(
        "threads = 1.5",
        &["1:11: expected a number from 1 to 1024, found 1.5"],
    );
    check(
        "threads = \"2\"",
        &["1:11: expected a number from 1 to 1024, found \"2\""],
    );
    check(
        "ttl = 1",
        &["1:7: expected a number and a unit, such as \"500ms\", \"1s\", \"10m\", \"1d\", found 1"],
    );
    check(
        "ttl = \"400d\"",
        &["1:7: expected a duration from 0s to 365d, found \"400d\""],
    );
    check(
        "connect_timeout = \"0s\"",
        &["1:19: expected a duration from 1ms to 1d, found \"0s\""],
    );
    check(
        "memory = \"1KB\"",
        &["1:10: expected a size from 1MiB to 16384GiB, found \"1KB\""],
    );
    check(
        "memory = \"64M\"",
        &["1:10: expected \"64MiB\" or \"64MB\", found \"64M\""],
    );
    check(
        "memory = 1979-05-27",
        &[
            "1:10: expected a number and a unit, such as \"512KiB\", \"64MiB\", \"1GB\", found a date",
        ],
    );
    check(
        "pass = \"yes\"",
        &["1:8: expected true or false, found \"yes\""],
    );
    check(
        "set_cookie = \"yes\"",
        &["1:14: expected one of \"refuse\", \"strip\", \"store\", found \"yes\""],
    );
    check(
        "heuristic = 101",
        &["1:13: expected a number from 0 to 100, found 101"],
    );
    check(
        "key = \"a\"",
        &["1:7: expected a table of names and values, such as { name = value }, found \"a\""],
    );
    check(
        "max_object = \"1GiB\"",
        &[
            "1:14: `max_object` is larger than a quarter of `memory`",
            "= increase `memory`, or lower `max_object`",
        ],
    );
    check(
        "compress = [\"gzip\", \"deflate\"]",
        &["1:21: expected one of \"zstd\", \"br\", \"gzip\", found \"deflate\""],
    );
    check(
        "compress_types = [\"text/html; charset=utf-8\", \"html\"]",
        &[
            "1:19: cannot use \"text/html; charset=utf-8\"",
            "= write a media type, such as \"text/html\" or \"text/*\"",
            "1:47: cannot use \"html\"",
            "= write a media type, such as \"text/html\" or \"text/*\"",
        ],
    );
    check(
        "dictionaries = true",
        &[
            "1:16: `dictionaries` has no effect without `compress`",
            "= add compress = [\"zstd\", \"br\", \"gzip\"], for browsers without a version yet",
        ],
    );
    check(
        "purge_path = \"/purge\"",
        &[
            "1:14: `purge_path` has no effect without `purge_from`",
            "= add purge_from = [\"127.0.0.1\"], the address of the application",
        ],
    );
    for path in [
        "/", "purge", "/purge/", "/purge*", "/p?", "/%70urge", "/p urge",
    ] {
        let what = format!("2:14: cannot use \"{path}\"");
        let remedy = "= write a path without a slash at its end, such as \"/purge\"";
        let text = format!("purge_from = \"127.0.0.1\"\npurge_path = \"{path}\"");
        check(&text, &[&what, remedy]);
    }
    check(
        "compress_min = \"1MiB\"\ncompress_max = \"1KiB\"",
        &[
            "1:16: `compress_min` is more than `compress_max`",
            "= nothing would be compressed",
        ],
    );
    check(
        "max_target_size = \"64KiB\"",
        &[
            "1:19: `max_target_size` is larger than `max_head_size`",
            "= the target is a part of the head: make it smaller",
        ],
    );
}

#[test]
fn impossible_tables() {
    check(
        "status_ttl = { 404 = \"1s\", 206 = \"1s\", x = \"1s\", 500 = 1 }",
        &[
            "1:28: `206` is not a status that can be stored",
            "= write one from 200 to 599, except 206 and 304",
            "1:40: `x` is not a status that can be stored",
            "= write one from 200 to 599, except 206 and 304",
            "1:56: expected a number and a unit, such as \"500ms\", \"1s\", \"10m\", \"1d\", found 1",
        ],
    );
    check(
        "health_check = { interval = \"1s\", timeout = \"5s\", expect = \"2xx\", path = \"x\" }",
        &[
            "1:45: `timeout` is longer than `interval`",
            "1:60: cannot use \"2xx\"",
            "= write one status or a range, such as \"200\" or \"200-399\"",
            "1:74: cannot use \"x\"",
            "= write a path, such as \"/healthz\"",
        ],
    );
    check(
        "key = { query = { ignore = [\"a\"], only = [\"b*c\"] } }",
        &[
            "1:17: `ignore` and `only` exclude each other",
            "= remove one of them",
            "1:43: cannot use \"b*c\"",
            "= a `*` is allowed at the end only",
        ],
    );
    check(
        "trusted_proxies = \"10/8\"",
        &[
            "1:19: cannot use \"10/8\"",
            "= write an address such as \"10.0.0.1\" or a block such as \"10.0.0.0/8\"",
        ],
    );
}

#[test]
fn listeners() {
    check("listen = []", &["1:10: no address to listen on"]);
    check(
        "listen = [\"127.0.0.1:1\", \"127.0.0.1:1\"]",
        &["1:26: 127.0.0.1:1 is listed twice"],
    );
    check("listen = [\"127.0.0.1:0\", \"127.0.0.1:0\"]", &[]);
    check(
        "listen = \"localhost:80\"",
        &["1:10: cannot use \"localhost:80\"", "= write 127.0.0.1:80"],
    );
    check(
        "listen = \"here\"",
        &[
            "1:10: cannot use \"here\"",
            "= write an IP address and a port, such as 127.0.0.1:8080 or [::1]:8080",
        ],
    );
}

#[test]
fn upstreams() {
    check(
        "[upstreams.a]\nservers = [\"ftp://a.b\", \"http://c\", \"http://c:80\", {weight=0}]",
        &[
            "2:12: cannot use \"ftp://a.b\"",
            "= an origin must be http://, https:// or fastcgi://",
            "2:37: c:80 is listed twice",
            "= remove one, or give it a weight",
            "2:52: a server without `url`",
            "2:60: expected a number from 1 to 1000, found 0",
        ],
    );
    check(
        "[upstreams.a]",
        &[
            "1:12: the group `a` has no `servers`",
            "= add servers = [\"http://HOST:PORT\"]",
        ],
    );
    check(
        "[upstreams.a]\nservers = []",
        &["2:11: no server", "= list at least one URL"],
    );
    check(
        "[upstreams.a]\nservers = [{url = \"http://a\", backup = true}]",
        &["2:11: every server is a backup: at least one must not be"],
    );
    check(
        "[upstreams.origin]\nservers = \"http://a\"",
        &[
            "1:12: the group `origin` is defined twice",
            "= `origin` defines a group of that name: rename this one",
        ],
    );
}

#[test]
fn faults_of_syntax_are_reported_beside_the_others() {
    check(
        "threads = 0\nttl = = 3\nmemory = \"x\nfoo\npass = 1\npass = true\n[[routes]",
        &[
            "1:11: expected a number from 1 to 1024, found 0",
            "2:7: extra `=`, expected nothing",
            "3:12: invalid basic string, expected `\"`",
            "4:4: key with no value, expected `=`",
            "5:8: expected true or false, found 1",
            "6:1: duplicate key",
            "7:10: unclosed array table, expected `]`",
        ],
    );
}

#[test]
fn any_text_is_read_without_panic() {
    for text in [
        "\u{feff}",
        "=",
        "[",
        "a",
        "\"",
        "'''",
        "a.b.c = 1\na.b = 2",
        "[[routes.x]]",
        "[upstreams]\na = 1",
        "\0",
        "é = 'ü",
    ] {
        let input = Input {
            file: Some((FILE, text)),
            ..Input::default()
        };
        assert!(Config::read(input).is_err(), "{text:?}");
    }
}

#[test]
fn options_without_effect_are_refused() {
    for (line, says) in [
        (
            "remove_headers = \"Host\"",
            "every request to the origin needs it",
        ),
        ("remove_headers = \"a*b\"", "at the end only"),
        ("keep_headers = \"*\"", "list the fields"),
        ("keep_headers = \"Accept\"", "it is forwarded anyway"),
        ("keep_headers = \"X-Forwarded-For\"", "trusted_proxies"),
        (
            "trusted_headers = \"X-Real-IP\"",
            "without `trusted_proxies`",
        ),
        ("trusted_headers = \"*\"", "list the fields"),
        ("trusted_headers = \"X-Forwarded-Host\"", "anyway"),
        ("trusted_headers = \"Accept\"", "is forwarded"),
        ("keep_headers = \"Connection\"", "Microcache writes it"),
        (
            "key = { headers = \"*\" }",
            "list those that pages depend on",
        ),
        ("key = { headers = \"cookie\" }", "cookies = [\"NAME\"]"),
        (
            "key = { headers = \"X-Forwarded-For\" }",
            "writes this field itself",
        ),
        ("key = { cookies = \"a*b\" }", "at the end only"),
        (
            "key = { query = { only = \"a\", forward = \"raw\" } }",
            "\"kept\", \"whole\"",
        ),
        ("bypass = \"cookie:*\"", "pass = true"),
        ("bypass = \"query:a*b\"", "at the end only"),
        (
            "remove_cookies = \"a*\"\nkey = { cookies = \"ab\" }",
            "removed by `remove_cookies`",
        ),
        (
            "remove_headers = \"x-a\"\nkey = { headers = \"X-A\" }",
            "removed by `remove_headers`",
        ),
    ] {
        let text = format!("origin = \"http://a\"\n{line}");
        let input = Input {
            file: Some((FILE, &text)),
            ..Input::default()
        };
        let report = Config::read(input).expect_err(line).to_string();
        assert!(report.contains(says), "{line}: {report}");
    }
}

fn warnings(text: &str) -> String {
    read(text).warnings.to_string()
}

#[test]
fn dangerous_options_are_warned_of_with_their_place() {
    let text = warnings("origin = \"http://a\"\nignore_cookies = [\"theme\", \"*\"]");
    assert_eq!(
        text.lines().next(),
        Some(
            "microcache.toml:2:28: warning: `*` ignores a cookie that identifies visitors, such as `PHPSESSID`"
        ),
        "{text}"
    );
    for harmless in [
        "ignore_cookies = [\"theme\", \"_ga*\", \"consent_*\", \"wordpress_test_cookie\"]",
        "remove_cookies = \"*\"",
        "set_cookie = \"strip\"",
        "trusted_proxies = [\"10.0.0.0/8\", \"::1\"]",
        "purge_from = [\"10.0.0.0/8\", \"::1\"]",
        "key = { cookies = \"*\" }",
    ] {
        assert_eq!(
            warnings(&format!("origin = \"http://a\"\n{harmless}")),
            "",
            "{harmless}"
        );
    }
    for dangerous in [
        "ignore_cookies = \"_*\"",
        "ignore_cookies = \"sess*\"",
        "ignore_cookies = \"JSESSIONID\"",
        "ignore_cookies = \"w*\"",
        "ignore_cookies = \"comment_author_*\"",
        "ignore_cookies = \"wp-postpass_*\"",
        "ignore_cookies = \"form_key\"",
        "set_cookie = \"store\"",
        "trusted_proxies = \"0.0.0.0/0\"",
        "trusted_proxies = \"::/0\"",
        "trusted_proxies = \"128.0.0.0/1\"",
        "trusted_proxies = \"2000::/3\"",
        "proxy_protocol = \"::/80\"",
        "purge_from = \"0.0.0.0/0\"",
        "forward_fields = \"X-Source\"",
    ] {
        let text = warnings(&format!("origin = \"http://a\"\n{dangerous}"));
        assert!(
            text.contains(":2:") && text.contains(": warning: "),
            "{text}"
        );
    }
}
