//! Options of access, at the top for all routes or in one route.

use super::super::access::block;
use super::super::cidr::Cidr;
use super::super::mistake::{Mistake, Mistakes};
use super::super::option::Form::List;
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
];

fn blocks(value: &Value, mistakes: &mut Mistakes) -> Vec<Cidr> {
    if value.items().is_empty() {
        mistakes.note(
            Mistake::new(&value.place, "the list is empty")
                .remedy("write allow = \"all\" to admit every client"),
        );
    }
    value.each(mistakes, |item| item.parse(block))
}
