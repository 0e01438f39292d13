//! What lies below an open directory, reached by one name at a time and never through a link: whoever may write
//! somewhere above or within cannot lead us elsewhere.

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
/// A named pipe in place of a file would have us wait for its other end, a terminal make it ours.
const FILE: OFlags = OFlags::NOFOLLOW
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// An open directory.
#[derive(Debug)]
pub struct Folder(OwnedFd);

impl Folder {
    /// Opens the one that a user has named. That it is a link is that user's own doing.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(openat(CWD, path, FOLDER, Mode::empty())?))
    }

    /// Opens a directory in it.
    pub fn folder(&self, name: &str) -> io::Result<Self> {
        let opened = openat(&self.0, name, FOLDER | OFlags::NOFOLLOW, Mode::empty());
        Ok(Self(opened?))
    }

    /// Makes a directory in it, for its owner alone. Says whether there was none.
    pub fn make_folder(&self, name: &str) -> io::Result<bool> {
        match mkdirat(&self.0, name, Mode::RWXU) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a file in it; one that is made is its owner's alone.
    pub fn file(&self, name: &str, how: OFlags) -> io::Result<File> {
        let opened = openat(&self.0, name, how | FILE, Mode::RUSR | Mode::WUSR);
        Ok(opened?.into())
    }

    /// Opens a file to be written to: one that has no other name, under which it may be anything of ours.
    pub fn file_to_write(&self, name: &str, how: OFlags) -> io::Result<File> {
        let file = self.file(name, how | OFlags::RDWR)?;
        let stat = fstat(&file)?;
        if is_file(&stat) && stat.st_nlink == 1 {
            return Ok(file);
        }
        let what = format!("{name} is no file with this name alone");
        Err(io::Error::new(io::ErrorKind::InvalidInput, what))
    }

    /// Looks at what has a name in it, be it a link.
    pub fn stat(&self, name: &str) -> io::Result<Stat> {
        Ok(statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Takes a name away that is no directory's. One that is gone already is fine.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.0, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes an empty directory.
    pub fn remove_folder(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, AtFlags::REMOVEDIR)?)
    }

    /// Gives a file another name, in place of what has it.
    pub fn rename(&self, name: &str, to: &Self, new_name: &str) -> io::Result<()> {
        Ok(renameat(&self.0, name, &to.0, new_name)?)
    }

    /// The names in it; `None` for one that is not UTF-8.
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

    /// Has names that were given or taken in it written to the disk.
    pub fn sync(&self) -> io::Result<()> {
        Ok(fsync(&self.0)?)
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Whether it is an ordinary file.
pub fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode).is_file()
}
