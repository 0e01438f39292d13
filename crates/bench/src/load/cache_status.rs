//! Parser of the `Cache-Status` response field (RFC 9211).

use super::outcome::CacheOutcome;

/// Returns the outcome reported by the cache nearest to the client, which is the last member (RFC 9211 §2).
pub(crate) fn outcome(value: &[u8]) -> CacheOutcome {
    let member = split(value, b',').last().unwrap_or_default();
    let mut parameters = MemberParameters::default();
    for parameter in split(member, b';').skip(1) {
        parameters.add(parameter);
    }
    parameters.outcome()
}

/// The parameters of one member that determine its outcome (RFC 9211 §2.1-2.8).
#[derive(Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one parameter that is there or not"
)]
struct MemberParameters<'a> {
    hit: bool,
    stale: bool,
    collapsed: bool,
    forwarded: Option<&'a [u8]>,
    confirmed: bool,
}

impl<'a> MemberParameters<'a> {
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

    fn outcome(&self) -> CacheOutcome {
        match self.forwarded {
            _ if self.hit && self.stale => CacheOutcome::Stale,
            _ if self.hit => CacheOutcome::Hit,
            None => CacheOutcome::None,
            Some(_) if self.collapsed => CacheOutcome::Collapsed,
            Some(b"bypass" | b"method") => CacheOutcome::Pass,
            Some(_) if self.confirmed => CacheOutcome::Revalidated,
            Some(b"request") => CacheOutcome::Pass,
            Some(_) => CacheOutcome::Miss,
        }
    }
}

/// Splits at separators outside quoted strings (RFC 8941 §3.3.3).
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
    fn the_nearest_cache_determines_the_outcome() {
        for (value, expected) in [
            ("microcache; hit; ttl=1", CacheOutcome::Hit),
            ("microcache; hit; ttl=-3; detail=stale", CacheOutcome::Stale),
            ("microcache;hit;ttl=-3", CacheOutcome::Stale),
            ("microcache; hit; detail=stale", CacheOutcome::Stale),
            (
                "microcache; fwd=uri-miss; fwd-status=200; stored",
                CacheOutcome::Miss,
            ),
            (
                "microcache; fwd=uri-miss; collapsed",
                CacheOutcome::Collapsed,
            ),
            (
                "microcache; fwd=stale; fwd-status=304",
                CacheOutcome::Revalidated,
            ),
            ("microcache; fwd=stale; fwd-status=200", CacheOutcome::Miss),
            (
                "microcache; fwd=request; detail=credentials",
                CacheOutcome::Pass,
            ),
            (
                "microcache; fwd=request; fwd-status=304",
                CacheOutcome::Revalidated,
            ),
            ("microcache; fwd=bypass", CacheOutcome::Pass),
            ("microcache; fwd=method; fwd-status=304", CacheOutcome::Pass),
            ("\"a, b\"; hit", CacheOutcome::Hit),
            ("a; detail=\"x; fwd=miss, y\\\"\"; hit", CacheOutcome::Hit),
            ("inner; fwd=miss, outer; hit", CacheOutcome::Hit),
            ("inner; hit, outer; fwd=vary-miss", CacheOutcome::Miss),
            ("a; hit=?0; fwd=partial", CacheOutcome::Miss),
            ("a; hit=?1", CacheOutcome::Hit),
            ("a", CacheOutcome::None),
            ("", CacheOutcome::None),
            (",;,=;\"", CacheOutcome::None),
        ] {
            assert_eq!(outcome(value.as_bytes()), expected, "{value}");
        }
    }
}
