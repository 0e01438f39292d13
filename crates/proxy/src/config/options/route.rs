//! Options of one route, and of the tables inside it.

use std::path::PathBuf;

use http::Method;
use microcache_policy::rules::Rules;

use super::super::mistake::{Mistake, Mistakes, Place};
use super::super::option::Form::{List, Table, Text};
use super::super::option::{Opt, optional};
use super::super::pattern::{Glob, HostPattern};
use super::super::rate::Rate;
use super::super::raw::Value;
use super::super::route::{Condition, GoesTo, Matcher, Part, Route, Watching};
use super::names::{field_pattern, name_pattern};

/// A route before its upstream is looked up.
#[derive(Clone, Debug)]
pub(in crate::config) struct RouteDraft {
    pub(in crate::config) route: Route,
    /// The name of its upstream, and its place.
    pub(in crate::config) upstream: Option<(String, Place)>,
    /// The directory of static files.
    pub(in crate::config) root: Option<PathBuf>,
    pub(in crate::config) index: String,
    pub(in crate::config) precompressed: bool,
}

impl RouteDraft {
    /// A route for everything.
    pub(in crate::config) fn new() -> Self {
        Self {
            route: Route {
                matcher: Matcher::default(),
                goes_to: GoesTo::Upstream(0),
                rules: Rules::default(),
                pass: false,
                collapse: true,
                watch: Watching::Off,
                bypass: Vec::new(),
                max_object: None,
                max_body: None,
                rate: Rate::default(),
                name: String::new(),
            },
            upstream: None,
            root: None,
            index: String::new(),
            precompressed: false,
        }
    }
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
        if let Some(table) = m.ok(v.table()) {
            table.apply(MATCH, &mut r.route.matcher, m);
            table.refuse_rest_inside("match", m);
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
];

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
        let (name, value) = match rest.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (rest, None),
        };
        let name = match part {
            Part::Header => field_pattern(name)?,
            Part::Cookie | Part::Query => name_pattern(name.trim())?,
        };
        if name == "*" {
            return Err(format!(
                "write a name: {text} matches nearly every request (to disable caching: pass = true)"
            ));
        }
        Ok(Self { part, name, value })
    }
}
