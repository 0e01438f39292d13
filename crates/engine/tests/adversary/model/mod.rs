//! What two clients, one honest and one hostile, and an origin that follows RFC 9110 say to each
//! other. No sockets and no cache in here: the engine's own tests and those of the real program
//! put it around what they test.

mod chance;
mod page;
mod request;
mod selection;

pub(crate) use chance::Chance;
pub(crate) use page::{Page, Reply, Version};
pub(crate) use request::{Asked, honest, hostile};

/// Field lines in order.
pub(crate) type Lines = Vec<(String, String)>;

/// Where the pages are.
pub(crate) const HOST: &str = "site.example";

/// What clients prove who they are with. Nobody else's answers may hold it.
pub(crate) const HONEST_SECRET: &str = "honest-secret";
/// The same of the other one.
pub(crate) const HOSTILE_SECRET: &str = "hostile-secret";

/// The lines of that name.
pub(crate) fn all<'a>(lines: &'a Lines, name: &str) -> impl Iterator<Item = &'a str> {
    lines
        .iter()
        .filter(move |(n, _)| n.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.as_str())
}

/// All that a field says: its lines put together (RFC 9110 §5.3).
pub(crate) fn joined(lines: &Lines, name: &str) -> Option<String> {
    let values: Vec<_> = all(lines, name).collect();
    (!values.is_empty()).then(|| values.join(", "))
}
