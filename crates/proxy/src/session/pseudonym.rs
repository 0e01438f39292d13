//! Pseudonym of this process in `Via` (RFC 9110 §7.6.3) and `CDN-Loop` (RFC 8586) of its requests, unique so that a loop
//! is detected while several instances in a row are not mistaken for one. Some proxies remove `Via`; none that is in a
//! loop with others may remove `CDN-Loop`.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use microcache_policy::fields::split_list;
use microcache_policy::request_fields::CDN_LOOP_MEMBER;
use microcache_policy::{Fields, FieldsBuf, LineStart, names};

const VIA: LineStart = LineStart::of("Via: ");
const CDN_LOOP: LineStart = LineStart::of("CDN-Loop: ");

/// Pseudonym of this process.
pub(crate) struct Pseudonym {
    /// Protocol and pseudonym, as written in `Via`.
    via: String,
    /// Name and parameter, as written in `CDN-Loop`.
    cdn_loop: String,
}

impl Pseudonym {
    /// Random pseudonym. A client that could guess it could fake a loop.
    pub(crate) fn new() -> Self {
        // The hash keys are random.
        let half = || RandomState::new().hash_one(0);
        let id = format!("{:016x}{:016x}", half(), half());
        Self {
            via: format!("1.1 microcache-{id}"),
            cdn_loop: format!("{CDN_LOOP_MEMBER}{id}"),
        }
    }

    /// Adds both fields to a request.
    pub(super) fn add_to(&self, request: &mut FieldsBuf) {
        request.push_line(VIA, [self.via.as_bytes()]);
        request.push_line(CDN_LOOP, [self.cdn_loop.as_bytes()]);
    }

    /// Returns the element to append to `Via`.
    pub(crate) fn via(&self) -> &str {
        &self.via
    }

    /// Returns `true` if this process has sent the request.
    pub(super) fn is_in(&self, request: Fields<'_>) -> bool {
        let name = |member: &[u8]| {
            let mut words = member.split(u8::is_ascii_whitespace);
            words
                .nth(1)
                .is_some_and(|name| name == &self.via.as_bytes()["1.1 ".len()..])
        };
        // Others may have written it in another form, and no client can guess the id.
        let id = &self.cdn_loop.as_bytes()[CDN_LOOP_MEMBER.len()..];
        let has_id = |value: &[u8]| value.windows(id.len()).any(|part| part == id);
        request.values(names::VIA).flat_map(split_list).any(name)
            || request.values(names::CDN_LOOP).any(has_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pseudonym_is_found_in_any_position() {
        let own = Pseudonym::new();
        let (via, cdn_loop) = (own.via(), &own.cdn_loop);
        for (block, expected) in [
            (format!("Via: {via}\r\n"), true),
            (format!("Via: 1.0 a, {via} (x), 1.1 b\r\n"), true),
            (format!("via: 1.1 a\r\nVIA: {via}\r\n"), true),
            (format!("Via: {}\r\n", Pseudonym::new().via()), false),
            (format!("Via: {via}0\r\n"), false),
            ("Via: 1.1 microcache\r\n".to_owned(), false),
            (format!("X-Via: {via}\r\n"), false),
            (format!("CDN-Loop: {cdn_loop}\r\n"), true),
            (
                format!("cdn-loop: a\r\nCDN-LOOP: b,{cdn_loop};c=d, e\r\n"),
                true,
            ),
            (
                format!("CDN-Loop: {}\r\n", Pseudonym::new().cdn_loop),
                false,
            ),
            ("CDN-Loop: microcache\r\n".to_owned(), false),
            (String::new(), false),
        ] {
            assert_eq!(
                own.is_in(Fields::new(block.as_bytes())),
                expected,
                "{block}"
            );
        }
    }
}
