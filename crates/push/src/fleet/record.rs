//! The format of a document in Redis, described in `begin.lua`.

use bytes::Bytes;
use microcache_policy::Time;

use crate::changes::change::{Delta, DocumentChange, DocumentContent};
use crate::name::DocumentName;

/// Encodes the content: media type, newline, body.
pub(super) fn content(content: &DocumentContent) -> Vec<u8> {
    [content.media_type.as_bytes(), b"\n", &content.body].concat()
}

/// Encodes the patch of the previous version, if any.
pub(super) fn difference(delta: Option<&Delta>) -> Vec<u8> {
    delta.map_or_else(Vec::new, |delta| {
        let mut out = format!("{} ", delta.from).into_bytes();
        out.extend_from_slice(&delta.patch);
        out
    })
}

/// Decodes a document; `here` converts an expiry time of the server to the local clock.
pub(super) fn decode(
    name: DocumentName,
    record: &Bytes,
    here: impl Fn(u64) -> Time,
) -> Option<DocumentChange> {
    let end = record.iter().position(|&byte| byte == b'\n')?;
    let head = std::str::from_utf8(&record[..end]).ok()?;
    let mut numbers = head.split(' ').map(|word| word.parse::<u64>().ok());
    let mut next = || numbers.next().flatten();
    let (number, expires, _size, from, length) = (next()?, next()?, next()?, next()?, next()?);
    let rest = record.slice(end + 1..);
    let length = usize::try_from(length).ok()?;
    if length > rest.len() {
        return None;
    }
    let (patch, content) = (rest.slice(..length), rest.slice(length..));
    let end = content.iter().position(|&byte| byte == b'\n')?;
    let media_type = std::str::from_utf8(&content[..end]).ok()?;
    if media_type.chars().any(|it| it.is_control() && it != '\t') {
        return None;
    }
    let delta = (from > 0).then(|| Delta {
        from,
        patch: Bytes::copy_from_slice(&patch),
    });
    Some(DocumentChange {
        number,
        name,
        content: Some(DocumentContent {
            media_type: media_type.into(),
            // A slice would keep the whole reply in memory.
            body: Bytes::copy_from_slice(&content[end + 1..]),
        }),
        expires: (expires > 0).then(|| here(expires)),
        delta,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(record: &str) -> Option<DocumentChange> {
        let record = Bytes::copy_from_slice(record.as_bytes());
        decode("/live/x".into(), &record, Time::from_millis)
    }

    #[test]
    fn only_valid_records_are_read() {
        let change = read("17 9 512 16 7\n{\"a\":1}text/plain\na\nb").expect("a document");
        assert_eq!(change.number, 17);
        assert_eq!(change.expires, Some(Time::from_millis(9)));
        let delta = change.delta.as_ref().expect("a patch");
        assert_eq!((delta.from, &delta.patch[..]), (16, &b"{\"a\":1}"[..]));
        let known = change.content.as_ref().expect("it is there");
        assert_eq!(
            (&*known.media_type, &known.body[..]),
            ("text/plain", &b"a\nb"[..])
        );
        assert_eq!(content(known), b"text/plain\na\nb");
        assert_eq!(difference(change.delta.as_ref()), b"16 {\"a\":1}");
        let plain = read("17 0 512 0 0\n\n").expect("a document");
        assert!(plain.expires.is_none() && plain.delta.is_none());
        for other in [
            "",
            "17",
            "17 0 512 0 0",
            "17 0 512 0 9\n\n",
            "17 0 512 0 0\n",
            "x 0 1 0 0\n\n",
            "1 0 1 0\n\n",
            "17 0 512 0 0\ntext/plain\rX: y\n",
        ] {
            assert!(read(other).is_none(), "{other}");
        }
    }
}
