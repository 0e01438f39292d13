//! Options of one route, and of the tables inside it.

use std::path::PathBuf;

use http::Method;
use microcache_policy::rules::{KeyRules, Rules};
use microcache_policy::trust::is_rewritten;

use super::super::mistake::{Mistake, Mistakes, Place};
use super::super::option::{About, Form, Opt, Unset};
use super::super::pattern::{Glob, HostPattern};
use super::super::rate::Rate;
use super::super::raw::Value;
use super::super::route::{Condition, GoesTo, Matcher, Part, Route, Watching};
use super::rules::{QueryDraft, field_pattern, name_pattern};

/// A route before its upstream is looked up.
#[derive(Clone, Debug)]
pub(in crate::config) struct RouteDraft {
    pub(in crate::config) route: Route,
    /// The name of its upstream, and where it stands.
    pub(in crate::config) upstream: Option<(String, Place)>,
    /// The directory that answers instead.
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

/// Options that only a route has.
pub(in crate::config) const ROUTE: &[Opt<RouteDraft>] = &[
    Opt {
        about: About {
            name: "match",
            form: Form::Table("which requests"),
            unset: Unset::Says("every request"),
            example: r#"{ host = "*.example.com", path = ["/blog/*", "*.css"], method = "GET" }"#,
            help: "Which requests the route takes",
            more: "All that is named must match. A route that an earlier one leaves nothing to is a mistake.",
        },
        set: |r, v, m| {
            if let Some(table) = m.ok(v.table()) {
                table.apply(MATCH, &mut r.route.matcher, m);
                table.refuse_rest_inside("match", m);
            }
        },
    },
    Opt {
        about: About {
            name: "upstream",
            form: Form::Text("NAME"),
            unset: Unset::Says("`origin`, or the only group there is"),
            example: r#""app""#,
            help: "The upstream group that the requests go to",
            more: "",
        },
        set: |r, v, m| {
            if let Some(name) = m.ok(v.text()) {
                r.upstream = Some((name.to_owned(), v.place.clone()));
            }
        },
    },
    Opt {
        about: About {
            name: "name",
            form: Form::Text("NAME"),
            unset: Unset::Says("its number"),
            example: r#""blog""#,
            help: "What reports call the route",
            more: "",
        },
        set: |r, v, m| m.put(&mut r.route.name, v.parse(not_empty)),
    },
];

/// Which requests a route takes.
pub(in crate::config) const MATCH: &[Opt<Matcher>] = &[
    Opt {
        about: About {
            name: "host",
            form: Form::List("HOST"),
            unset: Unset::Says("any"),
            example: r#"["example.com", "*.example.com"]"#,
            help: "The host: a name, or `*.` and what it ends with",
            more: "Neither case nor port count. `*.example.com` does not take `example.com` itself.",
        },
        set: |r, v, m| r.hosts = some(v, m, |item| item.parse(HostPattern::parse)),
    },
    Opt {
        about: About {
            name: "path",
            form: Form::List("PATTERN"),
            unset: Unset::Says("any"),
            example: r#"["/blog/*", "*.css"]"#,
            help: "The path: as it is, or with `*` for any run of characters",
            more: "`/blog` is that one path, `/blog/*` all below it, `*.css` all that end so. The path is compared as \
                   it travels, without the query and without decoding. A request whose path programs may read as that of \
                   another route (`/static/..%2faccount`, `/%6cogin`) passes by the cache and counts for the `rate` of \
                   both.",
        },
        set: |r, v, m| r.paths = some(v, m, |item| item.parse(Glob::parse)),
    },
    Opt {
        about: About {
            name: "method",
            form: Form::List("METHOD"),
            unset: Unset::Says("any"),
            example: r#"["GET"]"#,
            help: "The method",
            more: "HEAD goes where GET goes.",
        },
        set: |r, v, m| r.methods = some(v, m, |item| item.parse(method)),
    },
];

/// What makes up the key.
pub(in crate::config) const KEY: &[Opt<KeyRules>] = &[
    Opt {
        about: About {
            name: "query",
            form: Form::Table("which parameters"),
            unset: Unset::Says("the whole query as it stands"),
            example: r#"{ ignore = ["utm_*", "fbclid"] }"#,
            help: "Which query parameters tell responses apart",
            more: "Names are compared decoded. The origin gets those that count, unless `forward` says otherwise.",
        },
        set: set_query,
    },
    Opt {
        about: About {
            name: "headers",
            form: Form::List("FIELD"),
            unset: Unset::Is("[]"),
            example: r#"["X-Country"]"#,
            help: "Request fields that tell responses apart",
            more: "A `*` at the end stands for any rest: all fields that begin so, with their names. What the origin does \
                   not get counts as absent.",
        },
        set: |k, v, m| k.headers = v.each(m, |item| item.parse(keyed_field)),
    },
    Opt {
        about: About {
            name: "cookies",
            form: Form::List("NAME"),
            unset: Unset::Is("[]"),
            example: r#"["currency"]"#,
            help: "Cookies that tell responses apart",
            more: "Such a cookie does not make a request personal. A `*` at the end stands for any rest: all cookies that \
                   begin so, with their names.",
        },
        set: |k, v, m| k.cookies = v.each(m, |item| item.parse(name_pattern)),
    },
];

/// Which query parameters make up the key.
pub(in crate::config) const QUERY: &[Opt<QueryDraft>] = &[
    Opt {
        about: About {
            name: "ignore",
            form: Form::List("NAME"),
            unset: Unset::Is("[]"),
            example: r#"["utm_*", "fbclid"]"#,
            help: "Parameters that do not count",
            more: "A `*` at the end stands for any rest.",
        },
        set: |q, v, m| q.ignore = v.each(m, |item| item.parse(name_pattern)),
    },
    Opt {
        about: About {
            name: "only",
            form: Form::List("NAME"),
            unset: Unset::Says("all count"),
            example: r#"["page", "lang"]"#,
            help: "The only parameters that count",
            more: "Either this or `ignore`.",
        },
        set: |q, v, m| q.only = Some(v.each(m, |item| item.parse(name_pattern))),
    },
    Opt {
        about: About {
            name: "forward",
            form: Form::Text("kept|whole"),
            unset: Unset::Is(r#""kept""#),
            example: r#""kept""#,
            help: "What the origin gets of the query",
            more: "`kept` is what counts: nobody can have a page stored for others that depends on the rest. `whole` is the \
                   query as it came, for an origin that surely answers by nothing else. Requests that are not cached keep \
                   their whole query anyway.",
        },
        set: |q, v, m| m.put(&mut q.whole, v.choice(FORWARD)),
    },
];

const FORWARD: &[(&str, bool)] = &[("kept", false), ("whole", true)];

fn set_query(key: &mut KeyRules, value: &Value, mistakes: &mut Mistakes) {
    let Some(table) = mistakes.ok(value.table()) else {
        return;
    };
    let mut query = QueryDraft::default();
    table.apply(QUERY, &mut query, mistakes);
    if query.only.is_some() && !query.ignore.is_empty() {
        mistakes.note(
            Mistake::new(&value.place, "`ignore` and `only` exclude each other")
                .remedy("keep the one that is shorter"),
        );
    }
    table.refuse_rest_inside("key", mistakes);
    key.whole_query = query.whole;
    key.query = query.finish();
}

/// The values of a list that has to have some: with none, the route would match nothing, which
/// nobody means.
fn some<T>(
    value: &Value,
    mistakes: &mut Mistakes,
    read: impl Fn(&Value) -> Result<T, Mistake>,
) -> Vec<T> {
    if value.items().is_empty() {
        mistakes.note(
            Mistake::new(&value.place, "the list is empty").remedy("leave it out to match all"),
        );
    }
    value.each(mistakes, read)
}

fn method(text: &str) -> Result<Method, String> {
    let upper = text.to_ascii_uppercase();
    if upper != text {
        return Err(format!("methods mind their case: write \"{upper}\""));
    }
    Method::from_bytes(text.as_bytes())
        .map_err(|_| "not a method, such as \"GET\" or \"POST\"".to_owned())
}

/// The name of a field.
pub(super) fn field_name(text: &str) -> Result<String, String> {
    http::HeaderName::from_bytes(text.as_bytes())
        .map(|_| text.to_owned())
        .map_err(|_| "write the name of a field, such as \"X-Country\"".to_owned())
}

/// A field for the key. What Microcache writes itself tells nobody apart.
fn keyed_field(text: &str) -> Result<String, String> {
    let name = field_pattern(text)?;
    if name == "*" {
        return Err(
            "no two requests say the same in all fields: name those that pages depend on"
                .to_owned(),
        );
    }
    if name.eq_ignore_ascii_case("cookie") {
        return Err("write cookies = [\"NAME\"]: no two visitors have the same cookies".to_owned());
    }
    if is_rewritten(name.as_bytes()) {
        return Err(
            "Microcache writes this field itself; the host is in the key already, and so is what a trusted proxy says"
                .to_owned(),
        );
    }
    Ok(name)
}

fn not_empty(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("the name is empty".to_owned()),
        name => Ok(name.to_owned()),
    }
}

impl Condition {
    /// Reads `cookie:name`, `header:Name=value`, `query:name`.
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
                "name it: {text} holds for nearly every request; `pass = true` keeps nothing"
            ));
        }
        Ok(Self { part, name, value })
    }
}
