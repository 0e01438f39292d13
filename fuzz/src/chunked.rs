//! The chunked coding as plainly as it can be read: the whole input at once, one pass, no state.

/// A body that was read to its end.
#[derive(Debug, PartialEq, Eq)]
pub struct Body {
    /// The chunks' bytes.
    pub data: Vec<u8>,
    /// All trailer lines, name and value.
    pub trailers: Vec<(Vec<u8>, Vec<u8>)>,
    /// How much of the input it took.
    pub length: usize,
}

/// What the proxy allows for chunk sizes, chunk extensions and trailers.
const MAX_SIZE_DIGITS: usize = 16;
const MAX_EXTENSIONS: usize = 4 * 1024;
const MAX_TRAILERS: usize = 8 * 1024;

/// Reads a body at the front of `input`; `None` if it is malformed or not over.
pub fn read(input: &[u8]) -> Option<Body> {
    let mut at = 0;
    let mut extensions = 0;
    let mut data = Vec::new();
    loop {
        let line = line_at(input, at)?;
        at += line.len() + 2;
        let end = line.iter().position(|&b| b == b';').unwrap_or(line.len());
        let (digits, extension) = line.split_at(end);
        extensions += extension.len();
        if digits.len() > MAX_SIZE_DIGITS || extensions > MAX_EXTENSIONS || !is_text(extension) {
            return None;
        }
        if !extensions_of(extension).all(|one| is_extension(&one)) {
            return None;
        }
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        // A number with a sign: what does not fit 63 bits is too large.
        let size = i64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        if size == 0 {
            break;
        }
        let end = at.checked_add(usize::try_from(size).ok()?)?;
        data.extend_from_slice(input.get(at..end)?);
        if input.get(end..end + 2)? != b"\r\n" {
            return None;
        }
        at = end + 2;
    }
    let section = at;
    let mut trailers = Vec::new();
    loop {
        let line = line_at(input, at)?;
        at += line.len() + 2;
        if line.is_empty() {
            break;
        }
        if at - section > MAX_TRAILERS {
            return None;
        }
        let colon = line.iter().position(|&b| b == b':')?;
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        http::HeaderName::from_bytes(name).ok()?;
        if !is_text(value) {
            return None;
        }
        trailers.push((name.to_vec(), value.trim_ascii().to_vec()));
    }
    Some(Body {
        data,
        trailers,
        length: at,
    })
}

/// The extensions of a chunk, without the semicolon before each. What stands in quotes is replaced by
/// `""`; a quote that is left open, or escapes nothing, stays as it is.
fn extensions_of(text: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let mut plain = Vec::new();
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        plain.push(byte);
        rest = after;
        if byte == b'"' {
            let mut escaped = false;
            let end = rest.iter().position(|&b| {
                let ends = b == b'"' && !escaped;
                escaped = b == b'\\' && !escaped;
                ends
            });
            if let Some(end) = end {
                plain.push(b'"');
                rest = &rest[end + 1..];
            }
        }
    }
    let mut parts: Vec<_> = plain.split(|&b| b == b';').map(<[u8]>::to_vec).collect();
    // Nothing stands before the first one.
    let before = parts.remove(0);
    if before.is_empty() {
        let last = parts.len();
        for (index, part) in parts.iter_mut().enumerate() {
            // White space stands before a semicolon, not before the end of the line.
            let keep_end = index + 1 == last;
            let trimmed = if keep_end {
                part.trim_ascii_start()
            } else {
                part.trim_ascii()
            };
            *part = trimmed.to_vec();
        }
        parts.into_iter()
    } else {
        vec![before].into_iter()
    }
}

/// `name`, `name=value` or `name=""`, with white space around the equals sign.
fn is_extension(text: &[u8]) -> bool {
    let is_token = |word: &[u8]| http::Method::from_bytes(word).is_ok();
    match text.iter().position(|&b| b == b'=') {
        None => is_token(text),
        Some(at) => {
            let (name, value) = (
                text[..at].trim_ascii_end(),
                text[at + 1..].trim_ascii_start(),
            );
            is_token(name) && (value == b"\"\"" || is_token(value))
        }
    }
}

fn line_at(input: &[u8], at: usize) -> Option<&[u8]> {
    let rest = input.get(at..)?;
    let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
    Some(&rest[..end])
}

fn is_text(bytes: &[u8]) -> bool {
    http::HeaderValue::from_bytes(bytes).is_ok()
}
