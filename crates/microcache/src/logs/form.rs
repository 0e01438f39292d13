//! The escaping of values, so that input from clients cannot break a line.

use std::cell::RefCell;

use microcache_policy::{Time, date};

/// The maximum length of a value, so that a URL of 64 KiB does not make a line of 64 KiB.
pub(super) const MAX_VALUE: usize = 8192;

/// Writes a value as text that may stand between quotes. Quotes, backslashes and all that is not
/// printable ASCII become `\xHH`, as nginx has it: no end of line, and nothing that a terminal obeys.
pub(super) fn escape_text(out: &mut Vec<u8>, value: &[u8]) {
    let (kept, is_cut) = cut(value);
    each_run(
        out,
        kept,
        |byte| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\',
        |out, byte| {
            out.extend_from_slice(b"\\x");
            push_hex(out, byte);
        },
    );
    if is_cut {
        out.extend_from_slice(b"...");
    }
}

/// Writes a value between quotes.
pub(super) fn quote_text(out: &mut Vec<u8>, value: &[u8]) {
    out.push(b'"');
    escape_text(out, value);
    out.push(b'"');
}

/// Writes a value as a JSON string. All that is not printable ASCII is escaped, so that the line is
/// valid UTF-8 without terminal control characters; invalid UTF-8 becomes U+FFFD.
pub(super) fn quote_json(out: &mut Vec<u8>, value: &[u8]) {
    let (kept, is_cut) = cut(value);
    out.push(b'"');
    if kept.is_ascii() {
        each_run(
            out,
            kept,
            |byte| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\',
            |out, byte| match byte {
                b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
                _ => push_unit(out, byte.into()),
            },
        );
    } else {
        for char in String::from_utf8_lossy(kept).chars() {
            match char {
                '"' | '\\' => out.extend_from_slice(&[b'\\', char as u8]),
                ' '..='~' => out.push(char as u8),
                _ => char
                    .encode_utf16(&mut [0; 2])
                    .iter()
                    .for_each(|&unit| push_unit(out, unit)),
            }
        }
    }
    if is_cut {
        out.extend_from_slice(b"...");
    }
    out.push(b'"');
}

/// Writes a number.
pub(super) fn push_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Writes `22/Nov/2026:08:20:48 +0000`.
pub(super) fn push_common_date(out: &mut Vec<u8>, time: Time) {
    out.extend_from_slice(&stamp(time).common);
}

/// Writes `2026-11-22T08:20:48.123Z`.
pub(super) fn push_date(out: &mut Vec<u8>, time: Time) {
    out.extend_from_slice(&stamp(time).date);
    let millis = (time.as_millis() % 1000) as u16;
    let digit = |of: u16| b'0' + (millis / of % 10) as u8;
    out.extend_from_slice(&[b'.', digit(100), digit(10), digit(1), b'Z']);
}

fn cut(value: &[u8]) -> (&[u8], bool) {
    match value.get(..MAX_VALUE) {
        Some(kept) if value.len() > MAX_VALUE => (kept, true),
        _ => (value, false),
    }
}

/// Copies the runs of plain bytes, and passes every other byte to `escape`.
fn each_run(
    out: &mut Vec<u8>,
    mut value: &[u8],
    is_plain: impl Fn(u8) -> bool,
    escape: impl Fn(&mut Vec<u8>, u8),
) {
    while !value.is_empty() {
        let run = value.iter().position(|&byte| !is_plain(byte));
        let (plain, rest) = value.split_at(run.unwrap_or(value.len()));
        out.extend_from_slice(plain);
        let Some((&byte, rest)) = rest.split_first() else {
            return;
        };
        escape(out, byte);
        value = rest;
    }
}

fn push_hex(out: &mut Vec<u8>, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.extend_from_slice(&[
        DIGITS[usize::from(byte >> 4)],
        DIGITS[usize::from(byte & 15)],
    ]);
}

/// Escapes a UTF-16 code unit for a JSON string.
fn push_unit(out: &mut Vec<u8>, unit: u16) {
    if unit == u16::from(b'\n') {
        out.extend_from_slice(b"\\n");
        return;
    }
    let [high, low] = unit.to_be_bytes();
    out.extend_from_slice(b"\\u");
    push_hex(out, high);
    push_hex(out, low);
}

/// A second, formatted for the text and the JSON form of a line.
#[derive(Clone, Copy)]
struct Stamp {
    second: u64,
    common: [u8; 26],
    date: [u8; 19],
}

/// Returns the formatted second; each thread formats it once.
fn stamp(time: Time) -> Stamp {
    thread_local! {
        static LAST: RefCell<Option<Stamp>> = const { RefCell::new(None) };
    }
    let second = time.as_secs();
    LAST.with_borrow_mut(|last| match last {
        Some(stamp) if stamp.second == second => *stamp,
        _ => *last.insert(Stamp::of(time)),
    })
}

impl Stamp {
    fn of(time: Time) -> Self {
        const MONTHS: &[u8] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
        // `Sun, 22 Nov 2026 08:20:48 GMT`
        let http = date::format(time);
        let (day, name, year, clock) = (&http[5..7], &http[8..11], &http[12..16], &http[17..25]);
        let month = MONTHS.chunks(3).position(|month| month == name);
        let month = month.unwrap_or_default() as u8 + 1;
        let mut common = *b"00/Jan/0000:00:00:00 +0000";
        common[..2].copy_from_slice(day);
        common[3..6].copy_from_slice(name);
        common[7..11].copy_from_slice(year);
        common[12..20].copy_from_slice(clock);
        let mut date = *b"0000-00-00T00:00:00";
        date[..4].copy_from_slice(year);
        date[5..7].copy_from_slice(&[b'0' + month / 10, b'0' + month % 10]);
        date[8..10].copy_from_slice(day);
        date[11..].copy_from_slice(clock);
        Self {
            second: time.as_secs(),
            common,
            date,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &[u8]) -> String {
        let mut out = Vec::new();
        quote_text(&mut out, value);
        String::from_utf8(out).expect("it is ASCII")
    }

    fn json(value: &[u8]) -> String {
        let mut out = Vec::new();
        quote_json(&mut out, value);
        String::from_utf8(out).expect("it is ASCII")
    }

    #[test]
    fn nothing_that_a_client_sends_leaves_its_quotes() {
        for (value, as_text, as_json) in [
            (
                &b"plain /a?b=c"[..],
                r#""plain /a?b=c""#,
                r#""plain /a?b=c""#,
            ),
            (b"", r#""""#, r#""""#),
            (b"a\"b\\c", r#""a\x22b\x5Cc""#, r#""a\"b\\c""#),
            (
                b"\r\n1.2.3.4 - -",
                r#""\x0D\x0A1.2.3.4 - -""#,
                r#""\u000D\n1.2.3.4 - -""#,
            ),
            (
                b"\x1b[2J\x7f\0",
                r#""\x1B[2J\x7F\x00""#,
                r#""\u001B[2J\u007F\u0000""#,
            ),
            (b"\xff\"", r#""\xFF\x22""#, r#""\uFFFD\"""#),
            (
                "é\u{202e}\u{2028}".as_bytes(),
                r#""\xC3\xA9\xE2\x80\xAE\xE2\x80\xA8""#,
                r#""\u00E9\u202E\u2028""#,
            ),
            (
                "😀".as_bytes(),
                r#""\xF0\x9F\x98\x80""#,
                r#""\uD83D\uDE00""#,
            ),
        ] {
            assert_eq!(text(value), as_text);
            assert_eq!(json(value), as_json);
        }
    }

    #[test]
    fn every_byte_and_every_pair_of_bytes_stays_within_a_line() {
        for pair in 0..=u16::MAX {
            let value = pair.to_be_bytes();
            let text = text(&value);
            assert!(text.bytes().all(|byte| matches!(byte, b' '..=b'~')));
            assert_eq!(text.matches('"').count(), 2, "{text}");
            let read: String = serde_json::from_str(&json(&value)).expect("it is JSON");
            assert_eq!(read, String::from_utf8_lossy(&value));
        }
    }

    #[test]
    fn a_value_has_an_end() {
        let long = vec![b'\n'; MAX_VALUE + 1];
        assert_eq!(text(&long).len(), 4 * MAX_VALUE + 5);
        assert!(text(&long).ends_with("\\x0A...\""));
        assert!(json(&long).ends_with("\\n...\""));
        // Cut within a character.
        let long = "é".repeat(MAX_VALUE);
        let odd = &long.as_bytes()[1..];
        assert!(serde_json::from_str::<String>(&json(odd)).is_ok());
        assert!(!text(&long.as_bytes()[..MAX_VALUE]).ends_with("...\""));
    }

    #[test]
    fn times_are_utc() {
        let time = Time::from_millis(1_795_335_648_007);
        let mut out = Vec::new();
        push_common_date(&mut out, time);
        out.push(b' ');
        push_date(&mut out, time);
        push_date(&mut out, Time::from_millis(951_782_400_120));
        assert_eq!(
            String::from_utf8_lossy(&out),
            "22/Nov/2026:08:20:48 +0000 2026-11-22T08:20:48.007Z2000-02-29T00:00:00.120Z"
        );
    }
}
