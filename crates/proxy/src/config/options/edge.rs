//! Options of pages with edge side includes, at the top for all routes or in one route.

use microcache_policy::edge::EdgeMode;

use super::super::mistake::{Mistake, Mistakes};
use super::super::option::Form::{Duration, List, Switch, Text};
use super::super::option::{Opt, opt};
use super::super::page_edits::Assembly;
use super::super::raw::Table;
use super::WAIT;
use super::route::RouteDraft;
use crate::config::Watching;

/// Options of composed pages.
pub(in crate::config) const EDGE: &[Opt<RouteDraft>] = &[
    opt("edge", Text("off|announced|always"), "off")
        .example("announced")
        .help("Pages whose tags are replaced by fragments: `announced` ones, or all HTML")
        .more(
            "The tags are `<esi:include src>`, `<esi:remove>`, `<esi:comment>` and `<!--esi -->`, \
             and SSI's `<!--#include virtual -->`. `announced`: requests to the origin have \
             `Surrogate-Capability: microcache=\"ESI/1.0\"`, and pages count that answer with \
             `Surrogate-Control: content=\"ESI/1.0\"`, as Symfony's do. `always`: every HTML and \
             XML page counts; then no text of strangers may stand in a page unescaped. The origin \
             is asked for uncompressed responses. See [edge side includes](edge.md).",
        )
        .sets(|r, v, m| m.put(&mut r.route.rules.edge, v.choice(MODES))),
    opt(
        "edge_paths",
        List("PATH"),
        r#"["/_fragment*", "/_esi/*", "/page_cache/block/*"]"#,
    )
    .example(r#"["/_fragment*", "/cart-box"]"#)
    .help("Paths of fragments that pages may include")
    .more(
        "A `*` at the end matches any suffix. A tag that names another path, another host, or \
             a path that some program could read as another one, is left out, counted and logged. \
             The default paths are those of Symfony, Shopware and Magento.",
    )
    .sets(|r, v, m| {
        r.route.edge.paths = v.each(m, |item| item.parse(path)).into_iter().collect();
    }),
    opt("edge_strict", Switch, "false")
        .help("502 for a page that lacks a fragment, instead of the page without it")
        .more("The head then waits for all fragments. Tags with `onerror=\"continue\"` may fail.")
        .sets(|r, v, m| m.put(&mut r.route.edge.is_strict, v.switch())),
    opt("edge_timeout", Duration, "2s")
        .help("Time limit of a fragment; then its `alt` or nothing takes its place")
        .sets(|r, v, m| m.put(&mut r.route.edge.timeout, v.duration(&WAIT))),
    opt("edge_assembly", Text("server|browser"), "server")
        .example("browser")
        .help("Place where fragments are inserted into pages: `server` or `browser`")
        .more(
            "In the browser, the page is the same for all visitors, so that compression, 304 and \
             `watch` work as for any page. A script fetches each fragment with the visitor's \
             cookies. See [edge side includes](edge.md#in-the-browser).",
        )
        .sets(|r, v, m| m.put(&mut r.route.page_edits.assembly, v.choice(ASSEMBLIES))),
];

const ASSEMBLIES: &[(&str, Assembly)] =
    &[("server", Assembly::Server), ("browser", Assembly::Browser)];

const MODES: &[(&str, EdgeMode)] = &[
    ("off", EdgeMode::Off),
    ("announced", EdgeMode::Announced),
    ("always", EdgeMode::Always),
];

fn path(text: &str) -> Result<String, String> {
    let is_legal = |byte: u8| byte.is_ascii_graphic() && !b"?#\\".contains(&byte);
    let prefix = text.strip_suffix('*').unwrap_or(text);
    if !prefix.starts_with('/') || !prefix.bytes().all(is_legal) || prefix.contains('*') {
        return Err(
            "write a path such as \"/cart-box\" or \"/_fragment*\", with at most one `*`, at its end"
                .to_owned(),
        );
    }
    Ok(text.to_owned())
}

/// Checks that pages with fragments are not watched: their stored response is not what a browser shows.
pub(in crate::config) fn check_edge(
    draft: &RouteDraft,
    table: &Table<'_>,
    mistakes: &mut Mistakes,
) {
    if draft.route.composes_pages()
        && draft.route.watch != Watching::Off
        && let Some(value) = ["watch", "edge", "holes", "tokens"]
            .into_iter()
            .find_map(|it| table.get(it))
    {
        let what = "`watch` and pages that are composed here exclude each other";
        mistakes.note(
            Mistake::new(&value.place, what)
                .remedy("set edge_assembly = \"browser\" or watch = \"off\" on this route"),
        );
    }
}
