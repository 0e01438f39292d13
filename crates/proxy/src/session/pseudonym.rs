//! Pseudonym of this process in the `Via` of its requests (RFC 9110 §7.6.3), unique so that a loop is detected
//! while several instances in a row are not mistaken for one.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use microcache_policy::fields::split_list;
use microcache_policy::{Fields, names};

/// Pseudonym of this process.
pub(crate) struct Pseudonym {
    /// Protocol and pseudonym, as written in `Via`.
    via: String,
}

impl Pseudonym {
    /// Random pseudonym. A client that could guess it could fake a loop.
    pub(crate) fn new() -> Self {
        // The hash keys are random.
        let half = || RandomState::new().hash_one(0);
        Self {
            via: format!("1.1 microcache-{:016x}{:016x}", half(), half()),
        }
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
        request.values(names::VIA).flat_map(split_list).any(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pseudonym_is_found_in_any_position() {
        let own = Pseudonym::new();
        let via = own.via();
        for (block, expected) in [
            (format!("Via: {via}\r\n"), true),
            (format!("Via: 1.0 a, {via} (x), 1.1 b\r\n"), true),
            (format!("via: 1.1 a\r\nVIA: {via}\r\n"), true),
            (format!("Via: {}\r\n", Pseudonym::new().via()), false),
            (format!("Via: {via}0\r\n"), false),
            ("Via: 1.1 microcache\r\n".to_owned(), false),
            (format!("X-Via: {via}\r\n"), false),
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
