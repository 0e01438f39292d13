//! The conversations of two clients, an honest and a hostile one, with an origin that follows RFC
//! 9110. The model has neither sockets nor a cache: the engine's tests and those of the real
//! program put them in between.

mod page;
mod request;
mod selection;

pub(crate) use microcache_testkit::Chance;
pub(crate) use page::{Page, Reply, Version};
pub(crate) use request::{TestRequest, honest, hostile};

/// Field lines in order.
pub(crate) type Lines = Vec<(String, String)>;

/// The host of all pages.
pub(crate) const HOST: &str = "site.example";

/// The honest client's credential. No other client's response may contain it.
pub(crate) const HONEST_SECRET: &str = "honest-secret";
/// The hostile client's credential.
pub(crate) const HOSTILE_SECRET: &str = "hostile-secret";

/// The values of the lines with this name.
pub(crate) fn all<'a>(lines: &'a Lines, name: &str) -> impl Iterator<Item = &'a str> {
    lines
        .iter()
        .filter(move |(n, _)| n.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.as_str())
}

/// The combined value of a field's lines (RFC 9110 §5.3).
pub(crate) fn joined(lines: &Lines, name: &str) -> Option<String> {
    let values: Vec<_> = all(lines, name).collect();
    (!values.is_empty()).then(|| values.join(", "))
}
