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
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let size = u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
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

fn line_at(input: &[u8], at: usize) -> Option<&[u8]> {
    let rest = input.get(at..)?;
    let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
    Some(&rest[..end])
}

fn is_text(bytes: &[u8]) -> bool {
    http::HeaderValue::from_bytes(bytes).is_ok()
}
