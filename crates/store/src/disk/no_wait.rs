//! Reading a file without waiting: while the system has it in memory, its name and its contents.
//!
//! What cannot be had like this is not looked into any further here. It is read again where
//! waiting is allowed, and removed there if it is damaged.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FsWord, Mode, ResolveFlags, fstatfs, openat2};
use rustix::io::{Errno, ReadWriteFlags};

use super::files::Files;
use super::layout::Layout;
use super::read::{Opened, READ_ONLY, Source, in_file};
use super::state::DISK_BLOCK;
use super::write::HEAD_ROOM;
use crate::beneath::Folder;
use crate::content::BLOCK;
use crate::tier::{Entry, EntryId};

/// What file systems say of themselves.
const TMPFS: FsWord = 0x0102_1994;
const EXT4: FsWord = 0xEF53;
const XFS: FsWord = 0x5846_5342;
const BTRFS: FsWord = 0x9123_683E;
const F2FS: FsWord = 0xF2F5_2010;

/// Larger bodies are not read and checked here: others are waiting for this thread.
const LARGEST: u64 = BLOCK;
/// What a file may have beside its body: a head, and before a body that came first a hole.
const ROOM_FOR_HEADS: u64 = 2 * HEAD_ROOM as u64;

/// Nothing is asked of a disk, and no link is followed.
const WITHIN: ResolveFlags = ResolveFlags::CACHED
    .union(ResolveFlags::BENEATH)
    .union(ResolveFlags::NO_SYMLINKS);

/// How the files of a directory are read without waiting.
pub(super) struct NoWait {
    /// `None` if they cannot be: to open a file of FUSE, or of a network, is to ask somebody.
    flags: Option<ReadWriteFlags>,
    /// The system has said that it cannot do it.
    refused: AtomicBool,
}

impl NoWait {
    pub(super) fn on(home: &Folder) -> Self {
        let flags = match fstatfs(home).map(|found| found.f_type) {
            // It lies in memory, as the process does. The flag is not known there.
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

    fn open(&self, home: &Folder, path: &str) -> Option<File> {
        let opened = openat2(home, path, READ_ONLY, Mode::empty(), WITHIN);
        opened
            .map_err(|error| self.note(error))
            .ok()
            .map(Into::into)
    }

    /// Linux before 5.12 does not know how to open without waiting, and a filter of system calls
    /// may not either. Neither learns it.
    fn note(&self, error: Errno) {
        if matches!(error, Errno::NOSYS | Errno::INVAL) {
            self.refused.store(true, Ordering::Relaxed);
        }
    }
}

/// The entry in a file of so many blocks, if it can be had without waiting.
pub(super) fn read(files: &Files, id: EntryId, blocks: u32) -> Option<Entry> {
    if u64::from(blocks) * DISK_BLOCK > LARGEST + ROOM_FOR_HEADS {
        return None;
    }
    let flags = files.no_wait.flags()?;
    // While it is shared nobody removes the file: to be the last to close it would be to do that.
    let _shared = files.try_share(id)?;
    let file = files
        .no_wait
        .open(files.layout.open().home(), &Layout::path_of(id))?;
    let inline = files.settings.inline;
    let opened = Opened::new(Source { file: &file, flags }, id, inline).ok()??;
    match opened.prefix.body_len {
        small if small <= inline => opened.whole().ok(),
        large if large <= LARGEST => {
            let sums = opened.sums().ok()?;
            let Opened { head, prefix, .. } = opened;
            let body = in_file(file, &prefix, sums).ok()?;
            files.keep_named(id, &head, &body)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use super::*;
    use crate::content::Content;
    use crate::disk::{DiskSettings, expiry, write};

    #[test]
    fn a_system_that_cannot_is_not_asked_again() {
        let no_wait = NoWait {
            flags: Some(ReadWriteFlags::NOWAIT),
            refused: AtomicBool::new(false),
        };
        let folder = Folder::open(Path::new("/proc/self")).expect("it is there");
        assert!(no_wait.open(&folder, "nothing").is_none());
        assert!(no_wait.flags().is_some(), "only a file that is not there");
        no_wait.note(Errno::NOSYS);
        assert!(no_wait.flags().is_none());
    }

    #[test]
    fn nobody_waits_for_a_file_that_is_being_replaced() {
        let directory = PathBuf::from(format!("/dev/shm/microcache-{}", std::process::id()));
        let files = Files::open(DiskSettings::new(&directory, 1 << 20)).expect("a directory");
        let files = Arc::new(files);
        let id = EntryId::of(b"key");
        let entry = Entry {
            head: b"head"[..].into(),
            body: Content::Bytes(b"body"[..].into()),
        };
        let expires = expiry::now() + 1000;
        let written = write::write(&files, id, &entry, expires, files.now());
        assert!(written.is_ok());
        assert!(read(&files, id, 1).is_some());
        let held = files.stripe(id);
        assert!(read(&files, id, 1).is_none());
        drop(held);
        let shared = files.try_share(id);
        assert!(
            read(&files, id, 1).is_some(),
            "readers are not in each other's way"
        );
        drop(shared);
        fs::remove_dir_all(&directory).expect("removed");
    }
}
