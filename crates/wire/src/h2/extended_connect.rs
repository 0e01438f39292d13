//! Extended CONNECT for WebSocket (RFC 8441), read as the upgrade of HTTP/1 that it replaces.

use std::hash::{BuildHasher, RandomState};

use microcache_policy::KnownName;

use super::section_lines::SectionLines;

/// The protocol that extended CONNECT supports.
pub const PROTOCOL: &[u8] = b"websocket";

/// Adds the fields of an HTTP/1 upgrade in place of CONNECT.
pub(super) fn ask_in_http1(lines: &mut SectionLines) {
    // RFC 6455 §4.1: the key pairs the response with the request, and is not a secret.
    let random = RandomState::new();
    let number = u128::from(random.hash_one(0)) << 64 | u128::from(random.hash_one(1));
    for (name, value) in [
        (&b"connection"[..], &b"upgrade"[..]),
        (b"upgrade", PROTOCOL),
        (b"sec-websocket-key", &base64(number)),
    ] {
        lines.push(name, KnownName::of(name), value);
    }
}

/// Returns sixteen bytes in base64: 22 digits, of which the last has four bits of padding, and `==`.
fn base64(number: u128) -> [u8; 24] {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |at: usize| {
        let bits = match at {
            21 => number << 4,
            _ => number >> (122 - 6 * at),
        };
        DIGITS[(bits & 63) as usize]
    };
    std::array::from_fn(|at| if at < 22 { digit(at) } else { b'=' })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_bytes_are_written_in_base64() {
        for (bytes, expected) in [
            (b"the sample nonce", "dGhlIHNhbXBsZSBub25jZQ=="),
            (&[0xff; 16], "/////////////////////w=="),
        ] {
            assert_eq!(base64(u128::from_be_bytes(*bytes)), expected.as_bytes());
        }
    }
}
