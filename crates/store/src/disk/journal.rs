//! A small file beside the entries, for what has to outlive the process: records of whoever uses the
//! tier, one after the other.
//!
//! A record counts as written when it is on the disk, and not only with the system. The last one may
//! be torn, if the process was killed or the power failed while it was written; then nobody was told
//! that it is there, and it is ignored. Any other damage is said, and the file set aside.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::fs::OFlags;
use xxhash_rust::xxh3::xxh3_64;

use super::DiskFailure;
use super::files::Files;
use super::layout::{DAMAGED_JOURNAL, JOURNAL, NEW_JOURNAL};
use crate::beneath::Folder;
use crate::tier::JournalRecords;

/// How long the file may become.
pub const JOURNAL_LIMIT: u64 = 4 * 1024 * 1024;
/// The file begins with it; the last byte is the version of this format.
const MAGIC: [u8; 4] = *b"MCJ\x01";
/// Before a record: its length, a checksum of that, and the checksum of the record.
const OPENING: usize = 4 + 4 + 8;

/// The journal of a directory. Those who read or write the file take turns.
#[derive(Default)]
pub(super) struct Journal {
    state: Mutex<JournalState>,
}

#[derive(Default)]
struct JournalState {
    /// Where the next record belongs, once that is known.
    end: Option<u64>,
    was_damaged: bool,
}

/// What a file has in it.
#[derive(Debug, PartialEq, Eq)]
struct Contents {
    records: Vec<Bytes>,
    /// Where the last of them ends.
    end: usize,
    is_damaged: bool,
}

impl Journal {
    /// Somebody else may have written to it.
    pub(super) fn forget_end(&self) {
        self.state.lock().end = None;
    }

    /// All records. If the file was damaged, those before the damage; it is set aside then, and
    /// another one begun with them.
    pub(super) fn load(&self, files: &Files) -> Result<JournalRecords, DiskFailure> {
        let mut state = self.state.lock();
        let open = files.layout.open();
        let bytes = read(open.home()).map_err(DiskFailure::Disk)?;
        let Contents {
            records,
            end,
            is_damaged,
        } = Contents::parse(&bytes);
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

    /// Adds records at the end, in one write.
    pub(super) fn append(&self, files: &Files, records: &[Bytes]) -> Result<(), DiskFailure> {
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
        // Somebody may have removed the whole directory, with all that the records were about.
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
            // What is there of it is written over, or ignored as torn.
            let _ = file.set_len(end);
        }
        state.end = Some(if written.is_ok() { new_end } else { end });
        written.map_err(DiskFailure::Disk)
    }

    /// Has these records and no others.
    pub(super) fn replace(&self, files: &Files, records: &[Bytes]) -> Result<(), DiskFailure> {
        self.state.lock().replace(files, records)
    }

    /// Whether the file was damaged when it was read, and what was behind the damage is lost.
    pub(super) fn was_damaged(&self) -> bool {
        self.state.lock().was_damaged
    }
}

impl JournalState {
    /// Writes another file and gives it the name.
    fn replace(&mut self, files: &Files, records: &[Bytes]) -> Result<(), DiskFailure> {
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

/// What the file has in it, and one byte more than it may have at most.
fn read(home: &Folder) -> io::Result<Bytes> {
    let mut bytes = Vec::new();
    let file = match home.file(JOURNAL, OFlags::RDONLY) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Bytes::new()),
        file => file?,
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(
            ErrorKind::InvalidInput,
            "the journal is no file",
        ));
    }
    file.take(JOURNAL_LIMIT + 1).read_to_end(&mut bytes)?;
    Ok(bytes.into())
}

/// A new file, in place of whatever has the name.
fn create(home: &Folder, name: &str) -> io::Result<File> {
    home.remove(name)?;
    home.file_to_write(name, OFlags::CREATE | OFlags::EXCL)
}

/// What was there behind `end` goes. The bytes are on the disk when this returns.
fn write_at_end(file: &File, end: u64, bytes: &[u8]) -> io::Result<()> {
    file.set_len(end)?;
    file.write_all_at(bytes, end)?;
    file.sync_data()
}

fn encode(record: &[u8], out: &mut Vec<u8>) {
    // What is longer than the file may be is refused for that.
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

/// How a file ends that does not end with a record.
enum Flaw {
    /// The rest of what was written last is missing.
    Torn,
    Damaged,
}

impl Contents {
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
                    contents.is_damaged |= matches!(flaw, Flaw::Damaged);
                    break;
                }
            }
        }
        contents
    }
}

/// How long the record is whose opening stands first.
fn first(rest: &[u8]) -> Result<usize, Flaw> {
    if is_unwritten(rest) {
        return Err(Flaw::Torn);
    }
    let (opening, after) = rest.split_first_chunk::<OPENING>().ok_or(Flaw::Torn)?;
    let (length, sums) = opening.split_first_chunk::<4>().ok_or(Flaw::Torn)?;
    let (sum_of_it, sum) = sums.split_first_chunk::<4>().ok_or(Flaw::Torn)?;
    if sum_of_length(*length) != *sum_of_it {
        return Err(Flaw::Damaged);
    }
    let length = u32::from_le_bytes(*length) as usize;
    let record = after.get(..length).ok_or(Flaw::Torn)?;
    if xxh3_64(record).to_le_bytes() == sum {
        Ok(length)
    } else if after.len() == length {
        Err(Flaw::Torn)
    } else {
        Err(Flaw::Damaged)
    }
}

/// After a power failure a file may have its length and not its contents.
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

    fn parse(bytes: &[u8]) -> Contents {
        Contents::parse(&Bytes::copy_from_slice(bytes))
    }

    #[test]
    fn a_torn_end_is_ignored_wherever_it_tears() {
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
    fn damage_before_the_end_is_said() {
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
        fn what_was_written_is_read(records in proptest::collection::vec(
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
