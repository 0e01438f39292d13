//! Options of the cache key, and of the query in it.

use microcache_policy::FieldName;
use microcache_policy::rules::{KeyRules, Query};
use microcache_policy::tracking::TRACKING_PARAMETERS;
use microcache_policy::trust::is_rewritten;

use super::super::mistake::{Mistake, Mistakes};
use super::super::option::Form::{List, Switch, Table, Text};
use super::super::option::{Opt, opt, optional};
use super::super::raw::Value;
use super::names::{field_pattern, name_pattern};

/// Options of the cache key.
pub(in crate::config) const KEY: &[Opt<KeyRules>] = &[
    optional(
        "query",
        Table("parameter selection"),
        r#"{ ignore = ["utm_*", "fbclid"] }"#,
    )
    .unset("the whole query, unchanged")
    .help("Query parameters in the cache key")
    .more(
        "Names are compared decoded. The origin receives only these parameters unless \
             `forward` says otherwise.",
    )
    .sets(set_query),
    opt("headers", List("FIELD"), "[]")
        .example(r#"["X-Country"]"#)
        .help("Request header fields in the cache key")
        .more(
            "A `*` at the end matches any suffix: all fields with that prefix, including their \
             names. A field that is not forwarded to the origin counts as absent.",
        )
        .sets(|k, v, m| k.headers = v.each(m, |item| item.parse(keyed_field))),
    opt("cookies", List("NAME"), "[]")
        .example(r#"["currency"]"#)
        .help("Cookies in the cache key")
        .more(
            "Such a cookie does not make a request personal. A `*` at the end matches any suffix: \
             all cookies with that prefix, including their names.",
        )
        .sets(|k, v, m| k.cookies = v.each(m, |item| item.parse(name_pattern))),
];

/// Options of the query in the cache key.
pub(in crate::config) const QUERY: &[Opt<QueryDraft>] = &[
    opt("ignore", List("NAME"), "[]")
        .example(r#"["utm_*", "fbclid"]"#)
        .help("Query parameters left out of the cache key")
        .more(
            "A `*` at the end matches any suffix. The word `tracking`, alone or in the list, stands \
             for a [list](caching-rules.md#tracking-parameters) of parameters that advertising and \
             analytics add to links.",
        )
        .sets(|q, v, m| q.ignore = with_tracking(v.each(m, |item| item.parse(name_pattern)))),
    optional("only", List("NAME"), r#"["page", "lang"]"#)
        .unset("all")
        .help("The only query parameters in the cache key")
        .more("Excludes `ignore`.")
        .sets(|q, v, m| q.only = Some(v.each(m, |item| item.parse(name_pattern)))),
    opt("sort", Switch, "false")
        .example("true")
        .help("One entry for a query in any order of its parameters")
        .more(
            "Parameters are sorted by name, in the key and for the origin. Those of one name keep \
             their order.",
        )
        .sets(|q, v, m| m.put(&mut q.sort, v.switch())),
    opt("forward", Text("kept|whole"), "kept")
        .help("Query sent to the origin: only parameters in the key, or the whole")
        .more(
            "`kept`: only parameters of the key, so that a stored page cannot depend on anything \
             else. `whole`: the original query, for a backend that certainly ignores the others. \
             Uncached requests always keep their whole query.",
        )
        .sets(|q, v, m| m.put(&mut q.whole, v.choice(FORWARD))),
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
                .remedy("remove one of them"),
        );
    }
    table.refuse_rest_inside("key", mistakes);
    key.whole_query = query.whole;
    key.sort = query.sort;
    key.query = query.finish();
}

/// Parses a field of the key. Fields that Microcache writes itself are refused.
fn keyed_field(text: &str) -> Result<String, String> {
    let name = field_pattern(text)?;
    if name == "*" {
        return Err(
            "with all fields in the key there would be no hits: list those that pages depend on"
                .to_owned(),
        );
    }
    if name.eq_ignore_ascii_case("cookie") {
        return Err(
            "write cookies = [\"NAME\"]: every visitor has a different Cookie field".to_owned(),
        );
    }
    if is_rewritten(FieldName::of(name.as_bytes())) {
        return Err(
            "Microcache writes this field itself; host and scheme are part of the key already"
                .to_owned(),
        );
    }
    Ok(name)
}

/// The names with the shipped list in place of the word for it.
fn with_tracking(names: Vec<String>) -> Vec<String> {
    let written = |name: String| match &name[..] {
        "tracking" => TRACKING_PARAMETERS
            .iter()
            .map(|&one| one.to_owned())
            .collect(),
        _ => vec![name],
    };
    names.into_iter().flat_map(written).collect()
}

/// The query part of a key, while it is read.
#[derive(Debug, Default)]
pub(in crate::config) struct QueryDraft {
    ignore: Vec<String>,
    only: Option<Vec<String>>,
    sort: bool,
    whole: bool,
}

impl QueryDraft {
    fn finish(self) -> Query {
        match self.only {
            Some(names) => Query::Only(names.into_iter().collect()),
            None if self.ignore.is_empty() => Query::All,
            None => Query::Except(self.ignore.into_iter().collect()),
        }
    }
}
