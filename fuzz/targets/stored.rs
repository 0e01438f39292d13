//! The encoding of stored responses: what is decoded encodes to the same bytes again, and can be
//! sent as it is. A shared tier may hold what somebody else wrote, with checksums that are right.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use microcache_policy::FieldIndex;
use microcache_store::Content;
use microcache_store::Epoch;
use microcache_store::encoding::{
    RecordHead, TierRecord, checksum, encode, encode_unstorable, encode_varies,
};
use microcache_wire::h1::{HeadLimits, parse_response};
use xxhash_rust::xxh3::xxh3_64;

/// Where things stand in the encoding.
const BODY_LEN: usize = 4 + 2;
const BODY_SUM: usize = BODY_LEN + 8;
const LENGTHS: usize = BODY_SUM + 3 * 8 + 41;
const HEAD_SUM: usize = LENGTHS + 4 * 4;
const PARTS: usize = HEAD_SUM + 8;

// A head, and behind it the body.
fuzz_target!(|input: &[u8]| {
    for input in [input.to_vec(), sealed(input).unwrap_or_default()] {
        let at = body_at(&input).unwrap_or(input.len()).min(input.len());
        let (head, body) = input.split_at(at);
        check(&Bytes::copy_from_slice(head), Bytes::copy_from_slice(body));
    }
});

fn check(encoded: &Bytes, body: Bytes) {
    let Ok(head) = RecordHead::decode(encoded) else {
        return;
    };
    let key = head.key.clone();
    let (length, sum) = (body.len() as u64, checksum(&body));
    let stored = match head.with_body(Content::Bytes(body)) {
        Err(_) => return,
        Ok(TierRecord::Varies(varies)) => {
            let again =
                RecordHead::decode(&encode_varies(&key, &varies, Epoch::now())).expect("our own");
            assert!(matches!(
                again.with_body(Content::default()),
                Ok(TierRecord::Varies(read)) if read == varies
            ));
            return;
        }
        Ok(TierRecord::Unstorable) => {
            let again = RecordHead::decode(&encode_unstorable(&key)).expect("our own");
            assert!(matches!(
                again.with_body(Content::default()),
                Ok(TierRecord::Unstorable)
            ));
            return;
        }
        Ok(TierRecord::Response(stored)) => stored,
    };
    let again =
        RecordHead::decode(&encode(&key, &stored, (length, sum), Epoch::now())).expect("our own");
    assert_eq!(again.key, key);
    assert!((200..=599).contains(&stored.status()));

    // The fields must not be able to end the head they are sent in, nor to frame the body.
    let head = [b"HTTP/1.1 200 OK\r\n", stored.fields().as_block(), b"\r\n"].concat();
    let roomy = HeadLimits {
        head: usize::MAX,
        target: 0,
        fields: usize::MAX,
    };
    let mut index = FieldIndex::default();
    let (read, length) = parse_response(&head, false, &roomy, &mut index)
        .expect("a head that we would accept")
        .expect("a whole head");
    assert_eq!(length, head.len());
    assert_eq!(read.fields.as_block(), stored.fields().as_block());
    assert_eq!(read.length, None, "a stored Content-Length");
    for name in ["content-length", "transfer-encoding", "connection"] {
        assert!(!read.fields.contains(name), "a stored {name}");
    }
}

/// Where the body begins, by what the head says.
fn body_at(input: &[u8]) -> Option<usize> {
    let lengths = input.get(LENGTHS..HEAD_SUM)?.chunks_exact(4);
    let parts: usize = lengths
        .map(|length| length.try_into().map_or(0, u32::from_le_bytes) as usize)
        .sum();
    PARTS.checked_add(parts)
}

/// The same bytes with the body's length and both checksums put right; `None` if it is too short
/// for that.
fn sealed(input: &[u8]) -> Option<Vec<u8>> {
    let body_at = body_at(input)?;
    let body = input.get(body_at..)?;
    let mut sealed = input.to_vec();
    sealed[BODY_LEN..BODY_SUM].copy_from_slice(&(body.len() as u64).to_le_bytes());
    sealed[BODY_SUM..BODY_SUM + 8].copy_from_slice(&xxh3_64(body).to_le_bytes());
    let head_sum = xxh3_64(&sealed[..HEAD_SUM]) ^ xxh3_64(&sealed[PARTS..body_at]).rotate_left(1);
    sealed[HEAD_SUM..PARTS].copy_from_slice(&head_sum.to_le_bytes());
    Some(sealed)
}
