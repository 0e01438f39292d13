//! Field lines out of fuzzing input.

use microcache_policy::FieldsBuf;

/// Reads lines of `name: value` and leaves out what the proxy's own parser would refuse, so that a
/// target sees only what can come from a network.
pub fn field_lines(text: &[u8]) -> FieldsBuf {
    let mut fields = FieldsBuf::new();
    for line in text.split(|&b| b == b'\n') {
        let Some(colon) = line.iter().position(|&b| b == b':') else {
            continue;
        };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if http::HeaderName::from_bytes(name).is_ok()
            && http::HeaderValue::from_bytes(value).is_ok()
        {
            fields.push(name, value);
        }
    }
    fields
}

/// Two field sections with an empty line between them.
pub fn two_sections(text: &[u8]) -> (FieldsBuf, FieldsBuf) {
    let middle = text
        .windows(2)
        .position(|pair| pair == b"\n\n")
        .unwrap_or(text.len());
    (field_lines(&text[..middle]), field_lines(&text[middle..]))
}
