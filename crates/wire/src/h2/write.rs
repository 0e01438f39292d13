//! Serialisation of frames, never larger than every receiver accepts.

use super::frame::{HEADER, MAX_PAYLOAD, flag, kind};
use super::reason::ErrorCode;

/// Writes a frame header.
fn header(out: &mut Vec<u8>, length: usize, kind: u8, flags: u8, stream: u32) {
    debug_assert!(length <= MAX_PAYLOAD, "{length}");
    let mut header = [0; HEADER];
    header[..3].copy_from_slice(&(length as u32).to_be_bytes()[1..]);
    header[3] = kind;
    header[4] = flags;
    header[5..].copy_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(&header);
}

/// Writes a DATA frame.
pub fn data(out: &mut Vec<u8>, stream: u32, data: &[u8], ends: bool) {
    let flags = if ends { flag::END_STREAM } else { 0 };
    header(out, data.len(), kind::DATA, flags, stream);
    out.extend_from_slice(data);
}

/// Writes HEADERS and CONTINUATION frames. `block` writes the field block in place.
pub fn headers(out: &mut Vec<u8>, stream: u32, ends: bool, block: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    let ends = if ends { flag::END_STREAM } else { 0 };
    header(out, 0, kind::HEADERS, ends | flag::END_HEADERS, stream);
    block(out);
    let length = out.len() - start - HEADER;
    if length <= MAX_PAYLOAD {
        out[start..start + 3].copy_from_slice(&(length as u32).to_be_bytes()[1..]);
        return;
    }
    let block = out.split_off(start + HEADER);
    out.truncate(start);
    let mut parts = block.chunks(MAX_PAYLOAD).peekable();
    let (mut kind, mut flags) = (kind::HEADERS, ends);
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            flags |= flag::END_HEADERS;
        }
        header(out, part.len(), kind, flags, stream);
        out.extend_from_slice(part);
        (kind, flags) = (kind::CONTINUATION, 0);
    }
}

/// Writes `RST_STREAM`.
pub fn reset(out: &mut Vec<u8>, stream: u32, reason: ErrorCode) {
    header(out, 4, kind::RESET, 0, stream);
    out.extend_from_slice(&reason.code().to_be_bytes());
}

/// Writes SETTINGS.
pub fn settings(out: &mut Vec<u8>, settings: &[(u16, u32)]) {
    header(out, settings.len() * 6, kind::SETTINGS, 0, 0);
    for (identifier, value) in settings {
        out.extend_from_slice(&identifier.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// Writes SETTINGS with ACK.
pub fn settings_taken(out: &mut Vec<u8>) {
    header(out, 0, kind::SETTINGS, flag::ACK, 0);
}

/// Writes PING.
pub fn ping(out: &mut Vec<u8>, opaque: [u8; 8]) {
    header(out, 8, kind::PING, 0, 0);
    out.extend_from_slice(&opaque);
}

/// Writes PING with ACK.
pub fn pong(out: &mut Vec<u8>, opaque: [u8; 8]) {
    header(out, 8, kind::PING, flag::ACK, 0);
    out.extend_from_slice(&opaque);
}

/// Writes `WINDOW_UPDATE`.
pub fn window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    header(out, 4, kind::WINDOW_UPDATE, 0, stream);
    out.extend_from_slice(&increment.to_be_bytes());
}

/// Writes GOAWAY; streams above `last` are refused.
pub fn go_away(out: &mut Vec<u8>, last: u32, reason: ErrorCode, what: &str) {
    header(out, 8 + what.len(), kind::GO_AWAY, 0, 0);
    out.extend_from_slice(&last.to_be_bytes());
    out.extend_from_slice(&reason.code().to_be_bytes());
    out.extend_from_slice(what.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::super::frame::{Frame, read};
    use super::*;

    #[test]
    fn written_frames_are_parsed() {
        let mut out = Vec::new();
        data(&mut out, 1, b"abc", true);
        reset(&mut out, 3, ErrorCode::Cancel);
        settings(&mut out, &[(3, 128)]);
        settings_taken(&mut out);
        ping(&mut out, *b"12345678");
        pong(&mut out, *b"87654321");
        window_update(&mut out, 5, 7);
        go_away(&mut out, 5, ErrorCode::NoError, "bye");
        let mut frames = Vec::new();
        let mut rest = &out[..];
        while let Some((frame, length)) = read(rest).expect("what is written is right") {
            frames.push(frame);
            rest = &rest[length..];
        }
        assert_eq!(rest, b"");
        let expected = [
            Frame::Data {
                stream: 1,
                data: b"abc",
                flow: 3,
                ends: true,
            },
            Frame::Reset { stream: 3, code: 8 },
            Frame::Settings(&[0, 3, 0, 0, 0, 128]),
            Frame::SettingsTaken,
            Frame::Ping(*b"12345678"),
            Frame::Pong(*b"87654321"),
            Frame::WindowUpdate {
                stream: 5,
                increment: 7,
            },
            Frame::GoAway,
        ];
        assert_eq!(frames, expected);
    }

    #[test]
    fn a_long_field_block_is_split() {
        for length in [0, 1, MAX_PAYLOAD, MAX_PAYLOAD + 1, 3 * MAX_PAYLOAD, 40_000] {
            let block: Vec<_> = (0..length).map(|at| at as u8).collect();
            let mut out = b"before".to_vec();
            headers(&mut out, 9, true, |out| out.extend_from_slice(&block));
            let mut rest = &out[b"before".len()..];
            let (mut whole, mut is_complete) = (Vec::new(), false);
            while let Some((frame, length)) = read(rest).expect("what is written is right") {
                assert!(!is_complete);
                match frame {
                    Frame::Headers {
                        stream: 9,
                        fragment,
                        ends: true,
                        complete,
                    } if whole.is_empty() => {
                        whole.extend_from_slice(fragment);
                        is_complete = complete;
                    }
                    Frame::Continuation {
                        stream: 9,
                        fragment,
                        complete,
                    } => {
                        whole.extend_from_slice(fragment);
                        is_complete = complete;
                    }
                    other => panic!("{other:?}"),
                }
                rest = &rest[length..];
            }
            assert!(is_complete && rest.is_empty() && whole == block, "{length}");
        }
    }
}
