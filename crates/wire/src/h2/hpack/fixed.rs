//! The static table (RFC 7541, appendix A).

/// Number of entries; the dynamic table begins behind them.
pub(super) const LEN: usize = ENTRIES.len();

#[rustfmt::skip]
static ENTRIES: [(&str, &str); 61] = [
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"),
    (":path", "/index.html"), (":scheme", "http"), (":scheme", "https"), (":status", "200"),
    (":status", "204"), (":status", "206"), (":status", "304"), (":status", "400"),
    (":status", "404"), (":status", "500"), ("accept-charset", ""), ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""), ("accept-ranges", ""), ("accept", ""), ("access-control-allow-origin", ""),
    ("age", ""), ("allow", ""), ("authorization", ""), ("cache-control", ""),
    ("content-disposition", ""), ("content-encoding", ""), ("content-language", ""), ("content-length", ""),
    ("content-location", ""), ("content-range", ""), ("content-type", ""), ("cookie", ""),
    ("date", ""), ("etag", ""), ("expect", ""), ("expires", ""),
    ("from", ""), ("host", ""), ("if-match", ""), ("if-modified-since", ""),
    ("if-none-match", ""), ("if-range", ""), ("if-unmodified-since", ""), ("last-modified", ""),
    ("link", ""), ("location", ""), ("max-forwards", ""), ("proxy-authenticate", ""),
    ("proxy-authorization", ""), ("range", ""), ("referer", ""), ("refresh", ""),
    ("retry-after", ""), ("server", ""), ("set-cookie", ""), ("strict-transport-security", ""),
    ("transfer-encoding", ""), ("user-agent", ""), ("vary", ""), ("via", ""),
    ("www-authenticate", ""),
];

/// Returns name and value of the entry with this index, counted from 1.
pub(super) fn get(index: usize) -> Option<(&'static [u8], &'static [u8])> {
    let (name, value) = ENTRIES.get(index.checked_sub(1)?)?;
    Some((name.as_bytes(), value.as_bytes()))
}

/// Returns the index of a response field name in any case; 0 if there is none.
pub(super) fn of_response(name: &[u8]) -> usize {
    let candidates: &[usize] = match name.len() {
        3 => &[21, 60],
        4 => &[33, 34, 45, 59],
        5 => &[22],
        6 => &[54],
        7 => &[36, 52],
        8 => &[46],
        10 => &[55],
        11 => &[53],
        12 => &[31],
        13 => &[24, 44, 18, 30],
        14 => &[28],
        16 => &[26, 27, 29, 61],
        19 => &[25],
        25 => &[56],
        27 => &[20],
        _ => &[],
    };
    let found = candidates
        .iter()
        .find(|&&index| get(index).is_some_and(|(known, _)| name.eq_ignore_ascii_case(known)));
    found.copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_responses_are_found_in_any_case() {
        let requests_alone = [
            "accept-charset",
            "accept-encoding",
            "accept-language",
            "accept",
            "authorization",
            "cookie",
            "expect",
            "from",
            "host",
            "if-match",
            "if-modified-since",
            "if-none-match",
            "if-range",
            "if-unmodified-since",
            "max-forwards",
            "proxy-authorization",
            "proxy-authenticate",
            "range",
            "referer",
            "transfer-encoding",
            "user-agent",
        ];
        for index in 15..=LEN {
            let (name, _) = get(index).expect("an entry");
            let text = std::str::from_utf8(name).expect("text");
            let expected = if requests_alone.contains(&text) {
                0
            } else {
                index
            };
            assert_eq!(of_response(name), expected, "{text}");
            assert_eq!(
                of_response(text.to_uppercase().as_bytes()),
                expected,
                "{text}"
            );
        }
        assert_eq!((of_response(b"x-a"), get(0), get(62)), (0, None, None));
    }
}
