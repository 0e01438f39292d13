//! The entities of XML in an attribute.

/// Decodes the five entities that XML defines; others stay as they are.
pub(super) fn decoded(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((&byte, after)) = rest.split_first() {
        let entity = ENTITIES.iter().find(|(name, _)| rest.starts_with(name));
        let (text, length) = entity.map_or((byte, 1), |(name, text)| (*text, name.len()));
        out.push(text);
        rest = if length == 1 { after } else { &rest[length..] };
    }
    out
}

const ENTITIES: [(&[u8], u8); 5] = [
    (b"&amp;", b'&'),
    (b"&lt;", b'<'),
    (b"&gt;", b'>'),
    (b"&quot;", b'"'),
    (b"&apos;", b'\''),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entities_are_decoded_once() {
        for (value, expected) in [
            ("/a?b=1&amp;c=2", "/a?b=1&c=2"),
            ("&lt;&gt;&quot;&apos;", "<>\"'"),
            ("&amp;amp;", "&amp;"),
            ("/a?b&c=&nbsp;&", "/a?b&c=&nbsp;&"),
        ] {
            assert_eq!(decoded(value.as_bytes()), expected.as_bytes(), "{value}");
        }
    }
}
