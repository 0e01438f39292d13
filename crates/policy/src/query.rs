//! Query parameters as applications parse them, with their names decoded.

use crate::percent;

/// The parameters between the `&`.
pub fn parameters(query: &[u8]) -> impl Iterator<Item = &[u8]> {
    query.split(|&b| b == b'&')
}

/// Sorts parameters by their decoded names. Those of one name keep their order.
pub fn sort_by_name(parameters: &mut [&[u8]]) {
    parameters.sort_by(|a, b| decoded(name(a)).cmp(decoded(name(b))));
}

/// The name of a parameter, undecoded.
pub fn name(parameter: &[u8]) -> &[u8] {
    let equals = memchr::memchr(b'=', parameter);
    &parameter[..equals.unwrap_or(parameter.len())]
}

/// The parameters in every reading of one of them, undecoded: some parsers also split at `;`.
pub fn in_any_reading(parameter: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let divided = memchr::memchr(b';', parameter).is_some();
    let pieces = parameter
        .split(|&b| b == b';')
        .filter(move |piece| divided && !piece.is_empty());
    std::iter::once(parameter)
        .chain(pieces)
        .map(|pair| match memchr::memchr(b'=', pair) {
            Some(equals) => (&pair[..equals], &pair[equals + 1..]),
            None => (pair, &[][..]),
        })
}

/// Returns true if the decoded `text` matches a name, which may end in `*`.
pub fn takes_decoded(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.strip_suffix(b"*") {
        Some(beginning) => decoded(text)
            .take(beginning.len())
            .eq(beginning.iter().copied()),
        None => decoded(text).eq(pattern.iter().copied()),
    }
}

/// Decodes `%XX` and `+`. Invalid codes are left as they are.
pub fn decoded(text: &[u8]) -> impl Iterator<Item = u8> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (length, byte) = match (rest.first()?, percent::code(rest)) {
            (_, Some(code)) => (3, code),
            (b'+', None) => (1, b' '),
            (&byte, None) => (1, byte),
        };
        rest = &rest[length..];
        Some(byte)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_decoded_once_and_other_characters_stay() {
        for (text, expected) in [
            ("page", "page"),
            ("p%61ge", "page"),
            ("%70%61%67%65", "page"),
            ("a+b%20c", "a b c"),
            ("%2570", "%70"),
            ("%", "%"),
            ("%6", "%6"),
            ("%zz", "%zz"),
            ("%%61", "%a"),
            ("", ""),
        ] {
            let found: Vec<u8> = decoded(text.as_bytes()).collect();
            assert_eq!(String::from_utf8_lossy(&found), expected, "{text}");
        }
        assert_eq!(decoded(b"%ff%00").collect::<Vec<_>>(), [255, 0]);
    }

    #[test]
    fn a_semicolon_hides_nothing() {
        let names = |parameter: &'static str| -> Vec<_> {
            in_any_reading(parameter.as_bytes())
                .map(|(name, _)| String::from_utf8_lossy(name).into_owned())
                .collect()
        };
        assert_eq!(names("a=1"), ["a"]);
        assert_eq!(names("a=1;b=2"), ["a", "a", "b"]);
        assert_eq!(names(";b"), [";b", "b"]);
        assert_eq!(names(""), [""]);
    }
}
