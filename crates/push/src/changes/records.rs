//! The binary format of the log: one record per write request or batch, preceded by its length and checksum.

use std::sync::Arc;

use bytes::{Buf, Bytes};
use microcache_policy::Time;
use xxhash_rust::xxh3::xxh3_64;

use crate::changes::change::{DocumentChange, DocumentContent};
use crate::changes::generations::Generation;

/// The first bytes of a log; the last one is the version of the format.
pub(crate) const MAGIC: [u8; 8] = *b"MCPUSH\0\x02";
/// The first bytes of the format without generations.
pub(crate) const OLD_MAGIC: [u8; 8] = *b"MCPUSH\0\x01";
/// Length of what precedes a record, in bytes: its length and its checksum.
pub(crate) const PREFIX: usize = 4 + 8;
/// Marks the start of a generation in place of a change number.
const GENERATION: u64 = u64::MAX;

/// Appends a record of these changes, which apply together or not at all.
pub(crate) fn write(changes: &[Arc<DocumentChange>], out: &mut Vec<u8>) {
    write_record(out, |out| {
        for change in changes {
            write_change(change, out);
        }
    });
}

/// Appends the start of a generation.
pub(crate) fn write_generation(generation: Generation, out: &mut Vec<u8>) {
    write_record(out, |out| {
        for number in [GENERATION, generation.epoch, generation.first] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    });
}

fn write_record(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend_from_slice(&[0; PREFIX]);
    write(out);
    let record = &out[at + PREFIX..];
    let (length, checksum) = (record.len() as u32, xxh3_64(record));
    out[at..at + 4].copy_from_slice(&length.to_le_bytes());
    out[at + 4..at + PREFIX].copy_from_slice(&checksum.to_le_bytes());
}

fn write_change(change: &DocumentChange, out: &mut Vec<u8>) {
    out.extend_from_slice(&change.number.to_le_bytes());
    let expires = change.expires.map_or(0, Time::as_millis);
    out.extend_from_slice(&expires.to_le_bytes());
    write_bytes(change.name.as_bytes(), out);
    let content = change.content.as_ref();
    out.push(u8::from(content.is_some()));
    if let Some(DocumentContent { media_type, body }) = content {
        write_bytes(media_type.as_bytes(), out);
        write_bytes(body, out);
    }
}

fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// The next item of a log.
#[derive(Debug)]
pub(crate) enum ParsedRecord {
    /// Changes, and the bytes after the record.
    Changes(Vec<DocumentChange>, Bytes),
    /// The start of a generation, and the bytes after the record.
    Generation(Generation, Bytes),
    /// The end of the log.
    End,
    /// An incomplete or invalid record.
    Damaged,
}

/// Parses one record.
pub(crate) fn read(mut rest: Bytes) -> ParsedRecord {
    if rest.is_empty() {
        return ParsedRecord::End;
    }
    let (Ok(length), Ok(checksum)) = (rest.try_get_u32_le(), rest.try_get_u64_le()) else {
        return ParsedRecord::Damaged;
    };
    let length = length as usize;
    if length > rest.len() {
        return ParsedRecord::Damaged;
    }
    let mut record = rest.split_to(length);
    if xxh3_64(&record) != checksum {
        return ParsedRecord::Damaged;
    }
    if let Some(generation) = read_generation(&record) {
        return ParsedRecord::Generation(generation, rest);
    }
    let mut changes = Vec::new();
    while !record.is_empty() {
        match read_change(&mut record) {
            Some(change) => changes.push(change),
            None => return ParsedRecord::Damaged,
        }
    }
    ParsedRecord::Changes(changes, rest)
}

fn read_generation(mut record: &[u8]) -> Option<Generation> {
    let is_one = record.len() == 3 * 8 && record.get_u64_le() == GENERATION;
    is_one.then(|| Generation {
        epoch: record.get_u64_le(),
        first: record.get_u64_le(),
    })
}

fn read_change(rest: &mut Bytes) -> Option<DocumentChange> {
    let number = rest.try_get_u64_le().ok()?;
    let expires = rest.try_get_u64_le().ok()?;
    let name = read_text(rest)?;
    let content = match rest.try_get_u8().ok()? {
        0 => None,
        1 => Some(DocumentContent {
            media_type: read_text(rest)?,
            // A slice would keep the whole log in memory.
            body: Bytes::copy_from_slice(&read_bytes(rest)?),
        }),
        _ => return None,
    };
    Some(DocumentChange {
        number,
        name,
        content,
        expires: (expires > 0).then(|| Time::from_millis(expires)),
        delta: None,
    })
}

fn read_text(rest: &mut Bytes) -> Option<Arc<str>> {
    let bytes = read_bytes(rest)?;
    std::str::from_utf8(&bytes).ok().map(Arc::from)
}

fn read_bytes(rest: &mut Bytes) -> Option<Bytes> {
    let length = rest.try_get_u32_le().ok()? as usize;
    (length <= rest.len()).then(|| rest.split_to(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes() -> Vec<Arc<DocumentChange>> {
        let put = DocumentChange {
            number: 7,
            name: "/live/x".into(),
            content: Some(DocumentContent {
                media_type: "text/plain".into(),
                body: "hello".into(),
            }),
            expires: Some(Time::from_millis(9)),
            delta: None,
        };
        let gone = DocumentChange {
            number: 8,
            name: "/live/y".into(),
            content: None,
            expires: None,
            delta: None,
        };
        vec![Arc::new(put), Arc::new(gone)]
    }

    #[test]
    fn records_are_read_back() {
        let mut out = Vec::new();
        write(&changes(), &mut out);
        write(&changes()[1..], &mut out);
        let ParsedRecord::Changes(first, rest) = read(out.into()) else {
            panic!("it is whole");
        };
        let written = format!("{:?}", changes());
        assert_eq!(format!("{first:?}"), written);
        let ParsedRecord::Changes(second, rest) = read(rest) else {
            panic!("it is whole");
        };
        assert_eq!(second.len(), 1);
        assert!(matches!(read(rest), ParsedRecord::End));
        let generation = Generation { epoch: 5, first: 9 };
        let mut out = Vec::new();
        write_generation(generation, &mut out);
        assert!(matches!(read(out.into()), ParsedRecord::Generation(it, _) if it == generation));
    }

    #[test]
    fn torn_or_changed_records_are_damaged() {
        let mut out = Vec::new();
        write(&changes(), &mut out);
        for end in 1..out.len() {
            assert!(
                matches!(read(out[..end].to_vec().into()), ParsedRecord::Damaged),
                "{end}"
            );
        }
        for at in 0..out.len() {
            let mut other = out.clone();
            other[at] ^= 0x10;
            assert!(matches!(read(other.into()), ParsedRecord::Damaged), "{at}");
        }
    }
}
