use proptest::prelude::*;

use super::*;

/// A frame with this header and payload.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

#[test]
fn every_kind_is_read() {
    let data = Frame::Data {
        stream: 1,
        data: b"ab",
        flow: 2,
        ends: true,
    };
    let padded = Frame::Data {
        stream: 1,
        data: b"ab",
        flow: 5,
        ends: false,
    };
    let headers = Frame::Headers {
        stream: 3,
        fragment: b"x",
        ends: false,
        complete: true,
    };
    for (kind, flags, stream, payload, expected) in [
        (kind::DATA, 1, 1, &b"ab"[..], data),
        (kind::DATA, 8, 0x8000_0001, b"\x02ab\0\0", padded),
        (kind::HEADERS, 4, 3, b"x", headers),
        (kind::HEADERS, 4 | 32, 3, b"\0\0\0\x01\x10x", headers),
        (
            kind::HEADERS,
            4 | 32 | 8,
            3,
            b"\x01\0\0\0\x01\x10x\0",
            headers,
        ),
        (kind::PRIORITY, 0, 3, b"\0\0\0\x01\x10", Frame::Priority),
        (
            kind::RESET,
            0,
            3,
            b"\0\0\0\x08",
            Frame::Reset { stream: 3, code: 8 },
        ),
        (
            kind::SETTINGS,
            0,
            0,
            b"\0\x03\0\0\0\x01",
            Frame::Settings(b"\0\x03\0\0\0\x01"),
        ),
        (kind::SETTINGS, 0, 0, b"", Frame::Settings(b"")),
        (kind::SETTINGS, 1, 0, b"", Frame::SettingsTaken),
        (kind::PING, 0, 0, b"12345678", Frame::Ping(*b"12345678")),
        (kind::PING, 1, 0, b"12345678", Frame::Pong(*b"12345678")),
        (kind::GO_AWAY, 0, 0, b"\0\0\0\0\0\0\0\0why", Frame::GoAway),
        (
            kind::WINDOW_UPDATE,
            0,
            0,
            b"\x80\0\0\x05",
            Frame::WindowUpdate {
                stream: 0,
                increment: 5,
            },
        ),
        (
            kind::CONTINUATION,
            0,
            1,
            b"y",
            Frame::Continuation {
                stream: 1,
                fragment: b"y",
                complete: false,
            },
        ),
        (
            kind::PRIORITY_UPDATE,
            0,
            0,
            b"\0\0\0\x01u=1",
            Frame::PriorityUpdate {
                stream: 1,
                value: b"u=1",
            },
        ),
        (0xee, 0xff, 77, b"?", Frame::Unknown),
    ] {
        let bytes = frame(kind, flags, stream, payload);
        assert_eq!(read(&bytes), Ok(Some((expected, bytes.len()))));
        for end in 0..bytes.len() {
            assert_eq!(read(&bytes[..end]), Ok(None));
        }
    }
}

#[test]
fn invalid_frames_are_refused() {
    let connection = |reason| (None, reason);
    let (protocol, size) = (
        connection(ErrorCode::Protocol),
        connection(ErrorCode::FrameSize),
    );
    for (kind, flags, stream, payload, expected) in [
        (kind::DATA, 0, 0, &b"ab"[..], protocol),
        (kind::DATA, 8, 1, b"", size),
        (kind::DATA, 8, 1, b"\x02a", protocol),
        (kind::HEADERS, 4, 0, b"x", protocol),
        (kind::HEADERS, 4 | 32, 3, b"\0\0\0", size),
        (kind::HEADERS, 4 | 32, 3, b"\0\0\0\x03\x10x", protocol),
        (kind::HEADERS, 4 | 8, 3, b"\x05x", protocol),
        (kind::PRIORITY, 0, 0, b"\0\0\0\x01\x10", protocol),
        (
            kind::PRIORITY,
            0,
            3,
            b"\0\0\0\x01",
            (Some(3), ErrorCode::FrameSize),
        ),
        (
            kind::PRIORITY,
            0,
            3,
            b"\x80\0\0\x03\x10",
            (Some(3), ErrorCode::Protocol),
        ),
        (kind::RESET, 0, 0, b"\0\0\0\x08", protocol),
        (kind::RESET, 0, 3, b"\0\0\0", size),
        (kind::SETTINGS, 0, 1, b"", protocol),
        (kind::SETTINGS, 0, 0, b"\0\x03\0\0\0", size),
        (kind::SETTINGS, 1, 0, b"\0\x03\0\0\0\x01", size),
        (kind::PUSH_PROMISE, 4, 1, b"\0\0\0\x02", protocol),
        (kind::PING, 0, 1, b"12345678", protocol),
        (kind::PING, 0, 0, b"1234567", size),
        (kind::GO_AWAY, 0, 1, b"\0\0\0\0\0\0\0\0", protocol),
        (kind::GO_AWAY, 0, 0, b"\0\0\0\0\0\0\0", size),
        (kind::WINDOW_UPDATE, 0, 0, b"\0\0\0\0", protocol),
        (
            kind::WINDOW_UPDATE,
            0,
            3,
            b"\x80\0\0\0",
            (Some(3), ErrorCode::Protocol),
        ),
        (kind::WINDOW_UPDATE, 0, 3, b"\0\0\0", size),
        (kind::CONTINUATION, 0, 0, b"y", protocol),
        (kind::PRIORITY_UPDATE, 0, 1, b"\0\0\0\x01u=1", protocol),
        (kind::PRIORITY_UPDATE, 0, 0, b"\0\0\0\0u=1", protocol),
        (kind::PRIORITY_UPDATE, 0, 0, b"\0\0\0", size),
        (kind::DATA, 0, 1, &vec![0; MAX_PAYLOAD + 1], size),
    ] {
        let bytes = frame(kind, flags, stream, payload);
        let refused = read(&bytes).expect_err("it breaks a rule");
        let seen = match refused.fault {
            ProtocolError::Connection(reason, _) => (None, reason),
            ProtocolError::Stream(stream, reason, _) => (Some(stream), reason),
        };
        assert_eq!(
            (seen, refused.length),
            (expected, bytes.len()),
            "{bytes:x?}"
        );
    }
    // One that is too long is refused before it has come.
    assert!(read(&frame(kind::DATA, 0, 1, &vec![0; MAX_PAYLOAD + 1])[..HEADER]).is_err());
}

proptest! {
    #[test]
    fn any_bytes_are_frames_or_refused(kind in 0u8..20, flags: u8, stream in 0u32..5, payload: Vec<u8>, rest: Vec<u8>) {
        let mut bytes = frame(kind, flags, stream, &payload);
        let length = bytes.len();
        bytes.extend_from_slice(&rest);
        match read(&bytes) {
            Ok(Some((_, taken))) => prop_assert_eq!(taken, length),
            Ok(None) => prop_assert!(false, "it is complete"),
            Err(bad) => prop_assert_eq!(bad.length, length),
        }
        let _ = read(&rest);
    }
}
