//! Character classes of HTTP/1: one table, one look-up per byte.

use microcache_policy::syntax::is_tchar;

/// Characters of tokens (RFC 9110 §5.6.2 `tchar`): methods and field names.
pub(super) const TOKEN: u8 = 1;
/// Characters of field values and reason phrases (RFC 9110 §5.5), white space included.
pub(super) const VALUE: u8 = 2;
/// Characters of URIs (RFC 3986 §2) except `#`: fragments are never sent (RFC 9112 §3.2).
const URI: u8 = 4;
/// Characters of a registered name or an IPv4 address (RFC 3986 §3.2.2). The comma, though legal there, is
/// excluded: proxies that join repeated Host lines make it ambiguous.
pub(super) const HOST: u8 = 8;
/// Characters that browsers leave unencoded in a query, in addition to [`URI`] (the query percent-encode set of
/// the URL standard): `?family=a|b`, `?filter={}`.
const QUERY: u8 = 16;

/// Largest body and largest chunk, in bytes: other implementations use signed 64-bit integers, and would read
/// larger lengths differently.
pub(crate) const MAX_LENGTH: u64 = i64::MAX as u64;

static CLASS: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let b = byte as u8;
        let alphanumeric = b.is_ascii_alphanumeric();
        if is_tchar(b) {
            table[byte] |= TOKEN;
        }
        if b == b'\t' || (b >= b' ' && b != 0x7f) {
            table[byte] |= VALUE;
        }
        if alphanumeric || contains(b"-._~:/?[]@!$&'()*+,;=%", b) {
            table[byte] |= URI | QUERY;
        }
        if contains(b"\\^`{|}", b) {
            table[byte] |= QUERY;
        }
        if alphanumeric || contains(b"-._~!$&'()*+;=%", b) {
            table[byte] |= HOST;
        }
        byte += 1;
    }
    table
}

const fn contains(set: &[u8], byte: u8) -> bool {
    let mut i = 0;
    while i < set.len() {
        if set[i] == byte {
            return true;
        }
        i += 1;
    }
    false
}

/// Returns the number of leading bytes in `class`.
pub(super) fn span(bytes: &[u8], class: u8) -> usize {
    bytes
        .iter()
        .position(|&b| CLASS[usize::from(b)] & class == 0)
        .unwrap_or(bytes.len())
}

/// Returns the number of leading bytes that are allowed in a request target.
pub(crate) fn target_span(bytes: &[u8]) -> usize {
    let plain = span(bytes, URI);
    let (front, rest) = bytes.split_at(plain);
    match rest.first() {
        // Most targets end here; the wider class is only checked within a query.
        None | Some(b' ') => plain,
        Some(_) if front.contains(&b'?') => plain + span(rest, QUERY),
        Some(_) => plain,
    }
}

/// Same as `span(bytes, VALUE)`, sixteen printable characters at a time: values are most of a head.
pub(super) fn value_span(bytes: &[u8]) -> usize {
    let printable = printable_end(bytes, 0).unwrap_or(0);
    printable + span(&bytes[printable..], VALUE)
}

/// Returns `true` if all bytes are allowed in a field value.
pub(crate) fn is_value(bytes: &[u8]) -> bool {
    // Short ones as two words, which overlap.
    let is_printable = |word: &[u8; 8]| first(others(u64::from_le_bytes(*word))).is_none();
    match (bytes.first_chunk(), bytes.last_chunk()) {
        (Some(front), Some(back)) if bytes.len() <= 16 => {
            is_printable(front) && is_printable(back) || span(bytes, VALUE) == bytes.len()
        }
        _ => value_span(bytes) == bytes.len(),
    }
}

/// Returns the end of the printable ASCII characters from `start`; `None` for fewer than sixteen bytes.
#[expect(
    clippy::inline_always,
    reason = "a browser's head has fifteen values, and each pays for a call"
)]
#[inline(always)]
pub(super) fn printable_end(bytes: &[u8], start: usize) -> Option<usize> {
    let (blocks, tail) = bytes.get(start..)?.as_chunks::<16>();
    let mut at = start;
    for block in blocks {
        if has_other(block) {
            return Some(at + first_other(u128::from_le_bytes(*block))?);
        }
        at += 16;
    }
    // The last sixteen bytes, without those that were tested. Zeros are behind them.
    let last = u128::from_le_bytes(*bytes.last_chunk()?);
    let rest = last.checked_shr(128 - 8 * tail.len() as u32);
    Some(at + first_other(rest.unwrap_or(0))?)
}

/// Returns `true` if one of these bytes is no printable ASCII character.
#[inline]
fn has_other(block: &[u8; 16]) -> bool {
    // The next byte of each is negative if it is above `~`.
    let is_other = |b: u8| b.wrapping_add(1).cast_signed() <= b' '.cast_signed();
    block.iter().fold(false, |other, &b| other | is_other(b))
}

/// Returns the index of the first byte that is no printable ASCII character.
#[inline]
const fn first_other(block: u128) -> Option<usize> {
    match first(others(block as u64)) {
        None => match first(others((block >> 64) as u64)) {
            None => None,
            Some(at) => Some(8 + at),
        },
        front => front,
    }
}

/// Sets the highest bit of each byte that is no printable ASCII character, up to the first of them.
#[inline]
const fn others(word: u64) -> u64 {
    word.wrapping_add(repeated(1)) | word | word.wrapping_sub(repeated(b' '))
}

/// Each byte of a word has this value.
const fn repeated(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// Returns the index of the first colon of sixteen bytes.
#[inline]
pub(super) fn first_colon(block: &[u8; 16]) -> Option<usize> {
    let (front, back) = halves(block);
    let colon = |word| first(zeros(word ^ repeated(b':')));
    colon(front).or_else(|| colon(back).map(|at| 8 + at))
}

/// Sets the highest bit of each byte that is zero, up to the first of them: borrows spoil those behind it.
#[inline]
const fn zeros(word: u64) -> u64 {
    word.wrapping_sub(repeated(1)) & !word
}

/// Returns the index of the first byte whose highest bit is set.
#[inline]
const fn first(word: u64) -> Option<usize> {
    let highest = word & repeated(0x80);
    if highest == 0 {
        None
    } else {
        Some(highest.trailing_zeros() as usize / 8)
    }
}

#[inline]
fn halves(block: &[u8; 16]) -> (u64, u64) {
    let both = u128::from_le_bytes(*block);
    (both as u64, (both >> 64) as u64)
}

/// Checks for a leading `\r\n`; `None` while it is incomplete.
#[inline]
pub(super) fn line_end(bytes: &[u8]) -> Result<Option<()>, &'static str> {
    match bytes {
        [] | [b'\r'] => Ok(None),
        [b'\r', b'\n', ..] => Ok(Some(())),
        [b'\r', ..] => Err("a bare CR"),
        [b'\n', ..] => Err("a bare LF"),
        [0, ..] => Err("a NUL byte"),
        [_, ..] => Err("a control byte"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_sixteen_bytes_at_a_time_equals_reading_one() {
        for len in 0..70 {
            let clean = vec![b'v'; len];
            assert_eq!(value_span(&clean), len);
            for at in 0..len {
                for byte in [0, b'\t', b'\n', b'\r', 0x1f, 0x7f, 0x80, 0xff] {
                    let mut bytes = clean.clone();
                    bytes[at] = byte;
                    assert_eq!(value_span(&bytes), span(&bytes, VALUE), "{bytes:?}");
                    let is_valid = span(&bytes, VALUE) == len;
                    assert_eq!(is_value(&bytes), is_valid, "{bytes:?}");
                }
            }
        }
    }

    #[test]
    fn the_first_byte_that_is_not_printable_is_found() {
        for length in 0..70 {
            let clean = vec![b'v'; length];
            let is_long = length >= 16;
            for start in 0..=length {
                assert_eq!(printable_end(&clean, start), is_long.then_some(length));
            }
            for at in 0..length {
                for byte in 0..=u8::MAX {
                    let mut bytes = clean.clone();
                    bytes[at..].fill(byte);
                    let is_printable = matches!(byte, b' '..=b'~');
                    let end = if is_printable { length } else { at };
                    let found = printable_end(&bytes, at / 2);
                    assert_eq!(found, is_long.then_some(end), "{bytes:?}");
                }
            }
        }
    }

    #[test]
    fn the_first_colon_is_found_behind_any_bytes() {
        for at in 0..16 {
            for byte in [0, b'9', b';', 0x7f, 0xb9, 0xba, 0xbb, 0xff] {
                let mut block = [byte; 16];
                assert_eq!(first_colon(&block), None);
                block[at..].fill(b':');
                assert_eq!(first_colon(&block), Some(at));
            }
        }
    }

    #[test]
    fn a_query_may_have_more_than_a_path() {
        for (target, length) in [
            ("/a?b=[c]&d=%7", 13),
            ("/a HTTP", 2),
            ("/a|b", 2),
            ("/a|b?c", 2),
            ("/a?b|c{d}\\^`?e", 14),
            ("/a?b|c<d", 6),
            ("/a?b#c", 4),
            ("/\u{e4}", 1),
            ("/?|\u{e4}", 3),
            ("", 0),
        ] {
            assert_eq!(target_span(target.as_bytes()), length, "{target}");
        }
    }

    #[test]
    fn classes_are_the_grammars() {
        for (class, inside, outside) in [
            (
                TOKEN,
                &b"azAZ09!#$%&'*+-.^_`|~"[..],
                &b"\0 \t\r\n:\"(),/;<=>?@[\\]{}\x7f\x80"[..],
            ),
            (VALUE, b"\t !~\x80\xff", b"\0\x01\x08\n\r\x1f\x7f"),
            (
                URI,
                b"aZ09-._~:/?[]@!$&'()*+,;=%",
                b"\0\t #\"<>\\^`{|}\x7f\x80\xff",
            ),
            (QUERY, b"/?&=%[]{}|\\^`", b"\0\t #\"<>\x7f\x80\xff"),
            (HOST, b"aZ0-._~%", b"\0\t #/@,\\?<>\"[]\x7f\x80"),
        ] {
            for b in inside {
                assert_eq!(span(&[*b], class), 1, "{b:#x} is in {class}");
            }
            for b in outside {
                assert_eq!(span(&[*b], class), 0, "{b:#x} is not in {class}");
            }
        }
    }
}
