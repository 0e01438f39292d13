//! Chunk extensions (RFC 9112 §7.1.1). They have no use here, but are parsed by their grammar, so that every
//! parser on the way finds the same end of the line.

use super::syntax::{TOKEN, VALUE, span};

/// Returns `true` if these bytes between a chunk size and its line end are extensions, or empty. They may
/// contain the characters of field values only.
pub(super) fn is_extension(mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        let Some(rest) = one(bytes) else {
            return false;
        };
        bytes = rest;
    }
    true
}

/// Returns the bytes behind the first extension: `;name` or `;name=value`, the value a token or quoted, with
/// white space around the separators.
fn one(bytes: &[u8]) -> Option<&[u8]> {
    let rest = after_space(bytes).strip_prefix(b";")?;
    let rest = token(after_space(rest))?;
    let Some(value) = after_space(rest).strip_prefix(b"=") else {
        return Some(rest);
    };
    match after_space(value) {
        [b'"', quoted @ ..] => after_quote(quoted),
        value => token(value),
    }
}

fn after_space(bytes: &[u8]) -> &[u8] {
    let spaces = bytes.iter().take_while(|b| matches!(b, b' ' | b'\t'));
    &bytes[spaces.count()..]
}

/// Returns the bytes behind the first token.
fn token(bytes: &[u8]) -> Option<&[u8]> {
    let (token, rest) = bytes.split_at(span(bytes, TOKEN));
    (!token.is_empty()).then_some(rest)
}

/// Returns the bytes behind a quoted string (RFC 9110 §5.6.4) whose opening quote is removed.
fn after_quote(mut bytes: &[u8]) -> Option<&[u8]> {
    loop {
        bytes = match bytes {
            [b'"', rest @ ..] => return Some(rest),
            [b'\\', escaped, rest @ ..] if is_text(*escaped) => rest,
            [b'\\', ..] | [] => return None,
            [plain, rest @ ..] if is_text(*plain) => rest,
            [..] => return None,
        };
    }
}

fn is_text(byte: u8) -> bool {
    span(&[byte], VALUE) == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_are_names_with_or_without_a_value() {
        for (bytes, expected) in [
            ("", true),
            (";a", true),
            (";a;b", true),
            (";a=b", true),
            (";a=b;c=d", true),
            (";a=\"b\"", true),
            (";a=\"\"", true),
            (";a=\"b;c=d\\\"e\\\\\";f", true),
            ("; a = b ; c", true),
            (";\ta=\t\"b\"", true),
            (" ", false),
            (";", false),
            (";;a", false),
            (";a;", false),
            (";a ", false),
            (";a b", false),
            (";=b", false),
            (";a=", false),
            (";a==b", false),
            (";a=b=c", false),
            (";a=\"b", false),
            (";a=\"b\\", false),
            (";a=\"b\"c", false),
            (";a=\"b\"\"c\"", false),
            (";a=b\"c\"", false),
            (";a/b", false),
            (";a=\u{e4}", false),
            (";a=\"\u{e4}\"", true),
            ("a", false),
        ] {
            assert_eq!(is_extension(bytes.as_bytes()), expected, "{bytes}");
        }
    }
}
