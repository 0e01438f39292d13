//! Opens files, and nothing outside the directory.

use std::fs::{File, Metadata};
use std::io;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

use super::links;

/// An open file with its metadata.
#[derive(Debug)]
pub(super) struct OpenedFile {
    pub(super) file: File,
    pub(super) about: Metadata,
}

/// Result of a look-up.
#[derive(Debug)]
pub(super) enum FileLookup {
    File(OpenedFile),
    Folder,
    /// Not found, or not a regular file, or a link out of the directory.
    Nothing,
    /// Permission denied.
    Forbidden,
}

/// Opens the directory. Done for each request, so that a symbolic link can be switched to another one.
pub(super) fn open_root(folder: &Path) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(CWD, folder, flags, Mode::empty())?.into())
}

/// Looks up a path below the directory. The kernel refuses `..` and links (`openat2`); links are resolved here,
/// because one may lead to a hidden file.
pub(super) fn look(root: &File, path: &Path) -> io::Result<FileLookup> {
    let opened = match open(root, path) {
        Err(Errno::LOOP) => match links::target(root, path) {
            Some(path) => open(root, &path),
            None => return Ok(FileLookup::Nothing),
        },
        opened => opened,
    };
    let file = match opened {
        Ok(file) => file,
        Err(
            Errno::NOENT
            | Errno::NOTDIR
            | Errno::LOOP
            | Errno::XDEV
            | Errno::NAMETOOLONG
            | Errno::NXIO,
        ) => {
            return Ok(FileLookup::Nothing);
        }
        Err(Errno::ACCESS | Errno::PERM) => return Ok(FileLookup::Forbidden),
        Err(error) => return Err(error.into()),
    };
    let about = file.metadata()?;
    Ok(if about.is_file() {
        FileLookup::File(OpenedFile { file, about })
    } else if about.is_dir() {
        FileLookup::Folder
    } else {
        FileLookup::Nothing
    })
}

/// Opens a path without links.
fn open(root: &File, path: &Path) -> Result<File, Errno> {
    // Opening a named pipe would otherwise block until it has a writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    loop {
        match openat2(root, path, flags, Mode::empty(), within) {
            // A concurrent rename.
            Err(Errno::AGAIN | Errno::INTR) => {}
            opened => return opened.map(File::from),
        }
    }
}
