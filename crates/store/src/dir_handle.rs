//! Directory handle for access below an open directory: one path component at a time, never following
//! symbolic links, so that other users with write access cannot redirect it.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, fsync, mkdirat, openat, renameat,
    statat, unlinkat,
};
use rustix::io::Errno;

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);
/// `NONBLOCK` keeps a FIFO from blocking the open, `NOCTTY` a terminal from becoming the controlling one.
const FILE: OFlags = OFlags::NOFOLLOW
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Open directory.
#[derive(Debug)]
pub struct DirHandle(OwnedFd);

impl DirHandle {
    /// Opens a directory by a configured path, which may be a symbolic link.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(openat(CWD, path, FOLDER, Mode::empty())?))
    }

    /// Opens a subdirectory.
    pub fn folder(&self, name: &str) -> io::Result<Self> {
        let opened = openat(&self.0, name, FOLDER | OFlags::NOFOLLOW, Mode::empty());
        Ok(Self(opened?))
    }

    /// Creates a subdirectory with mode 0700. Returns whether it was created.
    pub fn make_folder(&self, name: &str) -> io::Result<bool> {
        match mkdirat(&self.0, name, Mode::RWXU) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a file; a created one has mode 0600.
    pub fn file(&self, name: &str, how: OFlags) -> io::Result<File> {
        let opened = openat(&self.0, name, how | FILE, Mode::RUSR | Mode::WUSR);
        Ok(opened?.into())
    }

    /// Opens a regular file for writing. Fails with `InvalidInput` if the file has further hard links, since
    /// it could be any file of this user.
    pub fn file_to_write(&self, name: &str, how: OFlags) -> io::Result<File> {
        let file = self.file(name, how | OFlags::RDWR)?;
        let stat = fstat(&file)?;
        if is_file(&stat) && stat.st_nlink == 1 {
            return Ok(file);
        }
        let what = format!("{name} is not a regular file with a single link");
        Err(io::Error::new(io::ErrorKind::InvalidInput, what))
    }

    /// Returns the status of a directory entry, without following a symbolic link.
    pub fn stat(&self, name: &str) -> io::Result<Stat> {
        Ok(statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Removes a directory entry other than a directory. Succeeds if it does not exist.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.0, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes an empty subdirectory.
    pub fn remove_folder(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, AtFlags::REMOVEDIR)?)
    }

    /// Renames a file, replacing an existing one.
    pub fn rename(&self, name: &str, to: &Self, new_name: &str) -> io::Result<()> {
        Ok(renameat(&self.0, name, &to.0, new_name)?)
    }

    /// Iterates over the entry names; `None` for a name that is not UTF-8.
    pub fn names(&self) -> io::Result<impl Iterator<Item = io::Result<Option<String>>>> {
        let is_name = |name: &CStr| !matches!(name.to_bytes(), b"." | b"..");
        let entries = Dir::read_from(&self.0)?.filter_map(move |entry| {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return Some(Err(error.into())),
            };
            let name = entry.file_name();
            is_name(name).then(|| Ok(name.to_str().ok().map(str::to_owned)))
        });
        Ok(entries)
    }

    /// Flushes created, renamed and removed entries to disk (fsync).
    pub fn sync(&self) -> io::Result<()> {
        Ok(fsync(&self.0)?)
    }
}

impl AsFd for DirHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Returns whether this is a regular file.
pub fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode).is_file()
}
