//! Percent-encoding of paths (RFC 3986 §2.1): a plus sign is literal.

use std::fmt::Write;

/// Decodes the `%XX` that `text` begins with, if it does.
pub(crate) fn code(text: &[u8]) -> Option<u8> {
    let &[b'%', high, low, ..] = text else {
        return None;
    };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    Some((digit(high)? << 4 | digit(low)?) as u8)
}

/// Decodes `%XX`; `None` if a `%` begins no such code.
pub fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(&byte) = rest.first() {
        let (length, byte) = match byte {
            b'%' => (3, code(rest)?),
            byte => (1, byte),
        };
        out.push(byte);
        rest = &rest[length..];
    }
    Some(out)
}

/// Appends `text` to `out`, encoded. Unreserved characters (§2.3) and the bytes in `stays` are copied.
pub fn encode(text: &[u8], stays: &[u8], out: &mut String) {
    for &byte in text {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || stays.contains(&byte) {
            out.push(byte.into());
        } else {
            // Writing to a `String` cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoding_reverses_encoding() {
        let all: Vec<u8> = (0..=255).collect();
        for stays in [&b""[..], b"/", b"+:"] {
            let mut text = String::new();
            encode(&all, stays, &mut text);
            assert_eq!(decoded(text.as_bytes()).as_ref(), Some(&all));
        }
        let mut text = String::new();
        encode("a/b é~".as_bytes(), b"/", &mut text);
        assert_eq!(text, "a/b%20%C3%A9~");
    }

    #[test]
    fn invalid_codes_are_refused() {
        assert_eq!(decoded(b"a+b%2f%2F").as_deref(), Some(&b"a+b//"[..]));
        for wrong in ["%", "%4", "a%4x", "%+4", "%%41"] {
            assert_eq!(decoded(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
