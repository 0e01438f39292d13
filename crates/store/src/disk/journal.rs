//! Journal: a small append-only file next to the entries, for records that must survive a restart.
//!
//! A record counts as written once it is flushed to disk. The last one may be torn by a crash; it was never
//! acknowledged then and is ignored. Any other damage is reported, and the file set aside.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::fs::OFlags;
use xxhash_rust::xxh3::xxh3_64;

use super::error::DiskFailure;
use super::files::EntryFiles;
use super::layout::{DAMAGED_JOURNAL, JOURNAL, NEW_JOURNAL};
use crate::dir_handle::DirHandle;
use crate::tier::JournalRecords;

/// Maximum size of the file, in bytes.
pub const JOURNAL_LIMIT: u64 = 4 * 1024 * 1024;
/// Magic number; the last byte is the format version.
const MAGIC: [u8; 4] = *b"MCJ\x01";
/// Size of a record header: length, checksum of the length, checksum of the record.
const OPENING: usize = 4 + 4 + 8;

/// Journal of a directory. Reads and writes of the file are serialized.
#[derive(Default)]
pub(super) struct DiskJournal {
    state: Mutex<JournalState>,
}

#[derive(Default)]
struct JournalState {
    /// Offset of the next record, once known.
    end: Option<u64>,
    was_damaged: bool,
}

/// Contents of a journal file.
#[derive(Debug, PartialEq, Eq)]
struct JournalContents {
    records: Vec<Bytes>,
    /// End of the last valid record.
    end: usize,
    is_damaged: bool,
}

impl DiskJournal {
    /// Discards the known end, since another process may have written to the file.
    pub(super) fn forget_end(&self) {
        self.state.lock().end = None;
    }

    /// Reads all records. A damaged file is set aside and replaced by the records before the damage.
    pub(super) fn load(&self, files: &EntryFiles) -> Result<JournalRecords, DiskFailure> {
        let mut state = self.state.lock();
        let open = files.layout.open();
        let bytes = read(open.home()).map_err(DiskFailure::Disk)?;
        let JournalContents {
            records,
            end,
            is_damaged,
        } = JournalContents::parse(&bytes);
        state.end = Some(end as u64);
        if is_damaged {
            state.was_damaged = true;
            let aside = create(open.home(), DAMAGED_JOURNAL);
            aside
                .and_then(|aside| aside.write_all_at(&bytes, 0))
                .map_err(DiskFailure::Disk)?;
            state.replace(files, &records)?;
        }
        Ok(JournalRecords {
            records,
            is_damaged,
        })
    }

    /// Appends records in one write and flushes them.
    pub(super) fn append(&self, files: &EntryFiles, records: &[Bytes]) -> Result<(), DiskFailure> {
        let known = self.state.lock().end;
        if known.is_none() {
            self.load(files)?;
        }
        let mut state = self.state.lock();
        let open = || {
            let open = files.layout.open();
            open.home().file_to_write(JOURNAL, OFlags::CREATE)
        };
        let file = match open() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                files.repair()?;
                open().map_err(DiskFailure::Disk)?
            }
            opened => opened.map_err(DiskFailure::Disk)?,
        };
        let length = file.metadata().map_err(DiskFailure::Disk)?.len();
        // The directory may have been removed by another process, along with the entries that the records
        // concern.
        let end = state.end.filter(|end| *end <= length).unwrap_or(0);
        let mut bytes = if end == 0 { MAGIC.to_vec() } else { Vec::new() };
        for record in records {
            encode(record, &mut bytes);
        }
        let new_end = end + bytes.len() as u64;
        if new_end > JOURNAL_LIMIT {
            return Err(DiskFailure::TooLarge);
        }
        let written = write_at_end(&file, end, &bytes).and_then(|()| {
            let is_new = end == 0;
            if is_new {
                files.layout.open().home().sync()
            } else {
                Ok(())
            }
        });
        if written.is_err() {
            // Truncates a partial write; otherwise it is overwritten later, or ignored as torn.
            let _ = file.set_len(end);
        }
        state.end = Some(if written.is_ok() { new_end } else { end });
        written.map_err(DiskFailure::Disk)
    }

    /// Replaces all records.
    pub(super) fn replace(&self, files: &EntryFiles, records: &[Bytes]) -> Result<(), DiskFailure> {
        self.state.lock().replace(files, records)
    }

    /// Returns whether damage was found, so that records may be lost.
    pub(super) fn was_damaged(&self) -> bool {
        self.state.lock().was_damaged
    }
}

impl JournalState {
    /// Writes a new file and renames it to the journal.
    fn replace(&mut self, files: &EntryFiles, records: &[Bytes]) -> Result<(), DiskFailure> {
        let mut bytes = MAGIC.to_vec();
        for record in records {
            encode(record, &mut bytes);
        }
        if bytes.len() as u64 > JOURNAL_LIMIT {
            return Err(DiskFailure::TooLarge);
        }
        let create = || create(files.layout.open().home(), NEW_JOURNAL);
        let file = match create() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                files.repair()?;
                create().map_err(DiskFailure::Disk)?
            }
            created => created.map_err(DiskFailure::Disk)?,
        };
        let open = files.layout.open();
        let home = open.home();
        write_at_end(&file, 0, &bytes)
            .and_then(|()| home.rename(NEW_JOURNAL, home, JOURNAL))
            .map_err(DiskFailure::Disk)?;
        self.end = Some(bytes.len() as u64);
        home.sync().map_err(DiskFailure::Disk)
    }
}

/// Reads the file, up to one byte beyond the size limit.
fn read(home: &DirHandle) -> io::Result<Bytes> {
    let mut bytes = Vec::new();
    let file = match home.file(JOURNAL, OFlags::RDONLY) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Bytes::new()),
        file => file?,
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(
            ErrorKind::InvalidInput,
            "the journal is not a regular file",
        ));
    }
    file.take(JOURNAL_LIMIT + 1).read_to_end(&mut bytes)?;
    Ok(bytes.into())
}

/// Creates a file, replacing an existing one.
fn create(home: &DirHandle, name: &str) -> io::Result<File> {
    home.remove(name)?;
    home.file_to_write(name, OFlags::CREATE | OFlags::EXCL)
}

/// Truncates the file to `end`, appends the bytes and flushes them.
fn write_at_end(file: &File, end: u64, bytes: &[u8]) -> io::Result<()> {
    file.set_len(end)?;
    file.write_all_at(bytes, end)?;
    file.sync_data()
}

fn encode(record: &[u8], out: &mut Vec<u8>) {
    // An oversized record exceeds the limit of the file, which is checked afterwards.
    let length = u32::try_from(record.len())
        .unwrap_or(u32::MAX)
        .to_le_bytes();
    out.extend_from_slice(&length);
    out.extend_from_slice(&sum_of_length(length));
    out.extend_from_slice(&xxh3_64(record).to_le_bytes());
    out.extend_from_slice(record);
}

fn sum_of_length(length: [u8; 4]) -> [u8; 4] {
    let [a, b, c, d, ..] = xxh3_64(&length).to_le_bytes();
    [a, b, c, d]
}

/// Ends of a file that is not fully valid.
enum TailFlaw {
    /// Incomplete last write.
    Torn,
    Damaged,
}

impl JournalContents {
    fn parse(bytes: &Bytes) -> Self {
        let mut contents = Self {
            records: Vec::new(),
            end: 0,
            is_damaged: bytes.len() as u64 > JOURNAL_LIMIT,
        };
        if !bytes.starts_with(&MAGIC) {
            let is_torn = MAGIC.starts_with(bytes) || is_unwritten(bytes);
            contents.is_damaged |= !is_torn;
            return contents;
        }
        contents.end = MAGIC.len();
        while contents.end < bytes.len() {
            match first(&bytes[contents.end..]) {
                Ok(length) => {
                    let start = contents.end + OPENING;
                    contents.end = start + length;
                    contents.records.push(bytes.slice(start..contents.end));
                }
                Err(flaw) => {
                    contents.is_damaged |= matches!(flaw, TailFlaw::Damaged);
                    break;
                }
            }
        }
        contents
    }
}

/// Returns the length of the record at the beginning of `rest`.
fn first(rest: &[u8]) -> Result<usize, TailFlaw> {
    if is_unwritten(rest) {
        return Err(TailFlaw::Torn);
    }
    let (opening, after) = rest.split_first_chunk::<OPENING>().ok_or(TailFlaw::Torn)?;
    let (length, sums) = opening.split_first_chunk::<4>().ok_or(TailFlaw::Torn)?;
    let (sum_of_it, sum) = sums.split_first_chunk::<4>().ok_or(TailFlaw::Torn)?;
    if sum_of_length(*length) != *sum_of_it {
        return Err(TailFlaw::Damaged);
    }
    let length = u32::from_le_bytes(*length) as usize;
    let record = after.get(..length).ok_or(TailFlaw::Torn)?;
    if xxh3_64(record).to_le_bytes() == sum {
        Ok(length)
    } else if after.len() == length {
        Err(TailFlaw::Torn)
    } else {
        Err(TailFlaw::Damaged)
    }
}

/// After a power failure, a file may have its new length but zeros as contents.
fn is_unwritten(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(records: &[&[u8]]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for record in records {
            encode(record, &mut bytes);
        }
        bytes
    }

    fn parse(bytes: &[u8]) -> JournalContents {
        JournalContents::parse(&Bytes::copy_from_slice(bytes))
    }

    #[test]
    fn a_torn_end_is_ignored_at_any_position() {
        let whole = file(&[b"one", b"", b"three"]);
        let before = file(&[b"one", b""]).len();
        for length in before..whole.len() {
            let contents = parse(&whole[..length]);
            assert_eq!(contents.records, [&b"one"[..], b""], "{length}");
            assert_eq!(contents.end, before);
            assert!(!contents.is_damaged, "{length}");
            let mut unwritten = whole[..before].to_vec();
            unwritten.resize(length, 0);
            assert_eq!(parse(&unwritten), contents, "{length}");
        }
        for length in 0..MAGIC.len() {
            let contents = parse(&whole[..length]);
            assert_eq!((contents.end, contents.is_damaged), (0, false));
        }
        assert_eq!(parse(&whole).records.len(), 3);
    }

    #[test]
    fn damage_before_the_end_is_reported() {
        let whole = file(&[b"one", b"two", b"three"]);
        let last = file(&[b"one", b"two"]).len();
        for at in 0..last {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            let contents = parse(&bytes);
            assert!(contents.is_damaged, "{at}");
            assert!(contents.records.len() < 2);
        }
        assert!(parse(b"something else").is_damaged);
    }

    proptest! {
        #[test]
        fn written_records_are_read_back(records in proptest::collection::vec(
            proptest::collection::vec(any::<u8>(), 0..100), 0..20)) {
            let all: Vec<&[u8]> = records.iter().map(|record| &record[..]).collect();
            let contents = parse(&file(&all));
            prop_assert_eq!(contents.records, records);
            prop_assert!(!contents.is_damaged);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let with_magic = [&MAGIC[..], &bytes].concat();
            for bytes in [bytes, with_magic] {
                prop_assert!(parse(&bytes).end <= bytes.len());
            }
        }
    }
}
