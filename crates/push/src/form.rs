//! Parser of `application/x-www-form-urlencoded`, as the URL Standard defines it: publications and queries.

use microcache_policy::query::{decoded, parameters};

/// Error: a name or a value is not UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotUtf8;

/// Iterates over the names and values, in order. A name without `=` has an empty value.
pub(crate) fn pairs(text: &[u8]) -> impl Iterator<Item = Result<(String, String), NotUtf8>> {
    parameters(text).filter(|it| !it.is_empty()).map(|it| {
        let equals = it.iter().position(|&byte| byte == b'=');
        let (name, value) = it.split_at(equals.unwrap_or(it.len()));
        Ok((text_of(name)?, text_of(value.get(1..).unwrap_or_default())?))
    })
}

fn text_of(coded: &[u8]) -> Result<String, NotUtf8> {
    String::from_utf8(decoded(coded).collect()).map_err(|_| NotUtf8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_names_and_values_in_order() {
        for (text, expected) in [
            ("", &[][..]),
            ("topic=a&data=b", &[("topic", "a"), ("data", "b")]),
            ("topic=a&topic=b", &[("topic", "a"), ("topic", "b")]),
            ("a+b=c%20d%0A", &[("a b", "c d\n")]),
            ("private&&x=", &[("private", ""), ("x", "")]),
            ("x=a=b&=c", &[("x", "a=b"), ("", "c")]),
            ("x=%C3%A9%zz%", &[("x", "é%zz%")]),
            ("a;b=c", &[("a;b", "c")]),
        ] {
            let read: Result<Vec<_>, _> = pairs(text.as_bytes()).collect();
            let read = read.expect("it is UTF-8");
            let read: Vec<_> = read.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            assert_eq!(read, expected, "{text}");
        }
        assert_eq!(pairs(b"x=%FF").next(), Some(Err(NotUtf8)));
    }
}
