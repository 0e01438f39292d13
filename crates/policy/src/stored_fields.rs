//! The fields of a response that are stored (RFC 9111 §3.1).

use crate::field_name::FieldName;
use crate::fields::FieldsBuf;
use crate::hop::{HOP_BY_HOP, is_hop_by_hop};
use crate::known_name::names;
use crate::name_set::NameSet;
use crate::response::ResponseFacts;
use crate::rules::SetCookie;
use crate::syntax::is_token;

/// The fields to store with a response, in their order and case. Left out are hop-by-hop fields, those listed in
/// `private="…"` and `no-cache="…"`, `Set-Cookie` unless the route stores it, `Age`, which has become part of the
/// lifetime, and framing fields, since the store knows the length.
pub fn fields_to_store(response: &ResponseFacts<'_>) -> FieldsBuf {
    let leaves_cookies =
        response.seen.has_set_cookie && response.rules.set_cookie != SetCookie::Store;
    let has_names = !response.seen.nominated.is_empty() || !response.said.qualified.is_empty();
    if !has_names && !response.fields.may_have(LEFT_OUT) {
        return response.fields.into();
    }
    let mut kept = FieldsBuf::with_capacity(response.fields.as_block().len());
    kept.extend_lines(response.fields, |line| {
        let name = line.field_name();
        let is = |one: &[u8]| one.eq_ignore_ascii_case(name.text());
        !(is_never_stored(name)
            || response.seen.nominated.stays_behind(name)
            || (leaves_cookies && name.is(names::SET_COOKIE))
            || response.said.qualified.iter().any(|one| is(one)))
    });
    kept
}

/// The fields of which some are left out.
const LEFT_OUT: NameSet = NameSet::of(&[
    names::AGE,
    names::CONTENT_LENGTH,
    names::SET_COOKIE,
    names::TRAILER,
])
.and(HOP_BY_HOP.known());

/// Returns true if a block can be sent in the head of a response: well-formed lines without framing and hop-by-hop
/// fields. For blocks from storage that other processes can write.
pub(crate) fn is_stored_form(block: &[u8]) -> bool {
    block.split_inclusive(|&b| b == b'\n').all(|line| {
        let Some((line, colon)) = line
            .strip_suffix(b"\r\n")
            .and_then(|line| Some((line, memchr::memchr(b':', line)?)))
        else {
            return false;
        };
        let (name, value) = (FieldName::of(&line[..colon]), &line[colon..]);
        is_token(name.text())
            && value
                .iter()
                .all(|&b| b == b'\t' || (b >= b' ' && b != 0x7f))
            && !is_never_stored(name)
            && !is_hop_by_hop(name)
    })
}

fn is_never_stored(name: FieldName<'_>) -> bool {
    name.is(names::AGE) || name.is(names::CONTENT_LENGTH) || name.is(names::TRAILER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::Fields;
    use crate::rules::Rules;

    fn check(set_cookie: SetCookie, response: &str, expected: &str) {
        let rules = Rules {
            set_cookie,
            ..Rules::default()
        };
        let fields = Fields::new(response.as_bytes());
        let stored = fields_to_store(&ResponseFacts::read(fields, &rules));
        assert_eq!(
            String::from_utf8_lossy(stored.fields().as_block()),
            expected,
            "{response:?}"
        );
        assert!(is_stored_form(expected.as_bytes()));
    }

    #[test]
    fn framing_age_and_hop_by_hop_fields_are_not_stored() {
        check(
            SetCookie::Refuse,
            "Date: x\r\nAge: 5\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\
             Trailer: T\r\nConnection: X-Hop\r\nX-Hop: 1\r\nx-A: 1\r\nETag: \"a\"\r\nX-a: 2\r\n",
            "Date: x\r\nx-A: 1\r\nETag: \"a\"\r\nX-a: 2\r\n",
        );
    }

    #[test]
    fn fields_named_by_private_and_no_cache_are_not_stored() {
        check(
            SetCookie::Store,
            "Cache-Control: private=\"X-User, x-b\", no-cache=Set-Cookie\r\n\
             x-user: me\r\nX-B: 1\r\nX-C: 2\r\nSet-Cookie: a=b\r\n",
            "Cache-Control: private=\"X-User, x-b\", no-cache=Set-Cookie\r\nX-C: 2\r\n",
        );
        check(
            SetCookie::Refuse,
            "CDN-Cache-Control: private=\"x-b\"\r\nCache-Control: private=\"x-c\"\r\n\
             X-B: 1\r\nX-C: 2\r\n",
            "CDN-Cache-Control: private=\"x-b\"\r\nCache-Control: private=\"x-c\"\r\nX-C: 2\r\n",
        );
    }

    #[test]
    fn set_cookie_is_stored_on_the_operators_word_only() {
        let response = "Set-Cookie: a=b\r\nX-A: 1\r\n";
        check(SetCookie::Refuse, response, "X-A: 1\r\n");
        check(SetCookie::Strip, response, "X-A: 1\r\n");
        check(SetCookie::Store, response, response);
    }
}
