//! The head of a composed page.

use bytes::Bytes;
use microcache_engine::{Body, Response};
use microcache_policy::edge::ComposedLifetime;
use microcache_policy::validate::{Precondition, not_modified_keeps, precondition};
use microcache_policy::{Coding, FieldBlock, FieldsBuf, RequestFacts};

use super::super::header_rules::is_shared;
use super::fragment::Fragment;
use super::page_request::PageRequest;

/// Writes the head of a page with parts that are still to come, which may be for one client. What the application forbids
/// stays forbidden, in words that every cache reads alike: `no-store` beside `must-understand` does not bind all of them.
pub(super) fn put_unknown(response: &mut Response) {
    let shell = ComposedLifetime::of(response.fields(), 0, is_shared(response));
    let lifetime = shell.and(ComposedLifetime::UNKNOWN);
    let fields = lifetime.fields(response.fields(), std::iter::empty());
    response.fields = Some(FieldBlock::from(fields));
    response.age = None;
    response.length = None;
    response.body = Body::Empty;
}

/// Writes the head of a page whose parts are all there.
pub(super) fn put_known<'a>(
    response: &mut Response,
    fragments: impl Iterator<Item = &'a Fragment> + Clone,
) {
    let age = response.age.unwrap_or_default();
    let shell = ComposedLifetime::of(response.fields(), age, is_shared(response));
    let lifetimes = fragments.clone().map(Fragment::lifetime);
    let lifetime = lifetimes.fold(shell, ComposedLifetime::and);
    let fields = lifetime.fields(response.fields(), fragments.map(Fragment::fields));
    response.fields = Some(FieldBlock::from(fields));
}

/// Adds the cookies of fragments, with which the page is for one client.
pub(super) fn add_cookies(response: &mut Response, cookies: &[Bytes]) {
    if cookies.is_empty() {
        return;
    }
    let mut fields = FieldsBuf::from(response.fields());
    let page = ComposedLifetime::of(response.fields(), 0, false);
    let lifetime = page.and(ComposedLifetime::UNKNOWN);
    fields.set("Cache-Control", lifetime.cache_control());
    for cookie in cookies {
        fields.push("Set-Cookie", cookie);
    }
    response.fields = Some(FieldBlock::from(fields));
}

/// Writes that the page is sent in gzip.
pub(super) fn put_gzip(response: &mut Response) {
    let mut fields = FieldsBuf::from(response.fields());
    fields.push("Content-Encoding", Coding::Gzip.as_str());
    response.fields = Some(FieldBlock::from(fields));
}

/// Adds the entity tag of a complete page. Returns true if the client has the page, and the response confirms that.
pub(super) fn is_confirmed(response: &mut Response, request: &PageRequest, tag: &str) -> bool {
    if response.status != 200 {
        return false;
    }
    let mut fields = FieldsBuf::from(response.fields());
    fields.push("ETag", tag);
    let (head, session) = (request.head(), request.session());
    let rules = session.shared.engine.rules(request.route());
    let asked = head.fields.fields();
    let facts = RequestFacts::read(&head.method, asked, false, rules);
    let now = request.now();
    let precondition = precondition(asked, &facts, 200, fields.fields(), now);
    let is_confirmed = precondition == Precondition::NotModified;
    if is_confirmed {
        response.status = 304;
        response.length = None;
        response.cache_status.coding = None;
        fields.retain(|name, _| not_modified_keeps(name));
    }
    response.fields = Some(FieldBlock::from(fields));
    is_confirmed
}
