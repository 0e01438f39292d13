//! Options of pages that are changed before they are stored, at the top for all routes or in one route.

use microcache_policy::edge::FragmentPaths;

use super::super::mistake::{Mistake, Mistakes};
use super::super::option::Form::{Switch, Table, Text};
use super::super::option::{Opt, opt, optional};
use super::super::page_edits::{Assembly, ElementSelector, Hole, Token, TokenPlace};
use super::super::raw::{self, Value};
use super::route::RouteDraft;

/// Options of changed pages.
pub(in crate::config) const PAGES: &[Opt<RouteDraft>] = &[
    optional(
        "holes",
        Table("a selector and a URL, or a list of such tables"),
        r##"[{ select = "#minicart", include = "/cart-box" }]"##,
    )
    .help("Elements of pages whose content is fetched for each visitor")
    .more("See [holes](edge.md#holes). Written as `[[routes.holes]]`, too.")
    .sets(|r, v, m| {
        r.route.page_edits.holes = v.items().iter().filter_map(|it| hole(it, m)).collect();
    }),
    optional(
        "tokens",
        Table("a place and a URL, or a list of such tables"),
        r#"[{ select = "input[name=_token]", from = "/csrf-token" }]"#,
    )
    .help("Nonces and CSRF tokens in pages, which each visitor gets apart from the page")
    .more("See [tokens](edge.md#tokens). Written as `[[routes.tokens]]`, too.")
    .sets(|r, v, m| {
        r.route.page_edits.tokens = v.items().iter().filter_map(|it| token(it, m)).collect();
    }),
];

/// Options of a hole.
pub(in crate::config) const HOLE: &[Opt<HoleDraft>] = &[
    optional("select", Text("SELECTOR"), "#minicart")
        .help("CSS selector of the elements, whose content is replaced")
        .more(
            "Names, `#id`, `.class`, `[attribute=value]`, `:not()`, `:nth-child()`, `A B` and \
             `A > B`. The elements need an end tag.",
        )
        .sets(|d, v, m| d.select = m.ok(v.parse(ElementSelector::parse))),
    optional("include", Text("URL"), "/cart-box")
        .help("Path and query of the fragment")
        .sets(|d, v, m| d.include = m.ok(v.parse(fragment_url))),
];

/// Options of a token.
pub(in crate::config) const TOKEN: &[Opt<TokenDraft>] = &[
    optional("select", Text("SELECTOR"), "input[name=_token]")
        .help("CSS selector of the elements with the token")
        .sets(|d, v, m| d.select = m.ok(v.parse(ElementSelector::parse))),
    opt("attribute", Text("NAME"), "value")
        .example("content")
        .help("Attribute that contains the token")
        .sets(|d, v, m| m.put(&mut d.attribute, v.parse(attribute_name))),
    optional("variable", Text("NAME"), "wpApiSettings.nonce")
        .help("Variable, or key of an object, that contains the token in a script of the page")
        .more("In place of `select`. With an object, its name stands in the same script before.")
        .sets(|d, v, m| d.variable = m.ok(v.parse(variable_name))),
    optional("from", Text("URL"), "/csrf-token")
        .help("Path and query of a response with the visitor's own token")
        .more(
            "A page with the same element or variable, JSON (a string, or an object with the \
             attribute's or variable's name or `token`), or plain text. It is never stored.",
        )
        .sets(|d, v, m| d.from = m.ok(v.parse(fragment_url))),
    opt("wait", Switch, "false")
        .example("true")
        .help("Insertion of the token here, before the page is sent")
        .more(
            "`from` then has to respond with the token alone. Without it, the browser fetches the \
             token when a form gets the focus or is submitted, so that only visitors who use a \
             form get a session.",
        )
        .sets(|d, v, m| m.put(&mut d.wait, v.switch())),
];

/// A hole while it is read.
#[derive(Debug, Default)]
pub(in crate::config) struct HoleDraft {
    select: Option<ElementSelector>,
    include: Option<String>,
}

/// A token while it is read.
#[derive(Debug, Default)]
pub(in crate::config) struct TokenDraft {
    select: Option<ElementSelector>,
    attribute: String,
    variable: Option<String>,
    from: Option<String>,
    wait: bool,
}

fn hole(value: &Value, mistakes: &mut Mistakes) -> Option<Hole> {
    let table = mistakes.ok(value.table())?;
    let mut draft = HoleDraft::default();
    table.apply(HOLE, &mut draft, mistakes);
    needs(&table, &["select"], value, mistakes);
    needs(&table, &["include"], value, mistakes);
    table.refuse_rest_inside("holes", mistakes);
    Some(Hole {
        select: draft.select?,
        include: draft.include?,
    })
}

fn token(value: &Value, mistakes: &mut Mistakes) -> Option<Token> {
    let table = mistakes.ok(value.table())?;
    let mut draft = TokenDraft {
        attribute: "value".to_owned(),
        ..TokenDraft::default()
    };
    table.apply(TOKEN, &mut draft, mistakes);
    needs(&table, &["select", "variable"], value, mistakes);
    needs(&table, &["from"], value, mistakes);
    table.refuse_rest_inside("tokens", mistakes);
    let place = match (draft.select, draft.variable) {
        (Some(_), Some(_)) => {
            mistakes.note(super::exclusive(&value.place, "select", "variable"));
            return None;
        }
        (Some(select), None) => TokenPlace::Attribute(select, draft.attribute),
        (None, Some(name)) => TokenPlace::Variable(name),
        (None, None) => return None,
    };
    let (from, wait) = (draft.from?, draft.wait);
    Some(Token { place, from, wait })
}

/// Notes a table that has none of these options.
fn needs(table: &raw::Table<'_>, names: &[&'static str], value: &Value, mistakes: &mut Mistakes) {
    if names.iter().all(|name| table.get(name).is_none()) {
        let what = format!("`{}` is missing", names.join("` or `"));
        mistakes.note(Mistake::new(&value.place, what));
    }
}

/// Checks for contradictory options of changed pages.
pub(in crate::config) fn check_page_edits(
    draft: &RouteDraft,
    table: &raw::Table<'_>,
    mistakes: &mut Mistakes,
) {
    let edits = &draft.route.page_edits;
    let waits = edits.tokens.iter().any(|token| token.wait);
    if edits.assembly == Assembly::Browser
        && waits
        && let Some(value) = table.get("tokens").or(table.get("edge_assembly"))
    {
        let what = "`wait = true` has no effect with edge_assembly = \"browser\"";
        mistakes.note(Mistake::new(&value.place, what).remedy("remove one of them"));
    }
}

/// Parses the URL of a fragment on the page's own host.
fn fragment_url(text: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"*\"'<>`\\#".contains(&byte);
    let path = text.split('?').next().unwrap_or_default();
    let own: FragmentPaths = [path].into_iter().collect();
    let is_own = own.target(text.as_bytes(), b"", b"/").as_deref() == Ok(text.as_bytes());
    if text.starts_with('/') && text.bytes().all(is_plain) && is_own {
        Ok(text.to_owned())
    } else {
        Err("write a path on the same host, such as \"/cart-box\"".to_owned())
    }
}

fn attribute_name(text: &str) -> Result<String, String> {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b':');
    if text.is_empty() || !text.bytes().all(is_of_name) {
        return Err("write the name of an attribute".to_owned());
    }
    Ok(text.to_ascii_lowercase())
}

fn variable_name(text: &str) -> Result<String, String> {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$');
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(is_of_name);
    if !text.split('.').all(is_name) {
        return Err("write names with dots between, such as \"wpApiSettings.nonce\"".to_owned());
    }
    Ok(text.to_owned())
}
