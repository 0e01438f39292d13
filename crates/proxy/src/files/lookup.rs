//! Opens files, and nothing outside the directory.

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

use super::links;
use super::unsent::is_unsent;

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
pub(crate) fn open_root(folder: &Path) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(CWD, folder, flags, Mode::empty())?.into())
}

/// Looks up a path below the directory. The kernel refuses `..` and links (`openat2`); links are resolved here,
/// because one may lead to a hidden file.
pub(super) fn look(root: &File, path: &Path) -> io::Result<FileLookup> {
    if is_source(path) {
        return Ok(FileLookup::Nothing);
    }
    let opened = match open(root, path) {
        Err(Errno::LOOP) => match links::target(root, path) {
            Some(path) if !is_source(&path) => open(root, &path),
            _ => return Ok(FileLookup::Nothing),
        },
        opened => opened,
    };
    let file = match opened {
        Ok(file) => file,
        Err(error) if is_nothing(error) => return Ok(FileLookup::Nothing),
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

/// A path below the directory, without links.
#[derive(Debug)]
pub(crate) struct FoundPath {
    pub(crate) path: PathBuf,
    pub(crate) is_file: bool,
    pub(crate) is_folder: bool,
}

/// Looks up a path as [`look`] does, without the right to read the file.
pub(crate) fn find(root: &File, path: &Path) -> io::Result<Option<FoundPath>> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let mut path = path.to_owned();
    let mut opened = open_with(root, &path, flags);
    if opened.as_ref().is_err_and(|error| *error == Errno::LOOP) {
        let Some(target) = links::target(root, &path) else {
            return Ok(None);
        };
        path = target;
        opened = open_with(root, &path, flags);
    }
    let about = match opened {
        Ok(file) => file.metadata()?,
        Err(error) if is_nothing(error) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    Ok(Some(FoundPath {
        path,
        is_file: about.is_file(),
        is_folder: about.is_dir(),
    }))
}

/// Reads the start of a file below the directory; `None` if there is no such file. Follows no links.
pub(crate) fn read_start(root: &File, path: &Path, max: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match open(root, path) {
        Ok(file) => file,
        Err(error) if is_nothing(error) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if !file.metadata()?.is_file() {
        return Ok(None);
    }
    let mut start = Vec::new();
    file.take(max).read_to_end(&mut start)?;
    Ok(Some(start))
}

/// Returns `true` for the errors of a path that names nothing below the directory.
const fn is_nothing(error: Errno) -> bool {
    matches!(
        error,
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::NAMETOOLONG | Errno::NXIO
    )
}

/// Returns `true` for the path of a file that is never sent.
fn is_source(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| is_unsent(name.as_bytes()))
}

/// Opens a path without links.
fn open(root: &File, path: &Path) -> Result<File, Errno> {
    // Opening a named pipe would otherwise block until it has a writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    open_with(root, path, flags)
}

fn open_with(root: &File, path: &Path, flags: OFlags) -> Result<File, Errno> {
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    loop {
        match openat2(root, path, flags, Mode::empty(), within) {
            // A concurrent rename.
            Err(Errno::AGAIN | Errno::INTR) => {}
            opened => return opened.map(File::from),
        }
    }
}
