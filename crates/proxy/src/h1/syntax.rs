//! Which bytes may stand where: one table, one look-up per byte.

/// RFC 9110 §5.6.2 `tchar`: methods and field names.
pub(super) const TOKEN: u8 = 1;
/// RFC 9110 §5.5: what a field value or reason phrase may hold, white space included.
pub(super) const VALUE: u8 = 2;
/// A request target: visible bytes. `#` starts a fragment, which is never sent (RFC 9112 §3.2),
/// and bytes from 0x80 on go through as they came.
pub(super) const TARGET: u8 = 4;
/// A registered name or an IPv4 address (RFC 3986 §3.2.2). The comma is legal there, but proxies
/// that join repeated Host lines make it ambiguous.
pub(super) const HOST: u8 = 8;

static CLASS: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let b = byte as u8;
        let alphanumeric = b.is_ascii_alphanumeric();
        if alphanumeric || contains(b"!#$%&'*+-.^_`|~", b) {
            table[byte] |= TOKEN;
        }
        if b == b'\t' || (b >= b' ' && b != 0x7f) {
            table[byte] |= VALUE;
        }
        if b > b' ' && b != 0x7f && b != b'#' {
            table[byte] |= TARGET;
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

/// How many bytes at the front are of `class`.
pub(super) fn span(bytes: &[u8], class: u8) -> usize {
    bytes
        .iter()
        .position(|&b| CLASS[usize::from(b)] & class == 0)
        .unwrap_or(bytes.len())
}

/// Whether there are bytes and all of them are of `class`.
pub(super) fn is_all(bytes: &[u8], class: u8) -> bool {
    !bytes.is_empty() && span(bytes, class) == bytes.len()
}

/// `span(bytes, VALUE)`, sixteen bytes at a step: values are most of a head.
#[expect(
    clippy::needless_bitwise_bool,
    reason = "without branches the compiler tests all sixteen at once"
)]
pub(super) fn value_span(bytes: &[u8]) -> usize {
    let (blocks, _) = bytes.as_chunks::<16>();
    let plain = blocks
        .iter()
        .take_while(|block| {
            !block
                .iter()
                .fold(false, |other, &b| other | (b < b' ') | (b == 0x7f))
        })
        .count()
        * 16;
    plain + span(&bytes[plain..], VALUE)
}

/// Whether `\r\n` stands at the front; `None` while that cannot be said yet.
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
    fn sixteen_at_a_step_reads_what_one_at_a_step_reads() {
        for len in 0..70 {
            let clean = vec![b'v'; len];
            assert_eq!(value_span(&clean), len);
            for at in 0..len {
                for byte in [0, b'\t', b'\n', b'\r', 0x1f, 0x7f, 0x80, 0xff] {
                    let mut bytes = clean.clone();
                    bytes[at] = byte;
                    assert_eq!(value_span(&bytes), span(&bytes, VALUE), "{bytes:?}");
                }
            }
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
            (TARGET, b"/?&=%[]{}|\\^`\"<>\x80\xff", b"\0\t #\x7f"),
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
