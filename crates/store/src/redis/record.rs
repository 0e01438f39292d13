//! Keys and values of records in Redis.

use bytes::Bytes;

use crate::content::Content;
use crate::tier::{Entry, EntryId};

/// Length of a value in addition to head and body: the length field of the head.
pub(super) const ENVELOPE: u64 = 4;

/// Prefix of all keys of the tier.
pub(super) const PREFIX: &str = "mc1:{";

const SLOTS: u16 = 16384;

/// Key of a record. The hash tag in braces places record and claim in one slot.
pub(super) fn entry_key(id: EntryId) -> String {
    format!("{PREFIX}{id}}}")
}

/// Id of the key of a record.
pub(super) fn id_of_entry_key(key: &[u8]) -> Option<EntryId> {
    let id = str::from_utf8(key)
        .ok()?
        .strip_prefix(PREFIX)?
        .strip_suffix('}')?;
    let number = u128::from_str_radix(id, 16).ok()?;
    (id.len() == 32).then(|| EntryId::from_bytes(number.to_be_bytes()))
}

/// Key of a claim.
pub(super) fn claim_key(id: EntryId) -> String {
    format!("{PREFIX}{id}}}:c")
}

/// Key of the set of channels on which the end of a claim is announced.
pub(super) fn awaiting_key(id: EntryId) -> String {
    format!("{PREFIX}{id}}}:w")
}

/// Id of the purge log, which determines its slot in a cluster.
pub(super) fn log_id() -> EntryId {
    EntryId::of(b"the log that processes share")
}

/// Key of the purge log, which is kept when all records are removed.
pub(super) fn log_key(id: EntryId) -> String {
    format!("mcl1:{{{id}}}")
}

/// Returns the slot of an id.
pub(super) fn slot(id: EntryId) -> u16 {
    crc16(id.to_string().as_bytes()) % SLOTS
}

/// Encodes a record; `None` if it exceeds `most`, or its body is in a file.
pub(super) fn encode(entry: &Entry, most: u64) -> Option<Vec<u8>> {
    let body = entry.body.bytes()?;
    let head = u32::try_from(entry.head.len()).ok()?;
    let len = entry.head.len() + body.len();
    if len as u64 > most {
        return None;
    }
    let mut value = Vec::with_capacity(ENVELOPE as usize + len);
    value.extend_from_slice(&head.to_le_bytes());
    value.extend_from_slice(&entry.head);
    value.extend_from_slice(body);
    Some(value)
}

/// Decodes a record; `None` if it is shorter than its head.
pub(super) fn decode(mut value: Bytes) -> Option<Entry> {
    let head = u32::from_le_bytes(*value.first_chunk()?) as usize;
    let mut rest = value.split_off(ENVELOPE as usize);
    if head > rest.len() {
        return None;
    }
    let head = rest.split_to(head);
    Some(Entry {
        head,
        body: Content::Bytes(rest),
    })
}

/// Encodes the beginning of a value, up to the end of the head.
pub(super) fn opening(head: &[u8]) -> Vec<u8> {
    [&(head.len() as u32).to_le_bytes()[..], head].concat()
}

/// Length of the beginning of a value, up to the end of the head; `None` if the value is too short to determine it.
pub(super) fn opening_len(beginning: &[u8]) -> Option<u64> {
    let head = u32::from_le_bytes(*beginning.first_chunk()?);
    Some(ENVELOPE + u64::from(head))
}

/// CRC16/XMODEM, as defined by the Redis Cluster specification.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
            let shifted = crc << 1;
            if crc & 0x8000 == 0 {
                shifted
            } else {
                shifted ^ 0x1021
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(head: Vec<u8>, body: Vec<u8>) -> Entry {
        Entry {
            head: head.into(),
            body: Content::Bytes(body.into()),
        }
    }

    #[test]
    fn an_announcement_names_its_record() {
        let id = EntryId::of(b"page");
        assert_eq!(id_of_entry_key(entry_key(id).as_bytes()), Some(id));
    }

    #[test]
    fn the_checksum_of_the_cluster_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
    }

    #[test]
    fn a_head_longer_than_the_value_is_no_record() {
        for value in [
            &b""[..],
            b"\x01\0\0",
            b"\x01\0\0\0",
            b"\xff\xff\xff\xffhead",
        ] {
            assert!(decode(Bytes::copy_from_slice(value)).is_none(), "{value:?}");
        }
    }

    #[test]
    fn the_bound_is_on_head_and_body() {
        assert!(encode(&entry(vec![0; 10], vec![0; 10]), 20).is_some());
        assert!(encode(&entry(vec![0; 10], vec![0; 11]), 20).is_none());
    }

    proptest! {
        #[test]
        fn encoding_is_the_identity(head: Vec<u8>, body: Vec<u8>) {
            let value = encode(&entry(head.clone(), body.clone()), u64::MAX).unwrap();
            let read = decode(value.into()).unwrap();
            prop_assert_eq!(&read.head[..], &head[..]);
            prop_assert_eq!(&read.body.bytes().unwrap()[..], &body[..]);
        }

        #[test]
        fn arbitrary_bytes_never_panic(value: Vec<u8>) {
            let len = value.len();
            if let Some(entry) = decode(value.into()) {
                prop_assert_eq!(entry.head.len() as u64 + entry.body.len() + ENVELOPE, len as u64);
            }
        }
    }
}
