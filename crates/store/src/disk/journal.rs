//! The records of purges: a file that only grows, until it is written anew.
//!
//! Each record has its length and a checksum. It is on the disk when the call returns: a
//! purge that was confirmed holds after a power failure too. A torn end is what was not confirmed, and is
//! cut off.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64;

/// The file is not let grow beyond this.
const MAX: u64 = 16 * 1024 * 1024;
const PREFIX: usize = 4 + 8;

/// The file, and how much of it is good.
pub(super) struct Journal {
    path: PathBuf,
    len: u64,
}

impl Journal {
    /// Opens the journal, and says what is in it.
    pub(super) fn open(path: PathBuf) -> io::Result<(Self, Vec<Bytes>)> {
        let mut bytes = Vec::new();
        match File::open(&path) {
            Ok(file) => file.take(MAX).read_to_end(&mut bytes).map(|_| ())?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let (records, len) = decode(bytes.into());
        Ok((Self { path, len }, records))
    }

    /// Adds a record at the end.
    pub(super) fn append(&mut self, record: &[u8]) -> io::Result<()> {
        let encoded = encode(record);
        let file = open_to_write(&self.path)?;
        let file_len = file.metadata()?.len();
        // Whoever removed the file has removed the records.
        self.len = self.len.min(file_len);
        if self.len + encoded.len() as u64 > MAX {
            return Err(io::Error::new(
                ErrorKind::StorageFull,
                "the journal of purges is full",
            ));
        }
        if file_len > self.len {
            file.set_len(self.len)?;
        }
        file.write_all_at(&encoded, self.len)?;
        file.sync_data()?;
        if self.len == 0 {
            sync_directory(&self.path)?;
        }
        self.len += encoded.len() as u64;
        Ok(())
    }

    /// Puts these records in place of all, by way of a new file.
    pub(super) fn replace(
        &mut self,
        records: &[Bytes],
        (file, path): (File, PathBuf),
    ) -> io::Result<()> {
        let bytes: Vec<u8> = records.iter().flat_map(|record| encode(record)).collect();
        let replaced = file
            .write_all_at(&bytes, 0)
            .and_then(|()| file.sync_data())
            .and_then(|()| fs::rename(&path, &self.path));
        if replaced.is_err() {
            let _ = fs::remove_file(path);
        }
        replaced?;
        self.len = bytes.len() as u64;
        sync_directory(&self.path)
    }
}

fn open_to_write(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

fn sync_directory(file: &Path) -> io::Result<()> {
    file.parent()
        .map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}

fn encode(record: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(PREFIX + record.len());
    out.extend_from_slice(&(record.len() as u32).to_le_bytes());
    out.extend_from_slice(&xxh3_64(record).to_le_bytes());
    out.extend_from_slice(record);
    out
}

/// The records up to the first that is not whole, and how many bytes they take.
fn decode(mut bytes: Bytes) -> (Vec<Bytes>, u64) {
    let mut records = Vec::new();
    let mut good = 0;
    while let Some(record) = next(&mut bytes) {
        good += (PREFIX + record.len()) as u64;
        records.push(record);
    }
    (records, good)
}

fn next(bytes: &mut Bytes) -> Option<Bytes> {
    let (len, rest) = bytes.split_first_chunk()?;
    let (sum, rest) = rest.split_first_chunk()?;
    let record = rest.get(..u32::from_le_bytes(*len) as usize)?;
    if xxh3_64(record) != u64::from_le_bytes(*sum) {
        return None;
    }
    let record = bytes.slice_ref(record);
    *bytes = bytes.slice(PREFIX + record.len()..);
    Some(record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(records: &[Vec<u8>]) -> Vec<u8> {
        records.iter().flat_map(|record| encode(record)).collect()
    }

    proptest! {
        #[test]
        fn a_torn_end_costs_only_what_was_torn(
            records in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..20),
            cut in any::<proptest::sample::Index>(),
        ) {
            let whole = encoded(&records);
            let cut = cut.index(whole.len() + 1);
            let (read, good) = decode(whole[..cut].to_vec().into());
            prop_assert!(good as usize <= cut);
            prop_assert_eq!(&whole[..good as usize], &encoded(&records[..read.len()])[..]);
            let next = records.get(read.len()).map_or(1, |next| PREFIX + next.len());
            prop_assert!(cut - (good as usize) < next, "a whole record was dropped");
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let len = bytes.len() as u64;
            prop_assert!(decode(bytes.into()).1 <= len);
        }
    }
}
