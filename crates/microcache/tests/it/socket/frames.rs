//! Frames, as in the cases of the Autobahn test suite: allowed ones and forbidden ones. A refused client gets the
//! code, and no other client notices.
//!
//! The suite has a server send back each message. Here a text is answered as an invalid command, so that success
//! shows in that.

use super::{expect_put, open};
use crate::push::Kept;
use crate::support::Origin;
use crate::support::websocket::{BINARY, CLOSE, FIN, PING, PONG, TEXT, frame};

/// The rest of a message whose beginning has come.
const MORE: u8 = 0;

/// What comes of a case.
#[derive(Clone, Copy, Debug)]
enum Comes {
    /// So many texts are taken, and answered.
    Texts(usize),
    /// This is what comes back, and it goes on.
    Pongs(&'static [&'static [u8]]),
    /// It ends with this code.
    Close(u16),
    /// So many texts are answered before.
    TextsAndClose(usize, u16),
}

use Comes::{Close, Pongs, Texts, TextsAndClose};

type Case = (&'static str, Vec<u8>, Comes);

fn text(length: usize) -> Vec<u8> {
    frame(FIN | TEXT, &vec![b'*'; length])
}

fn close(payload: &[u8]) -> Vec<u8> {
    frame(FIN | CLOSE, payload)
}

fn closed_with(code: u16, why: &[u8]) -> Vec<u8> {
    close(&[&code.to_be_bytes()[..], why].concat())
}

/// Sections 1 and 2: sizes, pings and pongs.
fn sizes_and_pings() -> Vec<Case> {
    let ping = |payload: &[u8]| frame(FIN | PING, payload);
    let of_bytes: &'static [u8] = &[0x00, 0xff, 0xfe, 0xfd, 0xfc, 0xfb, 0x00, 0xff];
    let mut cases: Vec<Case> = vec![
        ("1.2.1", frame(FIN | BINARY, b""), Close(1003)),
        ("1.2.6", frame(FIN | BINARY, &[0xfe; 8192]), Close(1003)),
        ("2.1", ping(b""), Pongs(&[b""])),
        ("2.2", ping(b"Hello, world!"), Pongs(&[b"Hello, world!"])),
        (
            "2.3",
            ping(of_bytes),
            Pongs(&[&[0x00, 0xff, 0xfe, 0xfd, 0xfc, 0xfb, 0x00, 0xff]]),
        ),
        ("2.4", ping(&[0xfe; 125]), Pongs(&[&[0xfe; 125]])),
        ("2.5", ping(&[0xfe; 126]), Close(1002)),
        ("2.7", frame(FIN | PONG, b""), Pongs(&[])),
        ("2.8", frame(FIN | PONG, b"unsolicited"), Pongs(&[])),
        (
            "2.9",
            [frame(FIN | PONG, b"unsolicited"), ping(b"ping")].concat(),
            Pongs(&[b"ping"]),
        ),
        (
            "2.10",
            (0..3).flat_map(|n| ping(&[n])).collect(),
            Pongs(&[&[0], &[1], &[2]]),
        ),
    ];
    let sized = [0, 125, 126, 127, 128, 8191, 8192];
    cases.extend(sized.map(|length| ("1.1", text(length), Texts(1))));
    for length in [65_535, 65_536] {
        cases.push(("1.1.7 and 1.1.8", text(length), Close(1009)));
    }
    cases.push(("longer than an order may be", text(8193), Close(1009)));
    cases
}

/// Sections 3 and 4: reserved bits and opcodes.
fn reserved() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for bits in [0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70] {
        cases.push(("3.1", frame(FIN | bits | TEXT, b"small"), Close(1002)));
        let behind = [text(5), frame(FIN | bits | PING, b"")].concat();
        cases.push(("3.2", behind, TextsAndClose(1, 1002)));
        cases.push(("3.7", frame(FIN | bits | CLOSE, &[3, 232]), Close(1002)));
    }
    for opcode in [3, 4, 5, 6, 7, 11, 12, 13, 14, 15] {
        cases.push(("4.1", frame(FIN | opcode, b""), Close(1002)));
        let behind = [text(5), frame(FIN | opcode, b"x"), text(1)].concat();
        cases.push(("4.1.3", behind, TextsAndClose(1, 1002)));
    }
    // What no client may: frames without a mask, and lengths that are written longer than they are.
    cases.push(("no mask", vec![FIN | TEXT, 2, b'{', b'}'], Close(1002)));
    let padded = [&[FIN | TEXT, 0xfe, 0, 2][..], &[0; 4], b"{}"].concat();
    cases.push(("a length of two bytes for one", padded, Close(1002)));
    let padded = [&[FIN | TEXT, 0xff, 0, 0, 0, 0, 0, 0, 0, 2][..], &[0; 4]].concat();
    cases.push(("a length of eight bytes for one", padded, Close(1002)));
    let endless = [&[FIN | TEXT, 0xff][..], &[0xff; 8], &[0; 4]].concat();
    cases.push(("a length that nobody has", endless, Close(1009)));
    cases
}

/// Section 5: messages in parts.
fn fragments() -> Vec<Case> {
    let (first, last) = (frame(TEXT, b"part1"), frame(FIN, b"part2"));
    let ping = frame(FIN | PING, b"ping");
    let join = |parts: &[&[u8]]| parts.concat();
    let middle = frame(MORE, b"middle");
    vec![
        (
            "5.1",
            join(&[&frame(PING, b"a"), &frame(FIN, b"b")]),
            Close(1002),
        ),
        (
            "5.2",
            join(&[&frame(PONG, b"a"), &frame(FIN, b"b")]),
            Close(1002),
        ),
        ("5.3", join(&[&first, &last]), Texts(1)),
        ("5.6", join(&[&first, &ping]), Pongs(&[b"ping"])),
        ("5.9", join(&[&frame(FIN, b"none"), &text(5)]), Close(1002)),
        (
            "5.12",
            join(&[&frame(MORE, b"none"), &text(5)]),
            Close(1002),
        ),
        (
            "5.15",
            join(&[&first, &last, &frame(MORE, b"x")]),
            TextsAndClose(1, 1002),
        ),
        (
            "5.16",
            join(&[&frame(MORE, b"x"), &first, &last]),
            Close(1002),
        ),
        ("5.18", join(&[&first, &text(5)]), Close(1002)),
        (
            "5.19",
            join(&[&first, &middle, &ping, &middle]),
            Pongs(&[b"ping"]),
        ),
        ("5.20", join(&[&first, &middle, &middle, &last]), Texts(1)),
        (
            "no end",
            join(&[&first, &frame(MORE, b"").repeat(2000), &last]),
            Texts(1),
        ),
    ]
}

/// Section 6: what is UTF-8 and what is not.
fn utf8() -> Vec<Case> {
    let whole = "Hello-\u{b5}@\u{df}\u{f6}\u{e4}\u{fc}\u{e0}\u{e1}-UTF-8!!".as_bytes();
    let bytewise = |bytes: &[u8]| {
        let last = bytes.len() - 1;
        let of = |(at, byte): (usize, &u8)| {
            let opcode = if at == 0 { TEXT } else { MORE };
            frame(opcode | if at == last { FIN } else { 0 }, &[*byte])
        };
        bytes.iter().enumerate().flat_map(of).collect::<Vec<_>>()
    };
    let mut cases: Vec<Case> = vec![
        ("6.1.1", frame(FIN | TEXT, b""), Texts(1)),
        (
            "6.1.2",
            [frame(TEXT, b""), frame(MORE, b""), frame(FIN, b"")].concat(),
            Texts(1),
        ),
        ("6.2.1", frame(FIN | TEXT, whole), Texts(1)),
        ("6.2.3", bytewise(whole), Texts(1)),
        (
            "6.2.4",
            bytewise("\u{3ba}\u{1f79}\u{3c3}\u{3bc}\u{3b5}".as_bytes()),
            Texts(1),
        ),
        (
            "6.3.2",
            bytewise(b"\xce\xba\xed\xa0\x80edited"),
            Close(1007),
        ),
        // It is refused when it cannot become UTF-8 any more, not when it is complete.
        ("6.4.1", frame(TEXT, b"\xce\xba\xf4\x90"), Close(1007)),
        (
            "6.4.3",
            frame(FIN | TEXT, b"\xce\xba\xf4\x90\x80\x80")[..10].to_vec(),
            Close(1007),
        ),
    ];
    for good in [
        &b"\x00"[..],
        b"\xc2\x80",
        b"\xe0\xa0\x80",
        b"\xf0\x90\x80\x80",
        b"\x7f",
        b"\xdf\xbf",
        b"\xef\xbf\xbf",
        b"\xf4\x8f\xbf\xbf",
        b"\xed\x9f\xbf",
        b"\xee\x80\x80",
        b"\xef\xbf\xbd",
        b"\xf0\x9f\xbf\xbe",
        b"\xef\xbb\xbf",
    ] {
        cases.push(("6.5 and others that are", frame(FIN | TEXT, good), Texts(1)));
    }
    for bad in [
        &b"\xce"[..],
        b"\xf8\x88\x80\x80\x80",
        b"\xfc\x84\x80\x80\x80\x80",
        b"\xf7\xbf\xbf\xbf",
        b"\xf4\x90\x80\x80",
        b"\x80",
        b"\xbf",
        b"\x80\xbf\x80",
        b"\xc0\x20\xc1\x20",
        b"\xe0\x20",
        b"\xf5\x20",
        b"\xfe",
        b"\xff",
        b"\xc0\xaf",
        b"\xe0\x80\xaf",
        b"\xf0\x80\x80\xaf",
        b"\xc1\xbf",
        b"\xe0\x9f\xbf",
        b"\xf0\x8f\xbf\xbf",
        b"\xed\xa0\x80",
        b"\xed\xbf\xbf",
        b"\xed\xa0\x80\xed\xb0\x80",
    ] {
        cases.push((
            "6.6 and others that are not",
            frame(FIN | TEXT, bad),
            Close(1007),
        ));
    }
    cases
}

/// Section 7: how it ends.
fn closes() -> Vec<Case> {
    let mut cases: Vec<Case> = vec![
        (
            "7.1.1",
            [text(5), closed_with(1000, b"")].concat(),
            TextsAndClose(1, 1000),
        ),
        ("7.1.2", close(&[3, 232]).repeat(2), Close(1000)),
        (
            "7.1.3",
            [close(&[3, 232]), frame(FIN | PING, b"x")].concat(),
            Close(1000),
        ),
        ("7.1.4", [close(&[3, 232]), text(5)].concat(), Close(1000)),
        (
            "7.1.5",
            [frame(TEXT, b"a"), close(&[3, 232]), frame(FIN, b"b")].concat(),
            Close(1000),
        ),
        (
            "7.1.6",
            [close(&[3, 232]), text(60_000)].concat(),
            Close(1000),
        ),
        ("7.3.1", close(b""), Close(1005)),
        ("7.3.2", close(b"x"), Close(1002)),
        ("7.3.3", closed_with(1000, b""), Close(1000)),
        ("7.3.4", closed_with(1000, b"Hello World!"), Close(1000)),
        ("7.3.5", closed_with(1000, &[b'*'; 123]), Close(1000)),
        ("7.3.6", closed_with(1000, &[b'*'; 124]), Close(1002)),
        (
            "7.5.1",
            closed_with(1000, b"\xce\xba\xed\xa0\x80"),
            Close(1007),
        ),
    ];
    let valid = [
        1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999,
    ];
    cases.extend(valid.map(|code| ("7.7", closed_with(code, b""), Close(code))));
    let invalid = [
        0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999, 5000, 65_535,
    ];
    cases.extend(invalid.map(|code| ("7.9 and 7.13", closed_with(code, b""), Close(1002))));
    cases
}

#[test]
fn frames_are_accepted_or_refused_as_in_the_suite() {
    let (kept, origin) = (Kept::new(), Origin::start());
    let live = kept.start(&origin, &[]);
    live.put("/live/x", "0");
    let mut witness = open(&live, "/live/x");
    expect_put(&mut witness, "/live/x", "0");
    let cases = [sizes_and_pings(), reserved(), fragments(), utf8(), closes()].concat();
    // Whole, and byte by byte where that is not for ever.
    let ways = cases.iter().flat_map(|case| {
        let is_short = case.1.len() <= 600;
        [Some(case.1.len()), is_short.then_some(1)]
            .into_iter()
            .flatten()
            .map(move |piece| (case, piece))
    });
    let mut number = 0;
    for ((name, bytes, comes), piece) in ways {
        number += 1;
        let mut socket = open(&live, "/live/");
        for piece in bytes.chunks(piece.max(1)) {
            if !socket.client().try_send(piece) {
                break;
            }
        }
        eprintln!("{name}, {} bytes by {piece}: {comes:?}", bytes.len());
        let (texts, pongs, close) = match *comes {
            Texts(texts) => (texts, &[][..], None),
            Pongs(pongs) => (0, pongs, None),
            Close(code) => (0, &[][..], Some(code)),
            TextsAndClose(texts, code) => (texts, &[][..], Some(code)),
        };
        for _ in 0..texts {
            assert!(socket.text().contains("\"status\":400"));
        }
        for pong in pongs {
            assert_eq!(socket.frame(), (FIN | PONG, pong.to_vec()));
        }
        if let Some(code) = close {
            assert_eq!(socket.close_code(), code);
        } else {
            // It goes on.
            socket.send(FIN | PING, "still there?");
            assert_eq!(socket.frame(), (FIN | PONG, b"still there?".to_vec()));
        }
        if number % 50 == 0 {
            live.put("/live/x", &number.to_string());
            expect_put(&mut witness, "/live/x", &number.to_string());
        }
    }
    assert!(number > 200, "{number} cases");
}
