//! The encoding of stored responses: what is decoded encodes to the same bytes again, and can be
//! sent as it is. A shared tier may hold what somebody else wrote, with checksums that are right.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use microcache_proxy::h1::{Limits, parse_response};
use microcache_store::Stored;
use xxhash_rust::xxh3::xxh3_64;

/// Where the two checksums stand in the encoding, and where its variable parts begin.
const BODY_SUM: usize = 4 + 2 + 4 * 4 + 8 + 41;
const HEAD_SUM: usize = BODY_SUM + 8;
const PARTS: usize = HEAD_SUM + 8;

fuzz_target!(|input: &[u8]| {
    check(input.to_vec());
    if let Some(sealed) = sealed(input) {
        check(sealed);
    }
});

fn check(encoded: Vec<u8>) {
    let encoded = Bytes::from(encoded);
    let Ok((key, stored)) = Stored::decode(&encoded) else {
        return;
    };
    assert_eq!(stored.encode(&key), encoded);
    assert!((200..=599).contains(&stored.status));

    // The fields must not be able to end the head they are sent in, nor to frame the body.
    let head = [b"HTTP/1.1 200 OK\r\n", &stored.fields[..], b"\r\n"].concat();
    let roomy = Limits {
        head: usize::MAX,
        target: 0,
        fields: usize::MAX,
    };
    let (read, length) = parse_response(&head, false, &roomy)
        .expect("a head that we would accept")
        .expect("a whole head");
    assert_eq!(length, head.len());
    assert_eq!(read.fields.as_block(), &stored.fields[..]);
    assert_eq!(read.length, None, "a stored Content-Length");
    for name in ["content-length", "transfer-encoding", "connection"] {
        assert!(!read.fields.contains(name), "a stored {name}");
    }
}

/// The same bytes with both checksums put right; `None` if it is too short for that.
fn sealed(input: &[u8]) -> Option<Vec<u8>> {
    let lengths = input.get(6..22)?.chunks_exact(4);
    let parts: usize = lengths
        .map(|length| length.try_into().map_or(0, u32::from_le_bytes) as usize)
        .sum();
    let body_at = PARTS.checked_add(parts)?;
    let body_sum = xxh3_64(input.get(body_at..)?);
    let mut sealed = input.to_vec();
    sealed[BODY_SUM..HEAD_SUM].copy_from_slice(&body_sum.to_le_bytes());
    let head_sum = xxh3_64(&sealed[..HEAD_SUM]) ^ xxh3_64(&sealed[PARTS..body_at]).rotate_left(1);
    sealed[HEAD_SUM..PARTS].copy_from_slice(&head_sum.to_le_bytes());
    Some(sealed)
}
