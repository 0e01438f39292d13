//! Non-blocking reads of entry files whose directory entries and contents are cached by the kernel.
//!
//! Anything else is left to the blocking read path, which also removes damaged files.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FsWord, Mode, ResolveFlags, fstatfs, openat2};
use rustix::io::{Errno, ReadWriteFlags};

use super::files::EntryFiles;
use super::geometry::{DISK_BLOCK, HEAD_ROOM};
use super::index::IndexEntry;
use super::layout::DiskLayout;
use super::read::{EntryFile, FileSource, READ_ONLY, in_file};
use crate::content::BLOCK;
use crate::dir_handle::DirHandle;
use crate::encoding::cost_in;
use crate::eviction::FetchCost;
use crate::tier::Entry;

/// File system types (statfs(2)).
const TMPFS: FsWord = 0x0102_1994;
const EXT4: FsWord = 0xEF53;
const XFS: FsWord = 0x5846_5342;
const BTRFS: FsWord = 0x9123_683E;
const F2FS: FsWord = 0xF2F5_2010;

/// Maximum size of a body read and verified here, in bytes, since it occupies a serving thread.
const LARGEST: u64 = BLOCK;
/// Maximum size of a file in addition to its body, in bytes: a head, and a hole if the body was written
/// first.
const ROOM_FOR_HEADS: u64 = 2 * HEAD_ROOM as u64;

/// Resolves cached paths only, without symbolic links (openat2(2)).
const WITHIN: ResolveFlags = ResolveFlags::CACHED
    .union(ResolveFlags::BENEATH)
    .union(ResolveFlags::NO_SYMLINKS);

/// Capability of a directory for non-blocking reads.
pub(super) struct NonBlockingReads {
    /// `None` if unsupported: on FUSE and network file systems, opening a file may block.
    flags: Option<ReadWriteFlags>,
    /// `true` if the kernel has rejected a non-blocking open.
    refused: AtomicBool,
}

impl NonBlockingReads {
    pub(super) fn on(home: &DirHandle) -> Self {
        let flags = match fstatfs(home).map(|found| found.f_type) {
            // Tmpfs is memory anyway, and rejects the flag.
            Ok(TMPFS) => Some(ReadWriteFlags::empty()),
            Ok(EXT4 | XFS | BTRFS | F2FS) => Some(ReadWriteFlags::NOWAIT),
            _ => None,
        };
        Self {
            flags,
            refused: AtomicBool::new(false),
        }
    }

    fn flags(&self) -> Option<ReadWriteFlags> {
        self.flags.filter(|_| !self.refused.load(Ordering::Relaxed))
    }

    fn open(&self, home: &DirHandle, path: &str) -> Option<File> {
        let opened = openat2(home, path, READ_ONLY, Mode::empty(), WITHIN);
        opened
            .map_err(|error| self.record_failure(error))
            .ok()
            .map(Into::into)
    }

    /// Records that non-blocking opens are unsupported: Linux before 5.12, or a seccomp filter.
    fn record_failure(&self, error: Errno) {
        if matches!(error, Errno::NOSYS | Errno::INVAL) {
            self.refused.store(true, Ordering::Relaxed);
        }
    }
}

/// Reads an indexed entry, if that is possible without blocking.
pub(super) fn read(
    files: &EntryFiles,
    reads: &NonBlockingReads,
    known: IndexEntry,
) -> Option<Entry> {
    let id = known.id;
    if u64::from(known.blocks) * DISK_BLOCK > LARGEST + ROOM_FOR_HEADS {
        return None;
    }
    let flags = reads.flags()?;
    // Sharing the stripe prevents a removal, so closing the file here never frees its blocks.
    let _shared = files.try_share(id)?;
    let file = reads.open(files.layout.open().home(), &DiskLayout::path_of(id))?;
    let inline = files.settings.inline;
    let opened = EntryFile::new(FileSource { file: &file, flags }, id, inline).ok()??;
    // Once after a start, which leaves costs unknown, so that further reads do not lock the index.
    if known.cost == FetchCost::default() {
        files.learn_cost(id, cost_in(&opened.head));
    }
    match opened.prefix.body_len {
        small if small <= inline => opened.whole().ok(),
        large if large <= LARGEST => {
            let sums = opened.sums().ok()?;
            let EntryFile { head, prefix, .. } = opened;
            let body = in_file(file, &prefix, sums).ok()?;
            files.keep_named(id, &head, &body)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use microcache_testkit::Folder;

    use super::*;
    use crate::content::Content;
    use crate::disk::{DiskSettings, expiry, write};
    use crate::tier::EntryId;

    #[test]
    fn an_unsupported_system_call_is_not_retried() {
        let non_blocking = NonBlockingReads {
            flags: Some(ReadWriteFlags::NOWAIT),
            refused: AtomicBool::new(false),
        };
        let folder = DirHandle::open(Path::new("/proc/self")).expect("it is there");
        assert!(non_blocking.open(&folder, "nothing").is_none());
        assert!(
            non_blocking.flags().is_some(),
            "only a file that is not there"
        );
        non_blocking.record_failure(Errno::NOSYS);
        assert!(non_blocking.flags().is_none());
    }

    #[test]
    fn a_file_being_replaced_is_not_waited_for() {
        let folder = Folder::absent_in("/dev/shm");
        let settings = DiskSettings::new(folder.path(), 1 << 20);
        let files = EntryFiles::open(settings).expect("a directory");
        let files = Arc::new(files);
        let reads = NonBlockingReads::on(files.layout.open().home());
        let id = EntryId::of(b"key");
        let entry = Entry {
            head: b"head"[..].into(),
            body: Content::Bytes(b"body"[..].into()),
        };
        let expires = expiry::now() + 1000;
        let written = write::write(&files, id, &entry, expires, files.now());
        assert!(written.is_ok());
        let known = IndexEntry::new(id, 1, expires, FetchCost::default());
        let known = known.expect("it is small");
        assert!(read(&files, &reads, known).is_some());
        let held = files.stripe(id);
        assert!(read(&files, &reads, known).is_none());
        drop(held);
        let shared = files.try_share(id);
        assert!(
            read(&files, &reads, known).is_some(),
            "readers are not in each other's way"
        );
        drop(shared);
    }
}
