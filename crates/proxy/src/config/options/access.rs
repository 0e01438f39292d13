//! Options of access, at the top for all routes or in one route.

use std::sync::Arc;

use super::super::access::block;
use super::super::basic_auth::BasicAuth;
use super::super::cidr::Cidr;
use super::super::mistake::{Mistake, Mistakes};
use super::super::option::Form::{List, Table, Text};
use super::super::option::{Opt, optional};
use super::super::raw::Value;
use super::route::RouteDraft;

/// Options of access.
pub(in crate::config) const ACCESS: &[Opt<RouteDraft>] = &[
    optional(
        "allow",
        List("ADDRESS|BLOCK|all"),
        r#"["192.0.2.0/24", "2001:db8::/32"]"#,
    )
    .unset("all that are not denied")
    .help("Addresses or blocks of clients that are admitted; all others get 403")
    .more(
        "Behind a proxy in `trusted_proxies`, the client that it names in X-Forwarded-For. A route \
         with `allow` or `deny` inherits neither from the top. See [access](access.md).",
    )
    .sets(|r, v, m| r.route.addresses.allow = blocks(v, m)),
    optional("deny", List("ADDRESS|BLOCK|all"), r#"["203.0.113.0/24"]"#)
        .unset("no client")
        .help("Addresses or blocks of clients that get 403, even if `allow` has them")
        .more("`all` closes the route.")
        .sets(|r, v, m| r.route.addresses.deny = blocks(v, m)),
    optional(
        "basic_auth",
        Table("file and realm"),
        r#"{ file = "/etc/microcache/htpasswd", realm = "Staging" }"#,
    )
    .unset("no authentication")
    .help("Users with passwords (Basic authentication); all others get 401")
    .more(
        "`\"off\"` on a route overrides the top. Pages are shared by the users that are let in: the \
         password does not reach the application. See [access](access.md#by-password).",
    )
    .sets(set_basic_auth),
];

/// Options of Basic authentication.
pub(in crate::config) const BASIC_AUTH: &[Opt<BasicAuth>] = &[
    optional("file", Text("FILE"), "/etc/microcache/htpasswd")
        .help("File of users and bcrypt hashes, as `htpasswd -B` writes it")
        .more("A reload reads it again.")
        .sets(|b, v, m| m.put(&mut b.file, v.file().map(Some))),
    optional("realm", Text("NAME"), "Staging")
        .unset("`Restricted`")
        .help("Name of the protected pages, which browsers may show")
        .sets(|b, v, m| m.put(&mut b.realm, v.parse(realm))),
];

fn set_basic_auth(draft: &mut RouteDraft, value: &Value, mistakes: &mut Mistakes) {
    if value.text() == Ok("off") {
        draft.route.basic_auth = None;
        return;
    }
    let Some(table) = mistakes.ok(value.table()) else {
        return;
    };
    let mut basic = BasicAuth::new();
    table.apply(BASIC_AUTH, &mut basic, mistakes);
    table.refuse_rest_inside("basic_auth", mistakes);
    if value.entry("file").is_none() {
        let remedy = "add file = \"/etc/microcache/htpasswd\"";
        mistakes.note(Mistake::new(&value.place, "`basic_auth` has no `file`").remedy(remedy));
    }
    draft.route.basic_auth = Some(basic);
}

fn realm(text: &str) -> Result<Arc<str>, String> {
    let is_plain = |c: char| (' '..='~').contains(&c) && !"\"\\".contains(c);
    if text.chars().all(is_plain) {
        Ok(text.into())
    } else {
        Err("use ASCII without quotes and backslashes".to_owned())
    }
}

fn blocks(value: &Value, mistakes: &mut Mistakes) -> Vec<Cidr> {
    if value.items().is_empty() {
        mistakes.note(
            Mistake::new(&value.place, "the list is empty")
                .remedy("write allow = \"all\" to admit every client"),
        );
    }
    value.each(mistakes, |item| item.parse(block))
}
