//! Which offers to change the protocol may travel through a cache (RFC 9110 §7.8).

use crate::fields::{Fields, split_list};
use crate::syntax::is_token;

/// Protocols in which more requests would follow: once client and origin speak one of them in a
/// tunnel, no rule here applies to what is asked. The offer is one that a server may leave, so it
/// is left.
const OF_REQUESTS: [&[u8]; 6] = [b"h2c", b"h2", b"h3", b"http", b"https", b"tls"];

/// Whether a request with these fields asks to leave HTTP for a protocol that may be spoken through
/// here. If not, its offer stays here, and it is a request like any other. In HTTP/1.0 there is no such
/// offer, and whoever reads heads knows that.
pub fn is_asked_for(request: Fields<'_>) -> bool {
    let says_so = |option: &[u8]| option.eq_ignore_ascii_case(b"upgrade");
    let mut offers = request.all("upgrade").peekable();
    offers.peek().is_some() && offers.all(may_travel) && request.members("connection").any(says_so)
}

/// Whether all that a value of `Upgrade` offers may be passed on: other protocols than HTTP, each
/// written as the grammar has it, so that no other program finds another one in it.
fn may_travel(upgrade: &[u8]) -> bool {
    let mut offers = split_list(upgrade).peekable();
    offers.peek().is_some() && offers.all(is_foreign)
}

/// `name` or `name/version`, both tokens.
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
            assert_eq!(may_travel(upgrade.as_bytes()), expected, "{upgrade}");
        }
    }
}
