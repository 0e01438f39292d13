//! Encoder of requests.

use super::params::Params;
use super::{HEADER, MAX_CONTENT, REQUEST_ID, VERSION, kind};

/// Role of an application that answers requests.
const RESPONDER: u8 = 1;
/// The application leaves the connection open.
const KEEP_CONNECTION: u8 = 1;

/// Appends the beginning of a request: its role and all its variables.
pub fn head(out: &mut Vec<u8>, params: &Params, keep_alive: bool) {
    out.extend_from_slice(&header(kind::BEGIN_REQUEST, 8));
    let flags = if keep_alive { KEEP_CONNECTION } else { 0 };
    out.extend_from_slice(&[0, RESPONDER, flags, 0, 0, 0, 0, 0]);
    for part in params.as_bytes().chunks(MAX_CONTENT) {
        out.extend_from_slice(&header(kind::PARAMS, part.len()));
        out.extend_from_slice(part);
    }
    out.extend_from_slice(&header(kind::PARAMS, 0));
}

/// Returns the header of a record with at most [`MAX_CONTENT`] bytes of the request body; a record without content ends
/// the body.
pub fn body(length: usize) -> [u8; HEADER] {
    header(kind::STDIN, length)
}

fn header(kind: u8, length: usize) -> [u8; HEADER] {
    debug_assert!(length <= MAX_CONTENT, "a record of {length} bytes");
    let [id_1, id_0] = REQUEST_ID.to_be_bytes();
    let [length_1, length_0] = (length as u16).to_be_bytes();
    [VERSION, kind, id_1, id_0, length_1, length_0, 0, 0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_framed_by_records() {
        let mut params = Params::default();
        params.push("A", &[b"b"]);
        let mut out = Vec::new();
        head(&mut out, &params, false);
        let expected = [
            &b"\x01\x01\x00\x01\x00\x08\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00"[..],
            b"\x01\x04\x00\x01\x00\x04\x00\x00\x01\x01Ab",
            b"\x01\x04\x00\x01\x00\x00\x00\x00",
        ];
        assert_eq!(out, expected.concat());
        assert_eq!(body(0x1234), *b"\x01\x05\x00\x01\x12\x34\x00\x00");
        out.clear();
        head(&mut out, &Params::default(), true);
        assert_eq!(out[10], 1, "the connection stays open");
    }

    #[test]
    fn many_variables_take_several_records() {
        let mut params = Params::default();
        params.push("A", &[&vec![b'x'; 2 * MAX_CONTENT]]);
        let mut out = Vec::new();
        head(&mut out, &params, false);
        let (mut rest, mut lengths, mut content) = (&out[16..], Vec::new(), Vec::new());
        while let [1, 4, 0, 1, high, low, 0, 0, after @ ..] = rest {
            let (part, after) = after.split_at(usize::from(u16::from_be_bytes([*high, *low])));
            lengths.push(part.len());
            content.extend_from_slice(part);
            rest = after;
        }
        assert_eq!(lengths, [MAX_CONTENT, MAX_CONTENT, 6, 0]);
        assert_eq!(content, params.as_bytes());
    }
}
