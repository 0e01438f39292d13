//! The head of a composed page.

use bytes::Bytes;
use microcache_engine::{Body, Response};
use microcache_policy::edge::{ComposedLifetime, composed_tag};
use microcache_policy::validate::{Precondition, not_modified_keeps, precondition};
use microcache_policy::{FieldBlock, FieldsBuf, RequestFacts};

use super::super::header_rules::is_shared;
use super::fragment::Fragment;
use super::page_request::PageRequest;

/// Writes the head of a page with parts that are still to come.
pub(super) fn put_unknown(response: &mut Response) {
    let fields = ComposedLifetime::UNKNOWN.fields(response.fields(), std::iter::empty());
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
    put_unknown_lifetime(response);
    let mut fields = FieldsBuf::from(response.fields());
    for cookie in cookies {
        fields.push("Set-Cookie", cookie);
    }
    response.fields = Some(FieldBlock::from(fields));
}

fn put_unknown_lifetime(response: &mut Response) {
    let mut fields = FieldsBuf::from(response.fields());
    fields.set("Cache-Control", "private, no-cache");
    response.fields = Some(FieldBlock::from(fields));
}

/// Adds the entity tag of a complete page, and answers a condition about it.
pub(super) fn validate(response: &mut Response, request: &PageRequest) {
    let Body::Full(body) = &response.body else {
        return;
    };
    if response.status != 200 {
        return;
    }
    let mut fields = FieldsBuf::from(response.fields());
    fields.push("ETag", composed_tag(body));
    let (head, session) = (request.head(), request.session());
    let rules = session.shared.engine.rules(request.route());
    let asked = head.fields.fields();
    let facts = RequestFacts::read(&head.method, asked, false, rules);
    let now = request.now();
    if precondition(asked, &facts, 200, fields.fields(), now) == Precondition::NotModified {
        response.status = 304;
        response.length = None;
        response.body = Body::Empty;
        fields.retain(|name, _| not_modified_keeps(name));
    }
    response.fields = Some(FieldBlock::from(fields));
}
