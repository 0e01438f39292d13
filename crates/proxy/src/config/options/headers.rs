//! Options of header fields, at the top for all routes or in one route.

use microcache_policy::browser_cache::{BrowserTtl, Immutable};
use microcache_policy::field_edits::{FieldEdit, FieldEdits};
use microcache_policy::field_template::FieldTemplate;
use microcache_policy::{FieldName, hop};

use super::super::mistake::{Mistake, Mistakes};
use super::super::option::Form::{Table, Text};
use super::super::option::{Opt, opt, optional};
use super::super::raw::Value;
use super::LIFETIME;
use super::group::status_range;
use super::names::{field_name, field_pattern};
use super::route::RouteDraft;

/// Options of header fields.
pub(in crate::config) const HEADERS: &[Opt<RouteDraft>] = &[
    optional(
        "response_headers",
        Table("changes of response fields, or a list of such tables"),
        r#"{ preset = "security", set = { X-Frame-Options = "DENY" }, remove = ["X-Generator"] }"#,
    )
    .unset("unchanged")
    .help("Header fields of responses to set, add, supply or remove")
    .more(
        "They apply to every response of the route: from the store, from the origin, and errors. \
         A route inherits those at the top, except of fields that it changes itself. What the \
         application said decides about caching; Cache-Control, Vary and fields of the connection \
         cannot be changed here (see `browser_ttl`). `{host}`, `{scheme}`, `{client_address}`, \
         `{request_id}`, `{client_certificate_subject}` and `{client_certificate_fingerprint}` stand \
         for those of the request. Removing Cache-Status hides what Microcache \
         itself would say.",
    )
    .sets(set_response_headers),
    optional(
        "request_headers",
        Table("changes of request fields"),
        r#"{ set = { X-Real-IP = "{client_address}", X-Forwarded-Ssl = "on" } }"#,
    )
    .unset("unchanged")
    .help("Header fields of requests to set before they reach the origin")
    .more(
        "The client's own field of that name is dropped. They are sent on shared fetches too, where \
         `{client_address}` and `{request_id}` are those of the request that causes the fetch: pages \
         must not depend on them. Fields with `{client_certificate_subject}` or \
         `{client_certificate_fingerprint}` are not sent on shared fetches. To remove fields, see `remove_headers`.",
    )
    .sets(set_request_headers),
    opt("browser_ttl", Text("DURATION|no-store|origin"), "origin")
        .example("5m")
        .help("Freshness lifetime for browsers, apart from the one here; `origin` keeps it")
        .more(
            "Replaces Cache-Control and Expires of shared responses with `max-age` (`\"0s\"`: \
             `no-cache`). Responses that are `private`, `no-store`, `no-cache` or \
             `must-revalidate`, that set a cookie, or that answer a request with credentials keep \
             theirs: a rule never loosens what the application said. `no-store` is for all \
             responses.",
        )
        .sets(|r, v, m| m.put(&mut r.route.browser.ttl, browser_ttl(v))),
    opt("immutable", Text("off|hashed|all"), "off")
        .example("hashed")
        .help("`immutable` and a year for names with a hash, as app.3f9a1c7e.js, or all")
        .more(
            "A hash is a part of the last segment of the path, between `.`, `-` or `_`, of at least \
             8 hexadecimal digits, or of at least 8 letters and digits of which some are digits \
             and some capitals. Other names follow `browser_ttl`.",
        )
        .sets(|r, v, m| m.put(&mut r.route.browser.immutable, v.choice(IMMUTABLE))),
];

/// Options of changes of response fields.
pub(in crate::config) const RESPONSE_HEADERS: &[Opt<FieldEdits>] = &[
    optional(
        "set",
        Table("fields and values"),
        r#"{ X-Frame-Options = "DENY" }"#,
    )
    .help("Fields that replace those of the same name")
    .sets(|e, v, m| e.set.extend(fields(v, m, fixed_by_response))),
    optional(
        "add",
        Table("fields and values"),
        r#"{ Link = "</a.css>; rel=preload" }"#,
    )
    .help("Fields that are appended")
    .sets(|e, v, m| e.added.extend(fields(v, m, fixed_by_response))),
    optional(
        "default",
        Table("fields and values"),
        r#"{ Referrer-Policy = "same-origin" }"#,
    )
    .help("Fields for responses that have none of the name")
    .sets(|e, v, m| e.defaults.extend(fields(v, m, fixed_by_response))),
    optional(
        "remove",
        super::super::option::Form::List("FIELD"),
        r#"["Server", "X-Magento-*"]"#,
    )
    .help("Fields that are removed; a `*` at the end matches any suffix")
    .sets(|e, v, m| {
        for name in v.each(m, |item| item.parse(removable)) {
            e.removed.push(name);
        }
    }),
    opt("status", Text("STATUS"), "100-599")
        .example("200-299")
        .help("Status code or range of the responses that are changed")
        .sets(|e, v, m| m.put(&mut e.statuses, v.parse(status_range))),
    optional("preset", Text("security"), "security")
        .help("Fields that browsers' security needs, unless the application sends them")
        .more(
            "`security` supplies `X-Content-Type-Options: nosniff`, `X-Frame-Options: SAMEORIGIN` \
             and `Referrer-Policy: strict-origin-when-cross-origin`, and removes Server, \
             X-Powered-By, X-AspNet-Version and X-Generator.",
        )
        .sets(|e, v, m| {
            if m.ok(v.choice(&[("security", ())])).is_some() {
                add_security(e);
            }
        }),
];

/// Options of changes of request fields.
pub(in crate::config) const REQUEST_HEADERS: &[Opt<Vec<FieldEdit>>] = &[optional(
    "set",
    Table("fields and values"),
    r#"{ X-Real-IP = "{client_address}" }"#,
)
.help("Fields that replace those of the same name")
.sets(|e, v, m| e.extend(fields(v, m, fixed_by_request)))];

const IMMUTABLE: &[(&str, Immutable)] = &[
    ("off", Immutable::Off),
    ("hashed", Immutable::Hashed),
    ("all", Immutable::All),
];

const SECURITY: [(&str, &str); 3] = [
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "SAMEORIGIN"),
    ("Referrer-Policy", "strict-origin-when-cross-origin"),
];
const TELLTALE: [&str; 4] = ["Server", "X-Powered-By", "X-AspNet-Version", "X-Generator"];

fn add_security(edits: &mut FieldEdits) {
    for (name, value) in SECURITY {
        let value = FieldTemplate::literal(value);
        let name = name.to_owned();
        edits.defaults.push(FieldEdit { name, value });
    }
    for name in TELLTALE {
        edits.removed.push(name);
    }
}

fn set_response_headers(draft: &mut RouteDraft, value: &Value, mistakes: &mut Mistakes) {
    let mut own = Vec::new();
    for item in value.items() {
        let mut edits = FieldEdits::default();
        let Some(table) = mistakes.ok(item.table()) else {
            continue;
        };
        table.apply(RESPONSE_HEADERS, &mut edits, mistakes);
        table.refuse_rest_inside("response_headers", mistakes);
        own.push(edits);
    }
    let inherited = std::mem::take(&mut draft.route.response_headers);
    let inherited = inherited.into_iter();
    let kept = inherited.map(|edits| edits.without_those_of(&own));
    draft.route.response_headers = kept.filter(|edits| !edits.is_empty()).collect();
    draft.route.response_headers.append(&mut own);
}

fn set_request_headers(draft: &mut RouteDraft, value: &Value, mistakes: &mut Mistakes) {
    let mut own: Vec<FieldEdit> = Vec::new();
    if let Some(table) = mistakes.ok(value.table()) {
        table.apply(REQUEST_HEADERS, &mut own, mistakes);
        table.refuse_rest_inside("request_headers", mistakes);
    }
    let rules = &mut draft.route.rules.request;
    let is_own = |name: &str| own.iter().any(|edit| edit.name.eq_ignore_ascii_case(name));
    rules.set_fields.retain(|edit| !is_own(&edit.name));
    rules.set_fields.append(&mut own);
}

/// Reads a table of fields and values.
fn fields(
    value: &Value,
    mistakes: &mut Mistakes,
    fixed: fn(&str) -> Option<&'static str>,
) -> Vec<FieldEdit> {
    if mistakes.ok(value.table()).is_none() {
        return Vec::new();
    }
    let mut edits = Vec::new();
    for (key, value) in value.named() {
        let refused = match field_name(&key.name) {
            Err(remedy) => Some(remedy),
            Ok(name) => fixed(&name).map(str::to_owned),
        };
        if let Some(remedy) = refused {
            let what = format!("`{}` cannot be set", key.name);
            mistakes.note(Mistake::new(&key.place, what).remedy(remedy));
        } else if let Some(value) = mistakes.ok(value.parse(FieldTemplate::parse)) {
            let name = key.name.clone();
            edits.push(FieldEdit { name, value });
        }
    }
    edits
}

fn removable(text: &str) -> Result<String, String> {
    let pattern = field_pattern(text)?;
    if pattern.eq_ignore_ascii_case("Cache-Status") {
        return Ok(pattern);
    }
    match fixed_by_response(pattern.trim_end_matches('*')) {
        Some(why) => Err(why.to_owned()),
        None => Ok(pattern),
    }
}

/// Returns the reason why a rule may not change a response field.
fn fixed_by_response(name: &str) -> Option<&'static str> {
    let is = |names: &[&str]| names.iter().any(|one| one.eq_ignore_ascii_case(name));
    if is(&[
        "Cache-Control",
        "Expires",
        "Pragma",
        "CDN-Cache-Control",
        "Surrogate-Control",
    ]) {
        Some("it decides about caching: see `browser_ttl` and `ttl`")
    } else if is(&["Vary"]) {
        Some("caches behind this one would mix up variants")
    } else if is(&[
        "Age",
        "Cache-Status",
        "Content-Length",
        "Content-Encoding",
        "Content-Range",
        "Date",
    ]) || hop::is_hop_by_hop(FieldName::of(name.as_bytes()))
    {
        Some("it describes the message itself")
    } else {
        None
    }
}

/// Returns the reason why a rule may not change a request field.
pub(super) fn fixed_by_request(name: &str) -> Option<&'static str> {
    let is = |names: &[&str]| names.iter().any(|one| one.eq_ignore_ascii_case(name));
    if is(&["Host"]) {
        Some("see `origin_host`")
    } else if is(&["Cookie", "Authorization"]) {
        Some("it would make one client's identity that of all")
    } else if is(&[
        "Accept-Encoding",
        "Range",
        "If-Range",
        "Expect",
        "Content-Length",
        "X-Forwarded-For",
        "Forwarded",
    ]) || name
        .get(..3)
        .is_some_and(|start| start.eq_ignore_ascii_case("If-"))
        || hop::is_hop_by_hop(FieldName::of(name.as_bytes()))
    {
        Some("Microcache itself writes it")
    } else {
        None
    }
}

fn browser_ttl(value: &Value) -> Result<BrowserTtl, Mistake> {
    match value.text() {
        Ok("origin") => Ok(BrowserTtl::Origin),
        Ok("no-store") => Ok(BrowserTtl::NoStore),
        _ => value
            .millis(&LIFETIME)
            .map(|millis| BrowserTtl::Seconds(millis / 1000)),
    }
}
