//! The part of a response's head that is forwarded, and the fields that decide how its body is received: read in one
//! pass.

use crate::field_name::FieldName;
use crate::fields::{Fields, FieldsBuf};
use crate::hop::{NominatedFields, is_hop_by_hop};
use crate::known_name::names;
use crate::request::{is_event_stream, is_grpc};
use crate::sign_in::is_challenge;

/// The part of a response's head that is forwarded.
#[derive(Debug)]
pub struct ForwardedResponse {
    /// The end-to-end fields without `Content-Length`, in their order and case.
    pub fields: FieldsBuf,
    /// The kind of its content.
    pub content: ContentKind,
    /// The response challenges its client to authenticate its connection, or confirms it (RFC 4559 §6).
    pub is_challenged: bool,
}

/// A kind of content, by the media type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentKind {
    /// An event stream, which may never end.
    EventStream,
    /// A gRPC call, in which both sides may speak for long.
    Call,
    /// Anything else.
    Other,
}

impl ForwardedResponse {
    /// Reads the fields of a response.
    pub fn read(fields: Fields<'_>) -> Self {
        let (mut nominated, mut media_type) = (NominatedFields::default(), None);
        let mut is_challenged = false;
        let mut kept = FieldsBuf::indexed(fields.as_block().len());
        kept.extend_lines(fields, |line| {
            match line.known() {
                Some(names::CONTENT_LENGTH) => return false,
                Some(names::CONNECTION) => nominated.note(line.value()),
                Some(names::CONTENT_TYPE) => {
                    media_type.get_or_insert(line.value());
                }
                _ => is_challenged |= is_challenge(line),
            }
            !is_hop_by_hop(line.field_name())
        });
        if !nominated.is_empty() {
            kept.retain(|name, _| !nominated.stays_behind(FieldName::of(name)));
        }
        let content = match media_type {
            Some(media_type) if is_event_stream(media_type) => ContentKind::EventStream,
            Some(media_type) if is_grpc(media_type) => ContentKind::Call,
            _ => ContentKind::Other,
        };
        Self {
            fields: kept,
            content,
            is_challenged,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hop::end_to_end;
    use crate::testing::fields;

    fn read(lines: &str) -> ForwardedResponse {
        ForwardedResponse::read(fields(lines).fields())
    }

    #[test]
    fn length_and_connection_stay_behind() {
        for (lines, left) in [
            ("", ""),
            ("content-length: 1", ""),
            (
                "A: 1\nCONTENT-LENGTH: 1\nB: Content-Length: 2",
                "A: 1\r\nB: Content-Length: 2\r\n",
            ),
            (
                "X-Content-Length: 1\nConnection: x-a\nX-A: 2\nContent-Length-X: 2",
                "X-Content-Length: 1\r\nContent-Length-X: 2\r\n",
            ),
        ] {
            assert_eq!(read(lines).fields.into_block(), left.as_bytes(), "{lines}");
        }
    }

    #[test]
    fn only_end_to_end_fields_are_left() {
        for name in crate::hop::HOP_BY_HOP.names() {
            for lines in [
                format!("A: 1\n{name}: x\nB: 2"),
                format!("{}: x, b\nA: 1\nB: 2", name.to_uppercase()),
            ] {
                let expected = end_to_end(fields(&lines).fields());
                assert_eq!(read(&lines).fields, expected, "{lines}");
            }
        }
    }

    #[test]
    fn the_first_media_type_counts() {
        for (lines, expected) in [
            ("", ContentKind::Other),
            ("Content-Type: text/html", ContentKind::Other),
            (
                "content-type: Text/Event-Stream; a=b",
                ContentKind::EventStream,
            ),
            ("Content-Type: application/grpc+proto", ContentKind::Call),
            (
                "Content-Type: text/html\nContent-Type: text/event-stream",
                ContentKind::Other,
            ),
        ] {
            assert_eq!(read(lines).content, expected, "{lines}");
        }
    }

    #[test]
    fn challenges_are_seen_beside_other_fields() {
        for (lines, expected) in [
            ("WWW-Authenticate: Basic\nA: 1", false),
            ("A: 1\nwww-authenticate: Negotiate", true),
            ("Proxy-Authenticate: NTLM\nA: 1", true),
            ("Persistent-Auth: true", true),
        ] {
            assert_eq!(read(lines).is_challenged, expected, "{lines}");
        }
    }
}
