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
    all(value, PLAIN_COOKIE)
}

fn all(bytes: &[u8], class: u8) -> bool {
    bytes.iter().all(|&b| CLASS[usize::from(b)] & class != 0)
}
