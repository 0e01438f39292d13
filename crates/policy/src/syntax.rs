//! Character classes: one table, one look-up per byte.

/// Characters of tokens.
const TOKEN: u8 = 1;
/// `cookie-octet` (RFC 6265 §4.1.1). All other bytes end a cookie or its value for some parser.
const COOKIE: u8 = 2;
/// `cookie-octet` without brackets, at which Python's `http.cookies` stops, for example.
const PLAIN_COOKIE: u8 = 4;

static CLASS: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let b = byte as u8;
        if is_tchar(b) {
            table[byte] |= TOKEN;
        }
        if b.is_ascii_graphic() && !matches!(b, b'"' | b',' | b';' | b'\\') {
            table[byte] |= COOKIE;
            if !matches!(b, b'[' | b']') {
                table[byte] |= PLAIN_COOKIE;
            }
        }
        byte += 1;
    }
    table
}

/// Returns true for a character of tokens (RFC 9110 §5.6.2), such as methods and field names.
pub const fn is_tchar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        )
}

/// Returns true if the text is a token.
pub fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && all(text, TOKEN)
}

/// Returns true if every parser treats this byte as part of a cookie.
pub(crate) fn is_cookie_octet(byte: u8) -> bool {
    CLASS[usize::from(byte)] & COOKIE != 0
}

/// Returns true if every parser reads this cookie value alike.
pub(crate) fn is_plain_cookie_value(value: &[u8]) -> bool {
    // Sixteen bytes at a time, the last of them once more.
    let (Some(last), (blocks, _)) = (value.last_chunk(), value.as_chunks()) else {
        return all(value, PLAIN_COOKIE);
    };
    blocks.iter().all(is_plain_cookie_block) && is_plain_cookie_block(last)
}

/// Tests sixteen bytes for [`PLAIN_COOKIE`].
#[expect(
    clippy::inline_always,
    reason = "the patterns of bytes are loaded once for all blocks of a value"
)]
#[inline(always)]
fn is_plain_cookie_block(block: &[u8; 16]) -> bool {
    // The compiler tests all sixteen at once, one condition after the other.
    let any = |is: fn(u8) -> bool| block.iter().fold(false, |found, &b| found | is(b));
    // Behind the tilde, the next byte is negative. The backslash stands between the brackets.
    !(any(|b| b.wrapping_add(1).cast_signed() <= b'!'.cast_signed())
        | any(|b| b.wrapping_sub(b'[') <= b']' - b'[')
        | any(|b| b == b'"')
        | any(|b| b == b',')
        | any(|b| b == b';'))
}

/// Returns the index of the first such byte in a short text, for which a call of `memchr` costs more than the search.
#[inline]
pub(crate) fn find(byte: u8, text: &[u8]) -> Option<usize> {
    let (blocks, rest) = text.as_chunks::<8>();
    let mut at = 0;
    for block in blocks {
        // The highest bit of each byte that is equal, and of some behind the first of them.
        let others = u64::from_le_bytes(*block) ^ u64::from_le_bytes([byte; 8]);
        let equal = others.wrapping_sub(u64::from_le_bytes([1; 8])) & !others;
        let equal = equal & u64::from_le_bytes([0x80; 8]);
        if equal != 0 {
            return Some(at + equal.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    rest.iter().position(|&b| b == byte).map(|rest| at + rest)
}

/// Returns true if a text has this word, in any ASCII case. `word` must not be empty.
pub(crate) fn contains_ignoring_case(text: &[u8], word: &[u8]) -> bool {
    let mut windows = text.windows(word.len());
    windows.any(|window| window.eq_ignore_ascii_case(word))
}

fn all(bytes: &[u8], class: u8) -> bool {
    bytes.iter().all(|&b| CLASS[usize::from(b)] & class != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_is_found() {
        for length in 0..20 {
            for other in [0, b'<', b':', 0x7f, 0xba, 0xbb, 0xff] {
                let mut text = vec![other; length];
                assert_eq!(find(b';', &text), None);
                for at in (0..length).rev() {
                    text[at] = b';';
                    assert_eq!(find(b';', &text), Some(at), "{other:#x} of {length}");
                }
            }
        }
    }

    #[test]
    fn reading_sixteen_bytes_at_a_time_equals_reading_one() {
        for length in [0, 1, 15, 16, 17, 40] {
            for at in 0..length {
                for byte in 0..=u8::MAX {
                    let mut value = vec![b'v'; length];
                    value[at] = byte;
                    let expected = CLASS[usize::from(byte)] & PLAIN_COOKIE != 0;
                    assert_eq!(is_plain_cookie_value(&value), expected, "{byte:#x} at {at}");
                }
            }
        }
    }
}
