//! Protocol upgrades that a cache may forward (RFC 9110 §7.8).

use crate::fields::{Fields, split_list};
use crate::known_name::names;
use crate::syntax::is_token;

/// Protocols that carry further requests: inside such a tunnel, no rule of this proxy would apply. A server may ignore
/// the offer, so it is removed.
const OF_REQUESTS: [&[u8]; 6] = [b"h2c", b"h2", b"h3", b"http", b"https", b"tls"];

/// Returns true if a request offers a protocol that may be tunnelled. Otherwise the offer is removed, and the request
/// is an ordinary one. HTTP/1.0 has no such offer; the caller checks the version.
pub fn is_requested(request: Fields<'_>) -> bool {
    let says_so = |option: &[u8]| option.eq_ignore_ascii_case(b"upgrade");
    let mut offers = request.values(names::UPGRADE).peekable();
    offers.peek().is_some()
        && offers.all(is_forwardable)
        && request
            .values(names::CONNECTION)
            .flat_map(split_list)
            .any(says_so)
}

/// Returns true if every offer of an `Upgrade` value may be forwarded: protocols other than HTTP, in exact syntax, so
/// that no other parser finds another offer.
fn is_forwardable(upgrade: &[u8]) -> bool {
    let mut offers = split_list(upgrade).peekable();
    offers.peek().is_some() && offers.all(is_foreign)
}

/// Returns true for `name` or `name/version`, both tokens, of a protocol without requests.
fn is_foreign(offer: &[u8]) -> bool {
    let mut parts = offer.split(|&b| b == b'/');
    let name = parts.next().unwrap_or_default();
    let well_formed = is_token(name) && parts.next().is_none_or(is_token) && parts.next().is_none();
    well_formed
        && !OF_REQUESTS
            .iter()
            .any(|known| name.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_protocols_may_and_versions_of_http_may_not() {
        for (upgrade, expected) in [
            ("websocket", true),
            ("foo/2", true),
            ("foo/2, WebSocket", true),
            ("", false),
            ("h2c", false),
            ("H2C", false),
            ("h2c/1.0", false),
            ("h2c/", false),
            ("h2", false),
            ("HTTP/2.0", false),
            ("TLS/1.2", false),
            ("websocket, h2c/1.0", false),
            ("websocket/13/h2c", false),
            ("\"websocket, h2c, x\"", false),
            ("h2c;q=1", false),
            ("web socket", false),
        ] {
            assert_eq!(is_forwardable(upgrade.as_bytes()), expected, "{upgrade}");
        }
    }
}
