//! Attributes of a tag: names, with values in either quote or without.

/// A name and its value; the value is empty if there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attribute<'a> {
    pub(super) name: &'a [u8],
    pub(super) value: &'a [u8],
}

/// Returns the attributes in the text between the name of a tag and its end; `None` at a name or a value that is not
/// one, and nothing after it.
pub(super) fn attributes(text: &[u8]) -> impl Iterator<Item = Option<Attribute<'_>>> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest.take()?.trim_ascii_start();
        if text.is_empty() {
            return None;
        }
        let next = attribute(text);
        rest = next.map(|(_, after)| after);
        Some(next.map(|(attribute, _)| attribute))
    })
}

fn attribute(text: &[u8]) -> Option<(Attribute<'_>, &[u8])> {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b':');
    let end = text
        .iter()
        .position(|byte| !is_name(byte))
        .unwrap_or(text.len());
    let (name, after) = text.split_at(end);
    let (value, rest) = match after.trim_ascii_start().strip_prefix(b"=") {
        Some(after) => value(after.trim_ascii_start())?,
        None => (&b""[..], after),
    };
    (!name.is_empty()).then_some((Attribute { name, value }, rest))
}

fn value(text: &[u8]) -> Option<(&[u8], &[u8])> {
    if let Some((quote @ (b'"' | b'\''), inside)) = text.split_first() {
        let end = memchr::memchr(*quote, inside)?;
        let rest = &inside[end + 1..];
        let is_end = rest.first().is_none_or(u8::is_ascii_whitespace);
        return is_end.then_some((&inside[..end], rest));
    }
    let end = text
        .iter()
        .position(u8::is_ascii_whitespace)
        .unwrap_or(text.len());
    let (value, rest) = text.split_at(end);
    let is_bare = |byte: &u8| !matches!(byte, b'"' | b'\'' | b'=' | b'<' | b'`');
    (!value.is_empty() && value.iter().all(is_bare)).then_some((value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> String {
        let all = attributes(text.as_bytes()).map(|it| match it {
            Some(it) => format!("{}={};", it.name.escape_ascii(), it.value.escape_ascii()),
            None => "?".to_owned(),
        });
        all.collect()
    }

    #[test]
    fn values_have_either_quote_or_none() {
        assert_eq!(
            check(" src=\"/a b\"  alt='/c\"d' onerror=continue "),
            "src=/a b;alt=/c\\\"d;onerror=continue;"
        );
        assert_eq!(check("src = \"/a\""), "src=/a;");
        assert_eq!(check("checked src=/a"), "checked=;src=/a;");
        assert_eq!(check("a=1\nb=2\tc=3"), "a=1;b=2;c=3;");
        assert_eq!(check(""), "");
    }

    #[test]
    fn what_is_no_attribute_ends_the_list() {
        for wrong in [
            "src=\"/a",
            "=/a",
            "k?=.",
            "src=",
            "src=\"/a\"alt=/b",
            "src=/a\"b",
            "src=/a=b",
            "src=<b",
        ] {
            assert!(check(wrong).ends_with('?'), "{wrong}");
        }
    }
}
