//! Stored bodies, in memory or in a file.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use rustix::io::{ReadWriteFlags, preadv2};

use crate::allocation::allocated;
use crate::checksum::checksum;

/// Complete body.
#[derive(Clone, Debug)]
pub enum Content {
    /// Body in memory.
    Bytes(Bytes),
    /// Body in an open file, which stays readable while it is referenced, even if its name is removed.
    File(Arc<FileBody>),
    /// Body in a file whose owner may close it at any time.
    Weak(WeakFile),
}

/// Weak reference to a body in an open file: it keeps neither the descriptor nor the blocks of a removed
/// file alive.
#[derive(Clone, Debug)]
pub struct WeakFile {
    file: Weak<FileBody>,
    len: u64,
}

impl Content {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(file) => file.len(),
            Self::Weak(weak) => weak.len,
        }
    }

    /// Returns whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of a body in memory.
    pub const fn bytes(&self) -> Option<&Bytes> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::File(_) | Self::Weak(_) => None,
        }
    }

    /// Returns the file of a body, unless it is closed.
    pub fn file(&self) -> Option<Arc<FileBody>> {
        match self {
            Self::Bytes(_) => None,
            Self::File(file) => Some(Arc::clone(file)),
            Self::Weak(weak) => weak.file.upgrade(),
        }
    }

    /// Returns whether the file of a weak reference has been closed.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Weak(weak) if weak.file.strong_count() == 0)
    }

    /// Converts to a weak reference; bodies in memory are unchanged.
    #[must_use]
    pub fn downgraded(self) -> Self {
        match self {
            Self::File(file) => Self::Weak(WeakFile {
                file: Arc::downgrade(&file),
                len: file.len(),
            }),
            other => other,
        }
    }

    /// Memory used, in bytes.
    pub fn heap_size(&self) -> usize {
        match self {
            Self::Bytes(bytes) => allocated(bytes.len()),
            Self::File(file) => file.heap_size(),
            Self::Weak(_) => size_of::<FileBody>(),
        }
    }
}

impl Default for Content {
    fn default() -> Self {
        Self::Bytes(Bytes::new())
    }
}

impl From<Bytes> for Content {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

/// Block size in bytes. Each block has its own checksum, so that a range can be read and verified on its
/// own.
pub const BLOCK: u64 = 128 * 1024;

/// Body in an open file.
#[derive(Debug)]
pub struct FileBody {
    file: File,
    offset: u64,
    len: u64,
    /// Checksum of each block.
    sums: Box<[u64]>,
    /// `true` if every block has been read and verified.
    verified: AtomicBool,
    /// `true` if a block was unreadable or failed its checksum.
    damaged: AtomicBool,
    /// Use bit for eviction, set by reads and cleared by [`Self::take_used`].
    used: AtomicBool,
    /// `true` if the file is truncated once damage is found.
    is_emptied: bool,
}

impl FileBody {
    /// Creates the body of `len` bytes at `offset`, with the checksum of each [`BLOCK`].
    ///
    /// # Errors
    ///
    /// `InvalidData` if the number of checksums does not match the length.
    pub fn new(file: File, offset: u64, len: u64, sums: Box<[u64]>) -> io::Result<Self> {
        if sums.len() as u64 != len.div_ceil(BLOCK) {
            return Err(damaged());
        }
        Ok(Self {
            file,
            offset,
            len,
            sums,
            verified: AtomicBool::new(false),
            damaged: AtomicBool::new(false),
            used: AtomicBool::new(true),
            is_emptied: false,
        })
    }

    /// Truncates the file when damage is found, so that no later reader meets it. Otherwise its owner must
    /// remove it.
    #[must_use]
    pub const fn truncated_when_damaged(mut self) -> Self {
        self.is_emptied = true;
        self
    }

    /// Length in bytes.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether the length is zero.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Memory used, in bytes.
    pub fn heap_size(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.sums)
    }

    /// Returns whether both bodies have the same length and checksums.
    pub fn is_same_as(&self, other: &Self) -> bool {
        self.len == other.len && self.sums == other.sums
    }

    /// Number of blocks.
    pub fn blocks(&self) -> u64 {
        self.sums.len() as u64
    }

    /// Reads and verifies one block. Blocks the thread.
    ///
    /// # Errors
    ///
    /// `InvalidData` if the checksum does not match, or the error of the read.
    pub fn read_block(&self, number: u64) -> io::Result<Bytes> {
        let sum = usize::try_from(number)
            .ok()
            .and_then(|number| self.sums.get(number));
        let sum = *sum.ok_or_else(damaged)?;
        let start = number * BLOCK;
        let mut block = vec![0; (self.len - start).min(BLOCK) as usize];
        self.file.read_exact_at(&mut block, self.offset + start)?;
        if checksum(&block) == sum {
            Ok(block.into())
        } else {
            Err(damaged())
        }
    }

    /// Reads up to `room` bytes from offset `at` of a verified body, provided they are in the page cache.
    pub fn read_cached(&self, at: u64, room: usize) -> Option<Bytes> {
        let (file, offset) = self.verified()?;
        let left = self.len.checked_sub(at)?;
        let mut bytes = vec![0; room.min(usize::try_from(left).unwrap_or(usize::MAX))];
        let mut pieces = [io::IoSliceMut::new(&mut bytes)];
        let read = preadv2(file, &mut pieces, offset + at, ReadWriteFlags::NOWAIT).ok()?;
        bytes.truncate(read);
        (read > 0).then(|| bytes.into())
    }

    /// Records that every block has been verified or just been written.
    pub fn mark_verified(&self) {
        self.verified.store(true, Ordering::Release);
    }

    /// Records that a block was unreadable or failed its checksum.
    pub fn mark_damaged(&self) {
        self.damaged.store(true, Ordering::Release);
        if self.is_emptied {
            // The descriptor is read-only, so the file is reopened for writing. If that is not permitted,
            // the next reader finds the damage again.
            let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            let opened = File::options().write(true).open(path);
            let _ = opened.and_then(|file| file.set_len(0));
        }
    }

    /// Returns whether a block was unreadable or failed its checksum.
    pub fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Acquire)
    }

    /// Returns the file and the body's offset once every block has been verified, so that it may be sent
    /// with sendfile(2).
    pub fn verified(&self) -> Option<(&File, u64)> {
        self.verified
            .load(Ordering::Acquire)
            .then_some((&self.file, self.offset))
    }

    /// Sets the use bit, for eviction.
    pub fn touch(&self) {
        self.used.store(true, Ordering::Relaxed);
    }

    /// Clears the use bit. Returns its previous value.
    pub fn take_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }
}

fn damaged() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "checksum mismatch in a stored body",
    )
}
