//! A WebSocket for documents: whatever a client sends, what it is told are whole frames with JSON in them, nothing
//! comes behind the farewell, and nothing that is private is said.

#![no_main]

use libfuzzer_sys::fuzz_target;
use microcache_push::fuzzing::socket;

const TEXT: u8 = 0x81;
const CLOSE: u8 = 0x88;
const PING: u8 = 0x89;
const PONG: u8 = 0x8a;

fuzz_target!(|input: &[u8]| {
    let [how, rest @ ..] = input else {
        return;
    };
    let (is_piper, piece) = (how & 1 == 1, usize::from(how >> 1) * 16);
    // As it came, and as somebody writes it by hand: lines, each in a frame.
    let frames = if how & 0x40 == 0 {
        rest.to_vec()
    } else {
        rest.split(|&byte| byte == b'\n').flat_map(frame).collect()
    };
    check(&socket(&frames, piece, is_piper));
});

fn frame(text: &[u8]) -> Vec<u8> {
    let text = &text[..text.len().min(125)];
    let mut frame = vec![TEXT, 0x80 | text.len() as u8, 0, 0, 0, 0];
    frame.extend_from_slice(text);
    frame
}

fn check(mut said: &[u8]) {
    while let [first, length, rest @ ..] = said {
        let (length, rest) = match length {
            126 => (
                usize::from(u16::from_be_bytes([rest[0], rest[1]])),
                &rest[2..],
            ),
            length => (usize::from(*length), rest),
        };
        let (payload, rest) = rest.split_at(length);
        match *first {
            TEXT => {
                let reported: serde_json::Value = serde_json::from_slice(payload).expect("JSON");
                assert!(
                    reported["value"]["name"] != "/live/p/hidden"
                        && reported["name"] != "/live/p/hidden"
                );
            }
            CLOSE => assert!(rest.is_empty(), "it was the last word"),
            PING => assert_eq!(length, 0),
            PONG => {}
            other => panic!("{other:x} is nothing that is said"),
        }
        said = rest;
    }
    assert!(said.is_empty(), "a frame is whole");
}
