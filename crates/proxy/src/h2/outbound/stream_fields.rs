//! Fields that HTTP/2 allows.

use microcache_policy::Fields;

/// Returns the fields without those that are specific to a connection, which HTTP/2 forbids (RFC 9113 §8.2.2).
pub(super) fn stream_fields(fields: Fields<'_>) -> impl Iterator<Item = (&[u8], &[u8])> {
    fields.iter().filter(|(name, _)| !is_of_connection(name))
}

fn is_of_connection(name: &[u8]) -> bool {
    let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
    match name.len() {
        7 => is(b"upgrade"),
        10 => is(b"connection") || is(b"keep-alive"),
        16 => is(b"proxy-connection"),
        17 => is(b"transfer-encoding"),
        _ => false,
    }
}
