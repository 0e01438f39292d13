//! Fields that only a proxy in front of us may set.

/// Whether a client could use this field to make the origin see another url, method, host or peer
/// than the cache does, and so poison what is stored for everyone. From any but a trusted peer it
/// is overwritten or removed.
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
    let forwarded = name
        .get(..PREFIX.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(PREFIX));
    forwarded
        || NAMES
            .iter()
            .any(|one| name.eq_ignore_ascii_case(one.as_bytes()))
}
