//! How this process calls itself in the `Via` of its requests (RFC 9110 §7.6.3): a name that no other
//! process has, so that a request which comes back is known, and several Microcaches in a row are
//! not taken for a loop.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use microcache_policy::Fields;

/// The name of this process.
pub(crate) struct Pseudonym {
    /// The protocol and the name, as they are written.
    via: String,
}

impl Pseudonym {
    /// One that nobody can guess: who knew it could pass for a loop.
    pub(crate) fn new() -> Self {
        // The keys of the hashes are random.
        let half = || RandomState::new().hash_one(0);
        Self {
            via: format!("1.1 microcache-{:016x}{:016x}", half(), half()),
        }
    }

    /// What is added to `Via`.
    pub(crate) fn via(&self) -> &str {
        &self.via
    }

    /// Whether a request was sent from here.
    pub(super) fn is_in(&self, request: Fields<'_>) -> bool {
        let name = |member: &[u8]| {
            let mut words = member.split(u8::is_ascii_whitespace);
            words
                .nth(1)
                .is_some_and(|name| name == &self.via.as_bytes()["1.1 ".len()..])
        };
        request.members("via").any(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_found_wherever_it_stands_and_no_other_is() {
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
