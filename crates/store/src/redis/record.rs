//! How a record lies in the server: the names of its keys, and its one string.

use bytes::Bytes;

use crate::content::Content;
use crate::tier::{Entry, EntryId};

/// What a value has beside head and body: the length of the head.
pub(super) const ENVELOPE: u64 = 4;

/// What all keys begin with, and nobody else's do.
pub(super) const PREFIX: &str = "mc1:{";

const SLOTS: u16 = 16384;

/// A cluster places a key by what is in braces, so that a record and its claim are on one server.
pub(super) fn entry_key(id: EntryId) -> String {
    format!("{PREFIX}{id}}}")
}

/// The key that says who brings the record.
pub(super) fn claim_key(id: EntryId) -> String {
    format!("{PREFIX}{id}}}:c")
}

/// The key of the log that processes share. It is no record, and stays where all records are removed.
pub(super) fn log_key(id: EntryId) -> String {
    format!("mcl1:{{{id}}}")
}

/// Where a cluster keeps it.
pub(super) fn slot(id: EntryId) -> u16 {
    crc16(id.to_string().as_bytes()) % SLOTS
}

/// The value of a record; nothing if it is longer than `most`, or lies in a file.
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

/// The record of a value, if it is long enough for the head it promises.
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

/// A head as it lies in the value.
pub(super) fn opening(head: &[u8]) -> Vec<u8> {
    [&(head.len() as u32).to_le_bytes()[..], head].concat()
}

/// How long the opening of a value is; `None` if this is not its beginning.
pub(super) fn opening_len(beginning: &[u8]) -> Option<u64> {
    let head = u32::from_le_bytes(*beginning.first_chunk()?);
    Some(ENVELOPE + u64::from(head))
}

/// CRC16/XMODEM, as the cluster specification wants it.
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
