//! The head of a composed page.

use bytes::Bytes;
use microcache_engine::Response;
use microcache_policy::edge::ComposedLifetime;
use microcache_policy::known_name::names;
use microcache_policy::validate::{Precondition, not_modified_keeps, precondition};
use microcache_policy::{Fields, FieldsBuf, RequestFacts};

use super::super::header_rules::is_shared;
use super::fragment::Fragment;
use super::page_request::PageRequest;

/// Returns the fields of a page with parts that are still to come, which may be for one client. What the application
/// forbids stays forbidden, in words that every cache reads alike: `no-store` beside `must-understand` does not bind all
/// of them.
pub(super) fn unknown(shell: &Response) -> FieldsBuf {
    let lifetime = ComposedLifetime::of(shell.fields(), 0, is_shared(shell));
    let lifetime = lifetime.and(ComposedLifetime::UNKNOWN);
    lifetime.fields(shell.fields(), std::iter::empty())
}

/// Returns the fields of a page whose parts are all there.
pub(super) fn known<'a>(
    shell: &Response,
    fragments: impl Iterator<Item = &'a Fragment> + Clone,
) -> FieldsBuf {
    let age = shell.age.unwrap_or_default();
    let lifetime = ComposedLifetime::of(shell.fields(), age, is_shared(shell));
    let lifetimes = fragments.clone().map(Fragment::lifetime);
    let lifetime = lifetimes.fold(lifetime, ComposedLifetime::and);
    lifetime.fields(shell.fields(), fragments.map(Fragment::fields))
}

/// Adds the cookies of fragments, with which the page is for one client.
pub(super) fn add_cookies(fields: &mut FieldsBuf, cookies: &[Bytes]) {
    if cookies.is_empty() {
        return;
    }
    let page = ComposedLifetime::of(fields.fields(), 0, false);
    let lifetime = page.and(ComposedLifetime::UNKNOWN);
    fields.set("Cache-Control", lifetime.cache_control());
    for cookie in cookies {
        fields.push("Set-Cookie", cookie);
    }
}

/// Returns true if the client has a page with these fields. Their entity tag is its only validator.
pub(super) fn is_current(request: &PageRequest, page: Fields<'_>) -> bool {
    let (head, session) = (request.head(), request.session());
    let asked = head.fields.fields();
    if asked.value(names::IF_NONE_MATCH).is_none() {
        return false;
    }
    let rules = session.shared.engine.rules(request.route());
    let facts = RequestFacts::read(&head.method, asked, false, rules);
    precondition(asked, &facts, 200, page, request.now()) == Precondition::NotModified
}

/// Makes the response confirm that the client has the page.
pub(super) fn confirm(response: &mut Response, fields: &mut FieldsBuf) {
    response.status = 304;
    response.length = None;
    response.cache_status.coding = None;
    fields.retain(|name, _| not_modified_keeps(name));
}
