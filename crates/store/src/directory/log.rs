//! Purge log shared by all processes: one small file, locked by its writers.
//!
//! Positions increase monotonically. A damaged log, or one truncated by the death of its writer, is
//! restarted with a new range of positions, so that readers of the old one detect the gap.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use xxhash_rust::xxh3::xxh3_64;

use super::folder::{open_locked, wait_for};
use super::home::failed;
use crate::disk::error::DiskFailure;
use crate::tier::{LogPage, new_log};

const NAME: &str = "log";
/// Maximum size of the file, in bytes. Above it, the older half is dropped.
const LIMIT: usize = 256 * 1024;
/// Magic number; the last byte is the format version.
const MAGIC: [u8; 4] = *b"MCL\x01";
/// Size of a record header: position, length, and a checksum of both and the record.
const OPENING: usize = 8 + 4 + 8;

/// Records with their positions, oldest first.
type LogRecords = Vec<(u64, Bytes)>;

/// Appends records. Records that exceed the size limit are replaced by `beginning`, which represents all of
/// them.
pub(super) fn append(
    home: &OwnedFd,
    records: &[Bytes],
    beginning: &Bytes,
) -> Result<(), DiskFailure> {
    let file = open_locked(home, NAME)?;
    let (mut all, end) = load(&file, beginning)?;
    let is_too_much = records.iter().map(|it| OPENING + it.len()).sum::<usize>() > LIMIT / 2;
    let more = if is_too_much {
        std::slice::from_ref(beginning)
    } else {
        records
    };
    let next = all.last().map_or(1, |(last, _)| last + 1);
    let mut bytes = Vec::new();
    for (position, record) in (next..).zip(more) {
        encode(position, record, &mut bytes);
    }
    if end + bytes.len() <= LIMIT {
        return file
            .write_all_at(&bytes, end as u64)
            .map_err(DiskFailure::Disk);
    }
    all.extend((next..).zip(more.iter().cloned()));
    let mut left = LIMIT / 2;
    let kept = all.iter().rev().take_while(|(_, record)| {
        let room = left.checked_sub(OPENING + record.len());
        left = room.unwrap_or(0);
        room.is_some()
    });
    let first = all.len() - kept.count();
    replace(&file, &all[first..])
}

/// Reads the records after a position, starting a log if there is none.
pub(super) fn read(home: &OwnedFd, after: u64, beginning: &Bytes) -> Result<LogPage, DiskFailure> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let there = match openat(home, NAME, flags, Mode::empty()) {
        Ok(file) => {
            let file = File::from(file);
            wait_for(|| file.try_lock_shared())?;
            parse(&contents(&file)?)
        }
        Err(Errno::NOENT) => None,
        Err(error) => return Err(failed(error)),
    };
    let records = match there {
        Some(records) => records,
        None => load(&open_locked(home, NAME)?, beginning)?.0,
    };
    let first = records.first().map_or(1, |(first, _)| *first);
    let last = records.last().map_or(0, |(last, _)| *last);
    let is_gapless = first <= after.saturating_add(1) && after <= last;
    Ok(LogPage {
        records: if is_gapless {
            let later = |(position, _): &(u64, Bytes)| *position > after;
            records.into_iter().filter(later).collect()
        } else {
            records
        },
        is_gapless,
        ..LogPage::default()
    })
}

/// Reads a locked log. Returns its records and its end; an invalid log is restarted.
fn load(file: &File, beginning: &Bytes) -> Result<(LogRecords, usize), DiskFailure> {
    let bytes = contents(file)?;
    if let Some(records) = parse(&bytes) {
        return Ok((records, bytes.len()));
    }
    let records = vec![(new_log() + 1, beginning.clone())];
    replace(file, &records)?;
    Ok((records, MAGIC.len() + OPENING + beginning.len()))
}

/// Overwrites the log. A crash in between leaves a truncated log, which readers detect.
fn replace(file: &File, records: &[(u64, Bytes)]) -> Result<(), DiskFailure> {
    let mut bytes = MAGIC.to_vec();
    for (position, record) in records {
        encode(*position, record, &mut bytes);
    }
    let replaced = file.set_len(0).and_then(|()| file.write_all_at(&bytes, 0));
    replaced.map_err(DiskFailure::Disk)
}

fn contents(mut file: &File) -> Result<Bytes, DiskFailure> {
    let mut bytes = Vec::new();
    let read = Read::by_ref(&mut file)
        .take(LIMIT as u64 + 1)
        .read_to_end(&mut bytes);
    read.map_err(DiskFailure::Disk)?;
    Ok(bytes.into())
}

fn encode(position: u64, record: &[u8], bytes: &mut Vec<u8>) {
    let length = u32::try_from(record.len()).expect("a record is shorter than the size limit");
    let opening = [&position.to_le_bytes()[..], &length.to_le_bytes()].concat();
    bytes.extend_from_slice(&opening);
    bytes.extend_from_slice(&sum(&opening, record).to_le_bytes());
    bytes.extend_from_slice(record);
}

/// Parses all records; `None` if there are none or the file is damaged.
fn parse(bytes: &Bytes) -> Option<LogRecords> {
    let mut at = MAGIC.len();
    let mut records = LogRecords::new();
    if !bytes.starts_with(&MAGIC) || bytes.len() > LIMIT {
        return None;
    }
    while at < bytes.len() {
        let (opening, rest) = bytes[at..].split_at_checked(OPENING)?;
        let (fields, stored_sum) = opening.split_at(8 + 4);
        let position = u64::from_le_bytes(*fields.first_chunk()?);
        let length = u32::from_le_bytes(*fields.last_chunk()?) as usize;
        let record = rest.get(..length)?;
        let follows = records.last().is_none_or(|(last, _)| last + 1 == position);
        if !follows || sum(fields, record).to_le_bytes() != stored_sum {
            return None;
        }
        let start = at + OPENING;
        at = start + length;
        records.push((position, bytes.slice(start..at)));
    }
    (!records.is_empty()).then_some(records)
}

fn sum(fields: &[u8], record: &[u8]) -> u64 {
    xxh3_64(fields) ^ xxh3_64(record).rotate_left(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(records: &[(u64, &[u8])]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for (position, record) in records {
            encode(*position, record, &mut bytes);
        }
        bytes
    }

    #[test]
    fn a_log_that_is_cut_off_or_changed_is_none() {
        let whole = written(&[(7, b"one"), (8, b""), (9, b"three")]);
        let read = parse(&whole.clone().into()).expect("it is whole");
        assert_eq!(read.len(), 3);
        let ends = [
            written(&[(7, b"one")]).len(),
            written(&[(7, b"one"), (8, b"")]).len(),
        ];
        for length in (0..whole.len()).filter(|length| !ends.contains(length)) {
            assert_eq!(parse(&whole[..length].to_vec().into()), None, "{length}");
        }
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            assert_eq!(parse(&bytes.into()), None, "{at}");
        }
        assert_eq!(parse(&written(&[(7, b"one"), (9, b"three")]).into()), None);
    }
}
