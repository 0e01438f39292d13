//! The same pages through Varnish and through Microcache: `cases.txt` says what both give, or why they differ.
//!
//! The ideas are those of Varnish's own tests of ESI; the cases are ours. A case has a page, and then an expected text:
//!
//! ```text
//! # A name
//! ask: HEAD                           a method, if it is not GET, and a field after it
//! <p><esi:include src="/f/1"/></p>    the page; `\n` is the end of a line, `\x` a kilobyte
//! both: 200 <p>[1]</p> /f/1           or `varnish:`, `here:` and `because:`: status, body, and the fragments that were asked for
//! ```

use std::fmt::Write as _;

use super::*;
use crate::site_guides::comparison::Server;
use crate::site_guides::original::Original;
use crate::support::request;

const VCL: &str = "vcl 4.1; backend default { .host = \"127.0.0.1\"; .port = \"{origin}\"; }
    sub vcl_backend_response { set beresp.do_esi = true; set beresp.ttl = 0s; set beresp.uncacheable = true; }";

/// A page, and what becomes of it.
struct Case<'a> {
    name: &'a str,
    method: &'a str,
    field: &'a str,
    page: String,
    varnish: &'a str,
    here: &'a str,
}

impl<'a> Case<'a> {
    fn read(text: &'a str) -> Self {
        let mut lines = text.lines().filter(|line| !line.is_empty());
        let name = lines.next().expect("a name");
        let mut case = Self {
            name,
            method: "GET",
            field: "X-Test: 1",
            page: String::new(),
            varnish: "",
            here: "",
        };
        for line in lines {
            match line.split_once(": ") {
                Some(("ask", asked)) => {
                    let (method, field) = asked.split_once(' ').unwrap_or((asked, case.field));
                    (case.method, case.field) = (method, field);
                }
                Some(("both", text)) => (case.varnish, case.here) = (text, text),
                Some(("varnish", text)) => case.varnish = text,
                Some(("here", text)) => case.here = text,
                Some(("because", _)) => {}
                _ => case.page = line.replace("\\n", "\n").replace("\\x", &"x".repeat(1024)),
            }
        }
        case
    }
}

/// The fragments of all cases.
fn origin() -> Origin {
    let origin = Origin::start();
    let nested = format!("({})", tag("/f/1"));
    for (target, status, body) in [
        ("/f/1", 200, "[1]"),
        ("/f/2", 200, "[2]"),
        ("/f/a?b=1&c=2", 200, "[query]"),
        ("/f/empty", 200, ""),
        ("/f/none", 404, "[none]"),
        ("/f/error", 500, "[error]"),
        ("/f/moved", 302, "[moved]"),
        ("/f/nested", 200, &nested),
        ("/f/open", 200, "<esi:remove>[open]"),
    ] {
        let reply = Reply::new(status).with_all(&[HTML, PERSONAL]).body(body);
        origin.on(target).reply(reply);
    }
    for at in 0..9 {
        let body = format!("<{at}>{}", tag(&format!("/f/deep/{}", at + 1)));
        let reply = Reply::ok(&[HTML, PERSONAL], body);
        origin.on(&format!("/f/deep/{at}")).reply(reply);
    }
    origin
}

/// Status and body of a page, and the fragments that were asked for.
fn outcome(
    origin: &Origin,
    address: std::net::SocketAddr,
    case: &Case<'_>,
    target: &str,
) -> String {
    let before = origin.requests().len();
    let mut client = Client::connect(address);
    let fields = [case.field, "Content-Length: 0", "Cookie: a=b"];
    client.send(request(case.method, target, &fields));
    let response = if case.method == "HEAD" {
        client.try_response_to_head()
    } else {
        client.try_response()
    };
    let Ok(response) = response else {
        return "broken off".to_owned();
    };
    let text = response.text().replace('\n', "\\n");
    let text = text.replace(&"x".repeat(1024), "\\x");
    let mut outcome = format!("{} {text}", response.status);
    let requests = origin.requests().split_off(before);
    let mut fragments: Vec<_> = requests
        .iter()
        .filter(|seen| seen.target.starts_with("/f/"))
        .map(|seen| &*seen.target)
        .collect();
    fragments.sort_unstable();
    for fragment in fragments {
        write!(outcome, " {fragment}").expect("memory");
    }
    outcome.trim_end().to_owned()
}

#[test]
fn pages_are_those_that_varnish_makes() {
    let origin = origin();
    let text = include_str!("cases.txt");
    let cases: Vec<_> = text.split("\n# ").skip(1).map(Case::read).collect();
    let proxy = proxy(&origin, "[[routes]]\nedge = \"always\"");
    let port = origin.address().port().to_string();
    let varnish = Original::start(Server::Varnish, &VCL.replace("{origin}", &port));
    let mut failures = String::new();
    for (at, case) in cases.iter().enumerate() {
        let target = format!("/case/{at}");
        origin
            .on(&target)
            .reply(Reply::ok(&[HTML, PERSONAL], &case.page));
        let here = outcome(&origin, proxy.address(), case, &target);
        let there = varnish
            .as_ref()
            .map(|it| outcome(&origin, it.address(), case, &target));
        let there = there.unwrap_or_else(|| case.varnish.to_owned());
        if (&*here, &*there) != (case.here, case.varnish) {
            let name = case.name;
            writeln!(failures, "# {name}\nvarnish: {there}\nhere: {here}").expect("memory");
        }
    }
    assert!(failures.is_empty(), "these gave:\n{failures}");
}
