//! Capacity of a shared directory.
//!
//! The total size is kept in a small file. Writers add their size in advance, so the total may be too large
//! but never too small. When it exceeds the capacity, all files are counted and the least recently used ones
//! are evicted, under the lock of that file; other writers wait, or give up storing.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Dir, FileType, statat};
use xxhash_rust::xxh3::xxh3_64;

use super::folder::{FOLDERS, RecordFolder, open_locked, remove};
use super::home::failed;
use super::{claims, record};
use crate::disk::error::DiskFailure;

/// File with the total size.
const SIZE: &str = "size";
/// Accounting unit, in bytes.
const BLOCK: u64 = 4096;
/// Maximum number of files: each accounts for at least this fraction of the capacity.
const MAX_FILES: u64 = 1_000_000;
/// Age in seconds after which an incomplete file counts as abandoned.
const ABANDONED: u64 = 10 * 60;

/// Capacity, and this process's latest knowledge of the total size.
pub(super) struct CapacityLimit {
    capacity: u64,
    known: AtomicU64,
    evicted: AtomicU64,
}

impl CapacityLimit {
    pub(super) const fn new(capacity: u64) -> Self {
        Self {
            capacity,
            known: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
        }
    }

    /// Reserves space for a file of `length` bytes, evicting others if needed. Returns `false` if that
    /// exceeds half of the capacity.
    pub(super) fn take(&self, home: &OwnedFd, length: u64) -> Result<bool, DiskFailure> {
        let needed = self.cost(length);
        if needed > self.capacity / 2 {
            return Ok(false);
        }
        let size = open_locked(home, SIZE)?;
        let total = match read(&size) {
            Some(total) if total.saturating_add(needed) <= self.capacity => total,
            _ => self.make_room(home, needed)?,
        };
        write(&size, total + needed)?;
        self.known.store(total + needed, Ordering::Relaxed);
        Ok(true)
    }

    /// Total size at the last write of this process.
    pub(super) fn known(&self) -> Option<u64> {
        let known = self.known.load(Ordering::Relaxed);
        (known > 0).then_some(known)
    }

    pub(super) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Counts all files and evicts down to 90 % of the capacity if needed. Returns the remaining total.
    fn make_room(&self, home: &OwnedFd, needed: u64) -> Result<u64, DiskFailure> {
        let (mut files, mut unfinished) = (Vec::new(), 0);
        for number in 0..FOLDERS {
            if let Some(folder) = RecordFolder::numbered(home, number)? {
                unfinished += self.count(&folder, number, &mut files)?;
            }
        }
        let mut total = files.iter().map(|file| file.cost).sum::<u64>() + unfinished;
        if total + needed <= self.capacity {
            return Ok(total);
        }
        let goal = (self.capacity / 10 * 9).saturating_sub(needed);
        files.sort_unstable_by_key(|file| file.used);
        for file in &files {
            if total <= goal {
                break;
            }
            if let Some(folder) = RecordFolder::numbered(home, file.folder)? {
                remove(folder.fd(), &format!("{:032x}", file.id))?;
            }
            total -= file.cost;
            self.evicted.fetch_add(1, Ordering::Relaxed);
        }
        Ok(total)
    }

    /// Collects the records of a folder and returns the size of incomplete ones. Abandoned files are
    /// removed; foreign names are left alone.
    fn count(
        &self,
        folder: &RecordFolder,
        number: u32,
        files: &mut Vec<FileUsage>,
    ) -> Result<u64, DiskFailure> {
        let mut unfinished = 0;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_secs();
        for entry in Dir::read_from(folder.fd()).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            let Ok(stat) = statat(folder.fd(), name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            let used = stat.st_mtime.cast_unsigned();
            let is_file = FileType::from_raw_mode(stat.st_mode).is_file();
            let is_left_behind = name.ends_with(record::UNFINISHED)
                && used.saturating_add(ABANDONED) < now
                || name.ends_with(claims::ENDING) && used < now;
            if is_file && is_left_behind {
                remove(folder.fd(), name)?;
            } else if is_file && name.ends_with(record::UNFINISHED) {
                unfinished += self.cost(stat.st_size.cast_unsigned());
            } else if is_file && let Some(id) = id_of(name) {
                files.push(FileUsage {
                    used,
                    cost: self.cost(stat.st_size.cast_unsigned()),
                    id,
                    folder: number,
                });
            }
        }
        Ok(unfinished)
    }

    fn cost(&self, length: u64) -> u64 {
        let blocks = length.div_ceil(BLOCK).saturating_mul(BLOCK);
        blocks.max(self.capacity / MAX_FILES)
    }
}

struct FileUsage {
    used: u64,
    cost: u64,
    id: u128,
    folder: u32,
}

fn id_of(name: &str) -> Option<u128> {
    let is_id = name.len() == 32 && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    u128::from_str_radix(name, 16).ok().filter(|_| is_id)
}

/// Reads the total; `None` if the file is invalid.
fn read(size: &File) -> Option<u64> {
    let mut bytes = [0; 16];
    size.read_exact_at(&mut bytes, 0).ok()?;
    let (total, sum) = bytes.split_first_chunk::<8>()?;
    (xxh3_64(total).to_le_bytes() == sum).then(|| u64::from_le_bytes(*total))
}

fn write(size: &File, total: u64) -> Result<(), DiskFailure> {
    let total = total.to_le_bytes();
    let bytes = [total, xxh3_64(&total).to_le_bytes()].concat();
    size.write_all_at(&bytes, 0).map_err(DiskFailure::Disk)
}
