//! Options of one route, and of the tables inside it.

use std::path::PathBuf;

use http::Method;
use microcache_policy::Scheme;
use microcache_policy::rules::Rules;

use super::super::condition::{Condition, Part};
use super::super::matcher::Matcher;
use super::super::mistake::{Mistake, Mistakes};
use super::super::option::Form::{List, Switch, Table, Text};
use super::super::option::{Opt, opt, optional};
use super::super::pattern::{Glob, HostPattern};
use super::super::place::Place;
use super::super::raw::Value;
use super::super::route::{GoesTo, Route};
use super::names::{field_pattern, name_pattern};

/// A route before its upstream is looked up.
#[derive(Clone, Debug)]
pub(in crate::config) struct RouteDraft {
    pub(in crate::config) route: Route,
    /// The name of its upstream, and its place.
    pub(in crate::config) upstream: Option<(String, Place)>,
    /// The directory of static files.
    pub(in crate::config) root: Option<PathBuf>,
    /// The option with a response of the route itself, and that response.
    pub(in crate::config) answer: Option<(&'static str, GoesTo)>,
    pub(in crate::config) index: String,
    pub(in crate::config) precompressed: bool,
    pub(in crate::config) otherwise: Otherwise,
}

/// The answer where a directory has no such file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::config) enum Otherwise {
    /// 404.
    #[default]
    NotFound,
    /// That of the route's upstream group.
    Application,
}

impl RouteDraft {
    /// A route for everything.
    pub(in crate::config) fn new() -> Self {
        Self {
            route: Route::new(GoesTo::Upstream(0), Rules::default()),
            upstream: None,
            root: None,
            answer: None,
            index: String::new(),
            precompressed: false,
            otherwise: Otherwise::NotFound,
        }
    }

    /// Sets the response of the route itself.
    pub(super) fn set_answer(
        &mut self,
        name: &'static str,
        answer: GoesTo,
        value: &Value,
        mistakes: &mut Mistakes,
    ) {
        if let Some((other, _)) = self.answer.replace((name, answer)) {
            mistakes.note(exclusive(&value.place, name, other));
        }
    }
}

/// Returns the mistake of two options for one destination.
pub(in crate::config) fn exclusive(place: &Place, one: &str, other: &str) -> Mistake {
    let what = format!("`{one}` and `{other}` exclude each other");
    Mistake::new(place, what).remedy("remove one of them")
}

/// Options of routes only.
pub(in crate::config) const ROUTE: &[Opt<RouteDraft>] = &[
    optional(
        "match",
        Table("match conditions"),
        r#"{ host = "*.example.com", path = ["/blog/*", "*.css"], method = "GET" }"#,
    )
    .unset("every request")
    .help("Requests that the route applies to")
    .more(
        "All conditions must match. A route that can never match because of an earlier one is \
             an error.",
    )
    .sets(|r, v, m| {
        r.route.matcher = matcher("match", v, m);
        if r.route.matcher.is_nothing() {
            let what = "no request can match: `not` excludes all that the other conditions take";
            m.note(Mistake::new(&v.place, what).remedy("remove a condition, or the route"));
        }
    }),
    optional("upstream", Text("NAME"), "app")
        .unset("`origin`, or the only group there is")
        .help("Upstream group (backend) that serves the requests")
        .sets(|r, v, m| {
            if let Some(name) = m.ok(v.text()) {
                r.upstream = Some((name.to_owned(), v.place.clone()));
            }
        }),
    optional("name", Text("NAME"), "blog")
        .unset("its number")
        .help("Name of the route in logs and metrics")
        .sets(|r, v, m| m.put(&mut r.route.name, v.parse(not_empty))),
    opt("access_log", Switch, "true")
        .example("false")
        .help("Requests of the route in the access log")
        .more("`false` omits them, errors included.")
        .sets(|r, v, m| m.put(&mut r.route.access_log, v.switch())),
];

/// Options of match conditions.
pub(in crate::config) const MATCH: &[Opt<Matcher>] = &[
    optional("host", List("HOST"), r#"["example.com", "*.example.com"]"#)
        .unset("any")
        .help("Host name, or `*.` and a domain for all its subdomains")
        .more("Case and port are ignored. `*.example.com` does not match `example.com` itself.")
        .sets(|r, v, m| r.hosts = some(v, m, |item| item.parse(HostPattern::parse))),
    optional("path", List("PATTERN"), r#"["/blog/*", "*.css"]"#)
        .unset("any")
        .help("Path, literal or with `*` for any run of characters")
        .more(
            "`/blog` matches that path only, `/blog/*` everything below it, `*.css` every path \
             that ends in it. The path is compared without the query and without decoding. A \
             request whose path could be read as that of another route (`/static/..%2faccount`, \
             `/%6cogin`) bypasses the cache and counts for the `rate` of both.",
        )
        .sets(|r, v, m| r.paths = some(v, m, |item| item.parse(Glob::parse))),
    optional("method", List("METHOD"), r#"["GET"]"#)
        .unset("any")
        .help("Request method")
        .more("GET includes HEAD.")
        .sets(|r, v, m| r.methods = some(v, m, |item| item.parse(method))),
    optional(
        "header",
        List("NAME[=PATTERN]"),
        r#"["X-Requested-With", "User-Agent=*Mobile*"]"#,
    )
    .unset("any")
    .help("Request header field that is present, or has a value that matches")
    .more(
        "One of the list must hold; `*` in a value matches any run of characters. Responses of \
             a route with this condition, `cookie`, `query`, `client` or `scheme` are stored apart \
             from those of other routes, under the name of the route.",
    )
    .sets(|r, v, m| r.headers = some(v, m, |item| condition("header", Part::Header, item))),
    optional(
        "cookie",
        List("NAME[=PATTERN]"),
        r#"["beta=1", "wordpress_logged_in_*"]"#,
    )
    .unset("any")
    .help("Request cookie that is present, or has a value that matches")
    .sets(|r, v, m| r.cookies = some(v, m, |item| condition("cookie", Part::Cookie, item))),
    optional(
        "query",
        List("NAME[=PATTERN]"),
        r#"["preview", "format=json"]"#,
    )
    .unset("any")
    .help("Query parameter that is present, or has a value that matches")
    .more("`*` alone is any parameter.")
    .sets(|r, v, m| r.queries = some(v, m, |item| condition("query", Part::Query, item))),
    optional(
        "client",
        List("ADDRESS|BLOCK"),
        r#"["192.0.2.0/24", "2001:db8::/32"]"#,
    )
    .unset("any")
    .help("Address or block of the client")
    .more("Behind a proxy in `trusted_proxies`, the client that it names in X-Forwarded-For.")
    .sets(|r, v, m| r.clients = some(v, m, |item| item.parse(str::parse))),
    optional("scheme", Text("http|https"), "https")
        .unset("any")
        .help("Scheme of the connection: `http` or `https`")
        .sets(|r, v, m| m.put(&mut r.scheme, v.choice(SCHEMES).map(Some))),
    optional(
        "any",
        Table("match conditions, or a list of such tables"),
        r#"[{ host = "a.example" }, { path = "/a/*" }]"#,
    )
    .unset("every request")
    .help("Alternatives, of which at least one must match")
    .sets(|r, v, m| r.any = parts("any", v, m)),
    optional(
        "not",
        Table("match conditions, or a list of such tables"),
        r#"{ path = ["/admin/*", "/cart"] }"#,
    )
    .unset("no request")
    .help("Exceptions: a request that one of them matches is not taken")
    .more("Of several conditions in one table, all must hold for the exception to apply.")
    .sets(|r, v, m| r.not = parts("not", v, m)),
];

const SCHEMES: &[(&str, Scheme)] = &[("http", Scheme::Http), ("https", Scheme::Https)];

/// Reads match conditions.
fn matcher(name: &str, value: &Value, mistakes: &mut Mistakes) -> Matcher {
    let mut matcher = Matcher::default();
    if let Some(table) = mistakes.ok(value.table()) {
        table.apply(MATCH, &mut matcher, mistakes);
        table.refuse_rest_inside(name, mistakes);
    }
    matcher
}

/// Reads alternatives or exceptions, which contain no others: deeper nesting is never needed and hard to read.
fn parts(name: &str, value: &Value, mistakes: &mut Mistakes) -> Vec<Matcher> {
    let mut parts = Vec::new();
    for item in value.items() {
        let part = matcher(name, item, mistakes);
        if part.has_parts() {
            let what = format!("`any` and `not` cannot stand inside `{name}`");
            mistakes.note(Mistake::new(&item.place, what).remedy("write two routes"));
        } else if part == Matcher::default() {
            let what = format!("a table without a condition in `{name}`");
            mistakes
                .note(Mistake::new(&item.place, what).remedy("add one, such as path = \"/a/*\""));
        }
        parts.push(part);
    }
    parts
}

/// Reads a condition on this part of a request. A table, as other servers have it, gets the right form as remedy.
fn condition(option: &str, part: Part, item: &Value) -> Result<Condition, Mistake> {
    let texts = item.named().iter().map(|(key, value)| {
        let pattern = value.text().map(|text| format!("={text}"));
        format!("\"{}{}\"", key.name, pattern.unwrap_or_default())
    });
    let texts: Vec<_> = texts.collect();
    let read = item.parse(|text| Condition::of(part, text));
    read.map_err(|mistake| match &texts[..] {
        [] => mistake,
        [one] => mistake.remedy(format!("write {option} = {one}")),
        all => mistake.remedy(format!(
            "write {option} = [{}], of which one must hold",
            all.join(", ")
        )),
    })
}

/// Reads a list that must not be empty: without values, the route would match nothing.
fn some<T>(
    value: &Value,
    mistakes: &mut Mistakes,
    read: impl Fn(&Value) -> Result<T, Mistake>,
) -> Vec<T> {
    if value.items().is_empty() {
        mistakes
            .note(Mistake::new(&value.place, "the list is empty").remedy("remove it to match all"));
    }
    value.each(mistakes, read)
}

fn method(text: &str) -> Result<Method, String> {
    let upper = text.to_ascii_uppercase();
    if upper != text {
        return Err(format!("methods are case-sensitive: write \"{upper}\""));
    }
    Method::from_bytes(text.as_bytes())
        .map_err(|_| "not a method, such as \"GET\" or \"POST\"".to_owned())
}

fn not_empty(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("the name is empty".to_owned()),
        name => Ok(name.to_owned()),
    }
}

impl Condition {
    /// Parses `cookie:name`, `header:Name=value`, `query:name`.
    pub(in crate::config) fn parse(text: &str) -> Result<Self, String> {
        let form = "write \"cookie:NAME\", \"header:NAME\" or \"query:NAME\", with =VALUE if it must be equal";
        let (part, rest) = text.split_once(':').ok_or(form)?;
        let part = match part {
            "header" => Part::Header,
            "cookie" => Part::Cookie,
            "query" => Part::Query,
            _ => return Err(form.to_owned()),
        };
        Self::of(part, rest)
    }

    /// Parses `name` or `name=value` as a condition on this part of a request.
    fn of(part: Part, text: &str) -> Result<Self, String> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text, None),
        };
        let name = match part {
            Part::Header => field_pattern(name)?,
            Part::Cookie | Part::Query | Part::Path => name_pattern(name.trim())?,
        };
        if name == "*" && part != Part::Query {
            return Err(format!(
                "write a name: {text} matches nearly every request (to disable caching: pass = true)"
            ));
        }
        Ok(Self { part, name, value })
    }
}
