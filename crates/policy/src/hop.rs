//! Hop-by-hop fields (RFC 9110 §7.6.1).

use smallvec::SmallVec;

use crate::field_name::{FieldName, NameList};
use crate::fields::{Fields, FieldsBuf, is_one_of, split_list};
use crate::known_name::names;

/// Fields that are never forwarded, whether `Connection` names them or not.
pub(crate) const HOP_BY_HOP: NameList = NameList::new(&[
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "te",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
]);

/// Options of `Connection` that name no field to remove.
const PLAIN_OPTIONS: &[&str] = &[
    "close",
    "keep-alive",
    "te",
    "upgrade",
    "http2-settings",
    "proxy-connection",
    "trailer",
];

/// Fields that `Connection` cannot remove: without them the next hop would read another message, its length, host,
/// recipient, hop limit, or permissions (Varnish CVE-2022-45059).
const PROTECTED: NameList = NameList::new(&[
    "age",
    "authorization",
    "cache-control",
    "cdn-loop",
    "content-encoding",
    "content-length",
    "content-location",
    "content-range",
    "content-type",
    "cookie",
    "date",
    "etag",
    "expect",
    "expires",
    "forwarded",
    "host",
    "last-modified",
    "location",
    "max-forwards",
    "pragma",
    "set-cookie",
    "trailer",
    "vary",
    "via",
    "www-authenticate",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
]);

/// Returns true if a client accepts trailers (`TE: trailers`, RFC 9110 §10.1.4). The field is hop-by-hop.
pub fn takes_trailers(fields: Fields<'_>) -> bool {
    let mut codings = fields.values(names::TE).flat_map(split_list);
    codings.any(|coding| coding.eq_ignore_ascii_case(b"trailers"))
}

/// The end-to-end fields, in their order and case.
pub fn end_to_end(fields: Fields<'_>) -> FieldsBuf {
    let nominated = NominatedFields::by(fields);
    let mut kept = FieldsBuf::with_capacity(fields.as_block().len());
    kept.extend_lines(fields, |line| !nominated.stays_behind(line.field_name()));
    kept
}

/// The fields nominated by `Connection` that it may remove.
#[derive(Debug, Default)]
pub struct NominatedFields<'a>(SmallVec<[&'a [u8]; 2]>);

impl<'a> NominatedFields<'a> {
    /// The nominated fields of a message.
    pub fn by(fields: Fields<'a>) -> Self {
        let mut nominated = Self::default();
        for value in fields.values(names::CONNECTION) {
            nominated.note(value);
        }
        nominated
    }

    /// Returns true if no field is nominated.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the value of one line.
    pub(crate) fn note(&mut self, connection: &'a [u8]) {
        let options = split_list(connection);
        self.0.extend(options.filter(|option| is_removable(option)));
    }

    /// Returns true if a field of the same message is not forwarded: it is nominated, or always hop-by-hop.
    pub fn stays_behind(&self, name: FieldName<'_>) -> bool {
        let is_named = |one: &&[u8]| one.eq_ignore_ascii_case(name.text());
        is_hop_by_hop(name) || self.0.iter().any(is_named)
    }
}

/// Returns true if a `Connection` value nominates a field that would be removed: the origin then sees another request
/// than the cache.
pub(crate) fn names_fields(connection: &[u8]) -> bool {
    split_list(connection).any(is_removable)
}

/// Returns true if `name` is always hop-by-hop.
pub fn is_hop_by_hop(name: FieldName<'_>) -> bool {
    HOP_BY_HOP.has(name)
}

fn is_removable(option: &[u8]) -> bool {
    !is_one_of(option, PLAIN_OPTIONS) && !is_protected(option)
}

/// Targeted fields (RFC 9213) are recognized by their suffix: `Connection` must not decide about storing.
fn is_protected(name: &[u8]) -> bool {
    const TARGETED: &[u8] = b"-cache-control";
    let ending = &name[name.len().saturating_sub(TARGETED.len())..];
    PROTECTED.has(FieldName::of(name)) || ending.eq_ignore_ascii_case(TARGETED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(before: &str, after: &str) {
        let kept = end_to_end(Fields::new(before.as_bytes()));
        assert_eq!(
            String::from_utf8_lossy(kept.fields().as_block()),
            after,
            "{before:?}"
        );
    }

    #[test]
    fn hop_by_hop_fields_stay_behind_and_the_others_keep_order_and_case() {
        check(
            "X-B: 1\r\nConnection: close\r\nKeep-Alive: 5\r\nProxy-Connection: x\r\n\
             TE: trailers\r\nTransfer-Encoding: chunked\r\nUpgrade: h2c\r\n\
             Proxy-Authorization: x\r\nProxy-Authenticate: x\r\nTrailer: T\r\nx-a: 2\r\nX-B: 3\r\n",
            "X-B: 1\r\nTrailer: T\r\nx-a: 2\r\nX-B: 3\r\n",
        );
    }

    #[test]
    fn fields_named_in_connection_stay_behind() {
        check(
            "Connection: x-a, Close\r\nX-A: 1\r\nX-B: 2\r\nConnection: X-C\r\nx-c: 3\r\n",
            "X-B: 2\r\n",
        );
    }

    #[test]
    fn connection_cannot_remove_essential_fields() {
        let kept = "Host: a\r\nContent-Length: 3\r\nCache-Control: private\r\n\
                    CDN-Cache-Control: no-store\r\nSet-Cookie: a=b\r\nVary: x\r\n\
                    Cookie: a\r\nAuthorization: b\r\nX-Forwarded-For: c\r\n";
        let named = "content-length, host, cache-control, cdn-cache-control, set-cookie, vary, \
                     cookie, authorization, x-forwarded-for";
        check(&format!("Connection: {named}\r\n{kept}"), kept);
    }

    #[test]
    fn field_names_are_distinguished_from_plain_options() {
        for (value, expected) in [
            ("keep-alive, Upgrade, HTTP2-Settings", false),
            ("TE, close", false),
            ("Content-Length", false),
            ("close, X-Country", true),
            ("accept-language", true),
        ] {
            assert_eq!(names_fields(value.as_bytes()), expected, "{value}");
        }
    }
}
