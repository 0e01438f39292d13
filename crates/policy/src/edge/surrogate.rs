//! The fields by which an origin and a surrogate agree on the tags of a page (W3C NOTE edge-arch).

use memchr::{memchr, memchr2};

use crate::fields::{Fields, FieldsBuf, split_list};
use crate::targeted::SURROGATE_CONTROL;

/// The field that announces [`CAPABILITY`] to origins.
pub const CAPABILITY_FIELD: &[u8] = b"Surrogate-Capability";

/// The value of `Surrogate-Capability` in requests whose responses may have tags. It is constant, so it needs no place
/// in keys.
pub const CAPABILITY: &str = "microcache=\"ESI/1.0\"";

/// The name of this surrogate, for directives that name their recipient.
const DEVICE: &[u8] = b"microcache";
const LANGUAGE: &[u8] = b"ESI/1.0";

/// A directive `content="LANGUAGE LANGUAGE";RECIPIENT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ContentDirective<'a> {
    languages: &'a [u8],
    /// The recipient with its semicolon, or nothing.
    recipient: &'a [u8],
}

impl<'a> ContentDirective<'a> {
    /// Reads a member of `Surrogate-Control`; `None` if it is another directive, addresses another surrogate, or has
    /// quotes or escapes in the languages.
    fn read(member: &'a [u8]) -> Option<Self> {
        let at = memchr(b'=', member)?;
        if !member[..at].trim_ascii().eq_ignore_ascii_case(b"content") {
            return None;
        }
        let value = member[at + 1..].trim_ascii();
        let (languages, recipient) = match value.strip_prefix(b"\"") {
            Some(inside) => {
                let end = memchr(b'"', inside)?;
                (&inside[..end], &inside[end + 1..])
            }
            None => value.split_at(memchr(b';', value).unwrap_or(value.len())),
        };
        let recipient = recipient.trim_ascii();
        let is_ours = match recipient.strip_prefix(b";") {
            Some(name) => name.trim_ascii().eq_ignore_ascii_case(DEVICE),
            None => recipient.is_empty(),
        };
        let is_plain = memchr2(b'"', b'\\', languages).is_none();
        (is_ours && is_plain).then_some(Self {
            languages,
            recipient,
        })
    }

    fn languages(self) -> impl Iterator<Item = &'a [u8]> {
        let all = self.languages.split(u8::is_ascii_whitespace);
        all.filter(|language| !language.is_empty())
    }

    fn has_tags(self) -> bool {
        self.languages().any(is_language)
    }

    /// The directive without the language of our tags; `None` if it has no other.
    fn without_tags(self) -> Option<Vec<u8>> {
        let others = self.languages().filter(|language| !is_language(language));
        let others = others.collect::<Vec<_>>().join(&b' ');
        let parts = [&b"content=\""[..], &others, b"\"", self.recipient];
        (!others.is_empty()).then(|| parts.concat())
    }
}

/// Returns true if a response announces tags to this surrogate.
pub fn announces_tags(response: Fields<'_>) -> bool {
    let mut members = response.members(SURROGATE_CONTROL);
    members.any(|member| ContentDirective::read(member).is_some_and(ContentDirective::has_tags))
}

/// Removes the announcement of tags that are replaced here. Directives for other surrogates stay, except those with a
/// quoted string that does not end: it would take in the directive behind it.
pub fn remove_announcement(response: &mut FieldsBuf) {
    if !announces_tags(response.fields()) {
        return;
    }
    let members = response.fields().members(SURROGATE_CONTROL);
    let left: Vec<Vec<u8>> = members
        .filter_map(|member| match ContentDirective::read(member) {
            Some(content) => content.without_tags(),
            None => ends_all_strings(member).then(|| member.to_vec()),
        })
        .collect();
    response.remove(SURROGATE_CONTROL);
    if !left.is_empty() {
        response.push(SURROGATE_CONTROL, left.join(&b", "[..]));
    }
}

/// Returns true if a member remains one when another follows.
fn ends_all_strings(member: &[u8]) -> bool {
    split_list(&[member, b",x"].concat()).nth(1).is_some()
}

fn is_language(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(LANGUAGE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fields;

    #[test]
    fn tags_are_announced_to_this_surrogate() {
        for (lines, expected) in [
            ("Surrogate-Control: content=\"ESI/1.0\"", true),
            ("surrogate-control: CONTENT = \"esi/1.0\"", true),
            ("Surrogate-Control: content=ESI/1.0", true),
            (
                "Surrogate-Control: max-age=30+60, content=\"ESI-INL/1.0 ESI/1.0\"",
                true,
            ),
            (
                "Surrogate-Control: no-store\nSurrogate-Control: content=\"ESI/1.0\"",
                true,
            ),
            ("Surrogate-Control: content=\"ESI/1.0\";microcache", true),
            ("Surrogate-Control: content=\"ESI/1.0\" ; Microcache", true),
            ("Surrogate-Control: content=\"ESI/1.0\";akamai", false),
            ("Surrogate-Control: content=\"ESI/1.0\"x", false),
            ("Surrogate-Control: content=\"ESI/1.1\"", false),
            ("Surrogate-Control: content=\"ESI/1.0", false),
            ("Surrogate-Control: content=ESI/1.0 X\"Y\"", false),
            ("Surrogate-Control: content=\"ESI/1.0 \\X\"", false),
            ("Surrogate-Control: content", false),
            ("Surrogate-Control: x=\"content=ESI/1.0\"", false),
            ("Surrogate-Control: no-store, max-age=5", false),
            ("X-Surrogate-Control: content=\"ESI/1.0\"", false),
            ("Cache-Control: content=\"ESI/1.0\"", false),
            ("", false),
        ] {
            assert_eq!(announces_tags(fields(lines).fields()), expected, "{lines}");
        }
    }

    #[test]
    fn only_the_announcement_is_removed() {
        for (lines, left) in [
            ("A: 1\nSurrogate-Control: content=\"ESI/1.0\"", "A: 1\r\n"),
            (
                "Surrogate-Control: max-age=30, content=\"ESI/1.0\", no-store-remote\nA: 1",
                "A: 1\r\nSurrogate-Control: max-age=30, no-store-remote\r\n",
            ),
            (
                "Surrogate-Control: content=\"X/1.0 ESI/1.0  Y/1.0\";microcache",
                "Surrogate-Control: content=\"X/1.0 Y/1.0\";microcache\r\n",
            ),
            (
                "Surrogate-Control: content=\"ESI/1.0\", content=\"ESI/1.0\";other",
                "Surrogate-Control: content=\"ESI/1.0\";other\r\n",
            ),
            (
                "surrogate-control: content=\"ESI/1.0\";other",
                "surrogate-control: content=\"ESI/1.0\";other\r\n",
            ),
            (
                "surrogate-control: no-store",
                "surrogate-control: no-store\r\n",
            ),
            (
                "Surrogate-Control: content=\"ESI/1.0\", a=\"b\", c=\"\nSurrogate-Control: d=\", content=ESI/1.0",
                "Surrogate-Control: a=\"b\"\r\n",
            ),
            (
                "Surrogate-Control: content=ESI/1.0 a\"b, c, content=ESI/1.0 a\"b, content=ESI/1.0",
                "Surrogate-Control: content=ESI/1.0 a\"b, c, content=ESI/1.0 a\"b\r\n",
            ),
        ] {
            let mut response = fields(lines);
            remove_announcement(&mut response);
            assert!(!announces_tags(response.fields()), "{lines}");
            let text = response.into_block();
            assert_eq!(String::from_utf8_lossy(&text), left, "{lines}");
        }
    }
}
