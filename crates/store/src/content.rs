//! A stored body: in memory, or in a file.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use rustix::io::{ReadWriteFlags, preadv2};

use crate::encoding::checksum;

/// A whole body.
#[derive(Clone, Debug)]
pub enum Content {
    /// In memory.
    Bytes(Bytes),
    /// In an open file. It stays readable while it is held, even if the file is removed.
    File(Arc<FileBody>),
    /// In a file that whoever opened it may close.
    Lent(LentFile),
}

/// A body in a file that is open for as long as somebody else wants: to remember where a body is
/// must not keep a descriptor and a removed file's blocks.
#[derive(Clone, Debug)]
pub struct LentFile {
    file: Weak<FileBody>,
    len: u64,
}

impl Content {
    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(file) => file.len(),
            Self::Lent(lent) => lent.len,
        }
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, if they are in memory.
    pub const fn bytes(&self) -> Option<&Bytes> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::File(_) | Self::Lent(_) => None,
        }
    }

    /// The file it is in, if it is in one that is open.
    pub fn file(&self) -> Option<Arc<FileBody>> {
        match self {
            Self::Bytes(_) => None,
            Self::File(file) => Some(Arc::clone(file)),
            Self::Lent(lent) => lent.file.upgrade(),
        }
    }

    /// Whether it was in a file that has been closed.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Lent(lent) if lent.file.strong_count() == 0)
    }

    /// The same without a hold on its file.
    #[must_use]
    pub fn lent(self) -> Self {
        match self {
            Self::File(file) => Self::Lent(LentFile {
                file: Arc::downgrade(&file),
                len: file.len(),
            }),
            other => other,
        }
    }

    /// The memory it takes.
    pub fn heap_size(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::File(file) => file.heap_size(),
            Self::Lent(_) => size_of::<FileBody>(),
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

/// Blocks of this size have a checksum each, so that a part can be read and believed without the
/// rest.
pub const BLOCK: u64 = 128 * 1024;

/// A body in an open file.
#[derive(Debug)]
pub struct FileBody {
    file: File,
    offset: u64,
    len: u64,
    /// One for each block.
    sums: Box<[u64]>,
    /// Every block has been read and was right.
    verified: AtomicBool,
    /// A block could not be read, or was not what was written.
    damaged: AtomicBool,
    /// Somebody used it since whoever keeps it last looked.
    used: AtomicBool,
    /// Whoever has found it damaged empties it.
    is_emptied: bool,
}

impl FileBody {
    /// The body of `len` bytes at `offset`, with the checksum of each [`BLOCK`].
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

    /// The same; when it turns out damaged, the file is emptied, and nobody meets the damage again. Else whoever keeps
    /// it has to see to that.
    #[must_use]
    pub const fn emptied_when_damaged(mut self) -> Self {
        self.is_emptied = true;
        self
    }

    /// Its length in bytes.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is nothing in it.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The memory it takes.
    pub fn heap_size(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.sums)
    }

    /// Whether it is the same body, wherever it lies.
    pub fn is_same_as(&self, other: &Self) -> bool {
        self.len == other.len && self.sums == other.sums
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> u64 {
        self.sums.len() as u64
    }

    /// Reads one block and checks it. Blocks the thread.
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

    /// Up to `room` bytes from there on, of a body that has been checked, as far as the system has them in memory.
    pub fn read_at_hand(&self, at: u64, room: usize) -> Option<Bytes> {
        let (file, offset) = self.verified()?;
        let left = self.len.checked_sub(at)?;
        let mut bytes = vec![0; room.min(usize::try_from(left).unwrap_or(usize::MAX))];
        let mut pieces = [io::IoSliceMut::new(&mut bytes)];
        let read = preadv2(file, &mut pieces, offset + at, ReadWriteFlags::NOWAIT).ok()?;
        bytes.truncate(read);
        (read > 0).then(|| bytes.into())
    }

    /// Notes that every block has been read and was right, or has just been written.
    pub fn mark_verified(&self) {
        self.verified.store(true, Ordering::Release);
    }

    /// Notes that a block could not be read, or was not what was written.
    pub fn mark_damaged(&self) {
        self.damaged.store(true, Ordering::Release);
        if self.is_emptied {
            // It was opened to be read. Where it may not be written to, the next one has the same to say of it.
            let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            let opened = File::options().write(true).open(path);
            let _ = opened.and_then(|file| file.set_len(0));
        }
    }

    /// Whether a block could not be read, or was not what was written.
    pub fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Acquire)
    }

    /// The file and where the body begins in it, once all of it has been checked: it may then be
    /// sent without passing through here.
    pub fn verified(&self) -> Option<(&File, u64)> {
        self.verified
            .load(Ordering::Acquire)
            .then_some((&self.file, self.offset))
    }

    /// Notes a use, for whoever decides what to keep.
    pub fn touch(&self) {
        self.used.store(true, Ordering::Relaxed);
    }

    /// Whether it was used since this was last asked.
    pub fn take_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a stored body is damaged")
}
