//! Which bytes may stand where: one table, one look-up per byte.

/// What tokens are made of.
const TOKEN: u8 = 1;
/// `cookie-octet` (RFC 6265 §4.1.1). At all other bytes some program ends a cookie or its value.
const COOKIE: u8 = 2;
/// The same without brackets, at which Python's `http.cookies`, for one, gives up.
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

/// A byte of a token (RFC 9110 §5.6.2): of methods and field names, for example.
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

/// Whether these bytes are a token.
pub fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && all(text, TOKEN)
}

/// Whether every program takes this byte for a part of a cookie.
pub(crate) fn is_cookie_octet(byte: u8) -> bool {
    CLASS[usize::from(byte)] & COOKIE != 0
}

/// Whether every program reads this value of a cookie alike.
pub(crate) fn is_plain_cookie_value(value: &[u8]) -> bool {
    all(value, PLAIN_COOKIE)
}

fn all(bytes: &[u8], class: u8) -> bool {
    bytes.iter().all(|&b| CLASS[usize::from(b)] & class != 0)
}
