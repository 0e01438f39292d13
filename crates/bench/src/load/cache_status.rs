//! Reading `Cache-Status` (RFC 9211), whichever cache wrote it.

use super::outcome::Outcome;

/// What the cache nearest to the client did: its member is the last one (RFC 9211 §2).
pub(crate) fn outcome(value: &[u8]) -> Outcome {
    let member = split(value, b',').last().unwrap_or_default();
    let mut seen = Seen::default();
    for parameter in split(member, b';').skip(1) {
        seen.add(parameter);
    }
    seen.outcome()
}

/// The parameters that tell outcomes apart.
#[derive(Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one parameter that is there or not"
)]
struct Seen<'a> {
    hit: bool,
    stale: bool,
    collapsed: bool,
    forwarded: Option<&'a [u8]>,
    confirmed: bool,
}

impl<'a> Seen<'a> {
    fn add(&mut self, parameter: &'a [u8]) {
        let (name, value) = match memchr::memchr(b'=', parameter) {
            Some(at) => (&parameter[..at], &parameter[at + 1..]),
            None => (parameter, &b""[..]),
        };
        let (name, value) = (name.trim_ascii(), value.trim_ascii());
        match name {
            b"hit" => self.hit = value != b"?0",
            b"collapsed" => self.collapsed = value != b"?0",
            b"fwd" => self.forwarded = Some(value),
            b"fwd-status" => self.confirmed = value == b"304",
            b"ttl" => self.stale |= value.starts_with(b"-"),
            b"detail" => self.stale |= value.trim_ascii_start().starts_with(b"stale"),
            _ => {}
        }
    }

    fn outcome(&self) -> Outcome {
        match self.forwarded {
            _ if self.hit && self.stale => Outcome::Stale,
            _ if self.hit => Outcome::Hit,
            None => Outcome::None,
            Some(_) if self.collapsed => Outcome::Collapsed,
            Some(b"bypass" | b"method") => Outcome::Pass,
            Some(_) if self.confirmed => Outcome::Revalidated,
            Some(b"request") => Outcome::Pass,
            Some(_) => Outcome::Miss,
        }
    }
}

/// The parts between separators that are not inside a string.
fn split(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut quoted = false;
    let mut escaped = false;
    text.split(move |&byte| {
        if escaped {
            escaped = false;
        } else if quoted && byte == b'\\' {
            escaped = true;
        } else if byte == b'"' {
            quoted = !quoted;
        }
        byte == separator && !quoted
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_cache_says_what_it_did() {
        for (value, expected) in [
            ("microcache; hit; ttl=1", Outcome::Hit),
            ("microcache; hit; ttl=-3; detail=stale", Outcome::Stale),
            ("microcache;hit;ttl=-3", Outcome::Stale),
            ("microcache; hit; detail=stale", Outcome::Stale),
            (
                "microcache; fwd=uri-miss; fwd-status=200; stored",
                Outcome::Miss,
            ),
            ("microcache; fwd=uri-miss; collapsed", Outcome::Collapsed),
            (
                "microcache; fwd=stale; fwd-status=304",
                Outcome::Revalidated,
            ),
            ("microcache; fwd=stale; fwd-status=200", Outcome::Miss),
            ("microcache; fwd=request; detail=credentials", Outcome::Pass),
            (
                "microcache; fwd=request; fwd-status=304",
                Outcome::Revalidated,
            ),
            ("microcache; fwd=bypass", Outcome::Pass),
            ("microcache; fwd=method; fwd-status=304", Outcome::Pass),
            ("\"a, b\"; hit", Outcome::Hit),
            ("a; detail=\"x; fwd=miss, y\\\"\"; hit", Outcome::Hit),
            ("inner; fwd=miss, outer; hit", Outcome::Hit),
            ("inner; hit, outer; fwd=vary-miss", Outcome::Miss),
            ("a; hit=?0; fwd=partial", Outcome::Miss),
            ("a; hit=?1", Outcome::Hit),
            ("a", Outcome::None),
            ("", Outcome::None),
            (",;,=;\"", Outcome::None),
        ] {
            assert_eq!(outcome(value.as_bytes()), expected, "{value}");
        }
    }
}
