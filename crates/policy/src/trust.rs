//! Fields that only a proxy in front of us may set.

/// Whether a client could use this field to make the origin see another url, method, host or peer
/// than the cache does, and so poison what is stored for everyone. From any but a trusted peer it
/// is overwritten or removed. CGI's environment has no hyphens, so `x_forwarded_host` and
/// `X-Forwarded-Host` are one field to many applications.
pub fn only_from_trusted_peers(name: &[u8]) -> bool {
    const PREFIX: &[u8] = b"x-forwarded-";
    const NAMES: [&str; 11] = [
        "forwarded",
        "x-host",
        "x-http-host-override",
        "x-http-method",
        "x-http-method-override",
        "x-method-override",
        "x-original-host",
        "x-original-method",
        "x-original-url",
        "x-real-ip",
        "x-rewrite-url",
    ];
    let same = |a: u8, b: u8| a.to_ascii_lowercase() == b || a == b'_' && b == b'-';
    let starts_with = |start: &[u8]| {
        name.len() >= start.len() && name.iter().zip(start).all(|(&a, &b)| same(a, b))
    };
    starts_with(PREFIX)
        || NAMES
            .iter()
            .any(|one| name.len() == one.len() && starts_with(one.as_bytes()))
}
