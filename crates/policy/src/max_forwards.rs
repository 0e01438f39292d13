//! The hop limit of a request (RFC 9110 §7.6.2).

use http::Method;

use crate::fields::Fields;
use crate::known_name::names;

/// The effect of `Max-Forwards` on forwarding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxForwards {
    /// No limit: the field is absent, malformed, or has no meaning for the method.
    Unlimited,
    /// Forward the request with this number.
    Left(u32),
    /// Respond to it: it must not be forwarded.
    Last,
}

/// Parses `Max-Forwards`, which applies to OPTIONS and TRACE alone.
pub fn max_forwards(method: &Method, fields: Fields<'_>) -> MaxForwards {
    if !matches!(*method, Method::OPTIONS | Method::TRACE) {
        return MaxForwards::Unlimited;
    }
    let mut lines = fields.values(names::MAX_FORWARDS);
    let (Some(value), None) = (lines.next(), lines.next()) else {
        return MaxForwards::Unlimited;
    };
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return MaxForwards::Unlimited;
    }
    // A larger number becomes the largest that fits, as §7.6.2 allows.
    let number = std::str::from_utf8(value).map_or(Ok(u32::MAX), str::parse);
    match number.unwrap_or(u32::MAX) {
        0 => MaxForwards::Last,
        received => MaxForwards::Left(received - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: &Method, block: &str, expected: MaxForwards) {
        let found = max_forwards(method, Fields::new(block.as_bytes()));
        assert_eq!(found, expected, "{method} {block:?}");
    }

    #[test]
    fn it_counts_down_to_the_last_recipient() {
        for method in [Method::OPTIONS, Method::TRACE] {
            for (value, expected) in [
                ("0", MaxForwards::Last),
                ("000", MaxForwards::Last),
                ("1", MaxForwards::Left(0)),
                ("010", MaxForwards::Left(9)),
                ("4294967295", MaxForwards::Left(u32::MAX - 1)),
                ("99999999999999999999999", MaxForwards::Left(u32::MAX - 1)),
            ] {
                check(&method, &format!("Max-Forwards: {value}\r\n"), expected);
            }
        }
    }

    #[test]
    fn invalid_numbers_are_ignored() {
        for block in [
            "",
            "Max-Forwards:\r\n",
            "Max-Forwards: -1\r\n",
            "Max-Forwards: +0\r\n",
            "Max-Forwards: 0, 0\r\n",
            "Max-Forwards: 0x0\r\n",
            "Max-Forwards: 0\r\nMax-Forwards: 0\r\n",
        ] {
            check(&Method::OPTIONS, block, MaxForwards::Unlimited);
        }
    }

    #[test]
    fn other_methods_do_not_know_it() {
        for method in [Method::GET, Method::POST, Method::DELETE] {
            check(&method, "Max-Forwards: 0\r\n", MaxForwards::Unlimited);
        }
    }
}
