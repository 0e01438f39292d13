//! Compression dictionary transport (RFC 9842): the version of a page that a client has is the dictionary for the next
//! one.

use sfv::{BareItem, Item, Parser};

use crate::compression::is_no_transform;
use crate::fields::{Fields, FieldsBuf};
use crate::key;
use crate::vary::Codings;

pub use crate::coding::DictionaryCoding;

/// The SHA-256 hash of a dictionary.
pub type DictionaryHash = [u8; 32];

/// The dictionary that a client offers, and the coding to use: `preferred` if the client accepts both. A field that is
/// not exactly one hash counts as absent (RFC 9842 §2.2).
pub fn available(
    request: Fields<'_>,
    preferred: DictionaryCoding,
) -> Option<(DictionaryHash, DictionaryCoding)> {
    let mut lines = request.all("available-dictionary");
    let (value, None) = (lines.next()?, lines.next()) else {
        return None;
    };
    let item: Item = Parser::new(value).parse().ok()?;
    let BareItem::ByteSequence(hash) = item.bare_item else {
        return None;
    };
    let hash = hash.try_into().ok()?;
    let accepted = Codings::accepted(request);
    let mut codings = [preferred, preferred.other()].into_iter();
    let coding = codings.find(|coding| accepted.has(coding.as_str()))?;
    let forbidden = request.members("cache-control").any(is_no_transform);
    (!forbidden).then_some((hash, coding))
}

/// Adds `Use-As-Dictionary` for the url of a key, unless the response has that field. Not for urls with characters that
/// are special in a pattern (RFC 9842 §2.1.1).
pub fn note_dictionary(fields: &mut FieldsBuf, key: &[u8]) {
    if fields.fields().contains("use-as-dictionary") {
        return;
    }
    if let Some((_, _, path, query)) = key::url_of(key)
        && let Some(pattern) = pattern(path, query)
    {
        fields.push("Use-As-Dictionary", format!("match=\"{pattern}\""));
    }
}

/// The match pattern for one url, escaped for a String.
fn pattern(path: &[u8], query: Option<&[u8]>) -> Option<String> {
    let plain = |part: &[u8]| {
        let is_plain = |b: &u8| b.is_ascii_alphanumeric() || b"/-._~%!$&',;=@".contains(b);
        part.iter()
            .all(is_plain)
            .then(|| String::from_utf8_lossy(part).into_owned())
    };
    let mut pattern = plain(path)?;
    if let Some(query) = query {
        // The pattern escapes the question mark, and the String the backslash.
        pattern.push_str("\\\\?");
        pattern.push_str(&plain(query)?);
    }
    Some(pattern)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fields;

    const HASH: &str = ":pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2fFG4=:";

    fn check(request: &str, expected: bool) {
        let found = available(fields(request).fields(), DictionaryCoding::Dcz);
        assert_eq!(found.is_some(), expected, "{request}");
        assert!(found.is_none_or(|(hash, _)| hash[..3] == [0xa5, 0x91, 0xa6]));
    }

    #[test]
    fn of_two_codings_that_a_client_accepts_the_operator_prefers_one() {
        use DictionaryCoding::{Dcb, Dcz};
        for (accepted, preferred, expected) in [
            ("dcb, dcz", Dcz, Some(Dcz)),
            ("dcb, dcz", Dcb, Some(Dcb)),
            ("br, dcb", Dcz, Some(Dcb)),
            ("dcz, dcb;q=0", Dcb, Some(Dcz)),
            ("br, zstd", Dcz, None),
        ] {
            let request = fields(&format!(
                "Accept-Encoding: {accepted}\nAvailable-Dictionary: {HASH}"
            ));
            let found = available(request.fields(), preferred).map(|(_, coding)| coding);
            assert_eq!(found, expected, "{accepted}");
        }
    }

    #[test]
    fn a_dictionary_is_one_hash_and_the_coding_is_accepted() {
        let dcz = "Accept-Encoding: gzip, br, zstd, dcb, dcz";
        check(&format!("{dcz}\nAvailable-Dictionary: {HASH}"), true);
        for (accepted, dictionary) in [
            ("Accept-Encoding: gzip, br, zstd", HASH),
            ("Accept-Encoding: *", HASH),
            ("Accept-Encoding: dcz;q=0", HASH),
            ("Cache-Control: no-transform\nAccept-Encoding: dcz", HASH),
            (dcz, ""),
            (dcz, "pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2fFG4="),
            (dcz, ":pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2fFG4"),
            (dcz, ":pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2f:"),
            (dcz, ":!:"),
            (dcz, "\"pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2fFG4=\""),
        ] {
            check(
                &format!("{accepted}\nAvailable-Dictionary: {dictionary}"),
                false,
            );
        }
        let twice = format!("Available-Dictionary: {HASH}");
        check(&format!("{dcz}\n{twice}\n{twice}"), false);
    }

    #[test]
    fn a_pattern_is_for_one_url() {
        for (path, query, expected) in [
            ("/", None, Some("/")),
            ("/a-b_c.html", None, Some("/a-b_c.html")),
            ("/a%20b", None, Some("/a%20b")),
            ("/p", Some("a=1&b=2"), Some("/p\\\\?a=1&b=2")),
            ("/p", Some(""), Some("/p\\\\?")),
            ("/*", None, None),
            ("/a(b)", None, None),
            ("/a:b", None, None),
            ("/a+", None, None),
            ("/p", Some("a={1}"), None),
            ("/a\"b", None, None),
        ] {
            let found = pattern(path.as_bytes(), query.map(str::as_bytes));
            assert_eq!(found.as_deref(), expected, "{path}");
        }
    }
}
