//! Options of a route that changes paths on the way to its origin.

use microcache_policy::url_template::UrlTemplate;

use super::super::mistake::{Mistake, Mistakes};
use super::super::option::Form::{Switch, Table, Text};
use super::super::option::{Opt, optional};
use super::super::raw::Value;
use super::super::rewrite::Rewrite;
use super::route::{RouteDraft, exclusive};

/// Options of changed paths.
pub(in crate::config) const REWRITING: &[Opt<RouteDraft>] = &[
    optional("strip_prefix", Text("PATH"), "/api")
        .help("Prefix of the path that is removed before the origin, or `root`, is asked")
        .more(
            "Whole segments: `/api/users` becomes `/users`, `/api` becomes `/`, `/apis` stays. The \
             cache key, purges and logs keep the client's URL.",
        )
        .sets(|r, v, m| m.put(&mut r.route.rewrite.strip, v.parse(prefix))),
    optional("add_prefix", Text("PATH"), "/v2")
        .help("Prefix of the path that is added before the origin, or `root`, is asked")
        .more(
            "After `strip_prefix`. A path that some program could read as one outside of it \
             (`/../secret`, `/..%2fsecret`) gets 400.",
        )
        .sets(|r, v, m| m.put(&mut r.route.rewrite.add, v.parse(prefix))),
    optional(
        "rewrite",
        Table("a target"),
        r#"{ to = "/index.php?p={1}" }"#,
    )
    .help("Path and query that the origin, or `root`, is asked for in place of the client's")
    .more("In place of `strip_prefix` and `add_prefix`.")
    .sets(set_rewrite),
    optional("rewrite_location", Switch, "true")
        .unset("true where the path is changed")
        .help("Change of the origin's own URLs in responses to those of the client")
        .more(
            "In Location, Content-Location and Refresh: prefixes are changed back, and a URL with \
             the host and port of an origin server loses them. URLs made by `rewrite` cannot be \
             changed back.",
        )
        .sets(|r, v, m| m.put(&mut r.route.rewrite.location, v.switch().map(Some))),
];

/// Options of `rewrite`.
pub(in crate::config) const REWRITE: &[Opt<Rewrite>] =
    &[optional("to", Text("PATH"), "/index.php?p={1}")
        .help("Path and query, with placeholders")
        .more(
            "The placeholders are those of `redirect.to`. The query is kept unless there is a `?`.",
        )
        .sets(|r, v, m| r.to = m.ok(v.parse(UrlTemplate::target)))];

fn set_rewrite(draft: &mut RouteDraft, value: &Value, mistakes: &mut Mistakes) {
    let Some(table) = mistakes.ok(value.table()) else {
        return;
    };
    let before = mistakes.count();
    table.apply(REWRITE, &mut draft.route.rewrite, mistakes);
    table.refuse_rest_inside("rewrite", mistakes);
    let rewrite = &draft.route.rewrite;
    if mistakes.count() == before && rewrite.to.is_none() {
        let what = "`rewrite` has no target";
        mistakes.note(Mistake::new(&value.place, what).remedy("add to = \"/index.php?p={1}\""));
    }
    if rewrite.has_prefix() {
        mistakes.note(exclusive(
            &value.place,
            "rewrite",
            "strip_prefix` or `add_prefix",
        ));
    }
}

/// Parses a prefix of paths.
fn prefix(text: &str) -> Result<String, String> {
    let is_legal = |byte: u8| byte.is_ascii_graphic() && !b"?#\\*{}".contains(&byte);
    let prefix = text.trim_end_matches('/');
    let mut segments = prefix.split('/').skip(1);
    if !text.starts_with('/') || !text.bytes().all(is_legal) {
        return Err("write a path such as \"/api\", encoded, without `*`, `?` and `#`".to_owned());
    }
    if segments.any(|segment| matches!(segment, "" | "." | "..")) {
        return Err("write the path without empty segments, `.` and `..`".to_owned());
    }
    Ok(prefix.to_owned())
}
