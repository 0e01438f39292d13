//! The directory of the logs, accessed through an open descriptor. Symbolic links are not followed, since a
//! process running as root would read and write wherever they point.

use std::fs::{DirBuilder, File};
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Stat};
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, fsync, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

/// An open directory.
pub(crate) struct LogDirectory {
    path: PathBuf,
    descriptor: OwnedFd,
}

impl LogDirectory {
    /// Opens a directory, or creates it with mode 0700. Fails if other users may write to it.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let mut make = DirBuilder::new();
        make.recursive(true).mode(0o700).create(path)?;
        let descriptor = open_directory(path)?;
        Ok(Self {
            path: path.to_owned(),
            descriptor,
        })
    }

    /// Reopens the directory if it was removed and created again.
    pub(crate) fn reopen_if_replaced(&mut self) -> io::Result<()> {
        if fstat(&self.descriptor)?.st_nlink == 0 {
            self.descriptor = open_directory(&self.path)?;
        }
        Ok(())
    }

    /// Opens a file for reading and writing, creating it with mode 0600.
    pub(crate) fn file(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW;
        let opened = openat(
            &self.descriptor,
            name,
            flags | OFlags::NONBLOCK | OFlags::CLOEXEC,
            Mode::RUSR | Mode::WUSR,
        );
        let file = match opened {
            Err(Errno::LOOP) => return Err(not_a_file(name)),
            opened => File::from(opened?),
        };
        let Stat { st_mode, .. } = fstat(&file)?;
        if FileType::from_raw_mode(st_mode) != FileType::RegularFile {
            return Err(not_a_file(name));
        }
        Ok(file)
    }

    /// Reads a file; returns nothing if it does not exist.
    pub(crate) fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.file(name)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Renames a file over another one, and syncs the directory.
    pub(crate) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        renameat(&self.descriptor, from, &self.descriptor, to)?;
        Ok(fsync(&self.descriptor)?)
    }

    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.descriptor, name, AtFlags::empty())?)
    }

    /// Returns the path of a file, for messages.
    pub(crate) fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// Opens a directory. A symbolic link to the directory itself is the operator's choice.
fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let descriptor = openat(CWD, path, flags, Mode::empty())?;
    let stat = fstat(&descriptor)?;
    if stat.st_uid != geteuid().as_raw() && stat.st_uid != 0 {
        let why = format!("it belongs to another user ({})", stat.st_uid);
        return Err(io::Error::other(why));
    }
    if Mode::from_raw_mode(stat.st_mode).intersects(Mode::WGRP | Mode::WOTH) {
        let why = "other users may write to it: choose a subdirectory that only this program uses";
        return Err(io::Error::other(why));
    }
    Ok(descriptor)
}

fn not_a_file(name: &str) -> io::Error {
    io::Error::other(format!(
        "{name} is a symbolic link or not a regular file: check and remove it"
    ))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use microcache_testkit::Folder;

    use super::*;

    #[test]
    fn links_are_not_followed_and_special_files_not_read() {
        let (directory, elsewhere) = (Folder::absent(), Folder::new());
        let logs = LogDirectory::open(directory.path()).expect("a directory");
        let outside = elsewhere.write("outside", "theirs");
        symlink("/dev/zero", logs.path_of("zero")).expect("a link");
        symlink(&outside, logs.path_of("theirs")).expect("a link");
        fs::create_dir(logs.path_of("folder")).expect("a directory");
        for name in ["zero", "theirs", "folder"] {
            assert!(logs.file(name).is_err(), "{name}");
            assert!(logs.read(name).is_err(), "{name}");
        }
        assert_eq!(fs::read(&outside).expect("it is there"), b"theirs");
        fs::write(logs.path_of("new"), "mine").expect("written");
        logs.rename("new", "theirs").expect("renamed");
        assert_eq!(logs.read("theirs").expect("a file"), b"mine");
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_refused() {
        let directory = Folder::absent();
        drop(LogDirectory::open(directory.path()).expect("made for us alone"));
        for (mode, is_good) in [
            (0o700, true),
            (0o755, true),
            (0o777, false),
            (0o770, false),
            (0o1777, false),
        ] {
            fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode)).expect("set");
            let opened = LogDirectory::open(directory.path());
            assert_eq!(opened.is_ok(), is_good, "{mode:o}");
        }
    }
}
