//! Opening what was named, and nothing outside the directory.

use std::fs::{File, Metadata};
use std::io;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

use super::links;

/// A file, and what is known of it.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) file: File,
    pub(super) about: Metadata,
}

/// What lies at a path.
#[derive(Debug)]
pub(super) enum Lies {
    File(Found),
    Folder,
    /// Nothing that may be read as a file: a device, a socket; or a link that leads out.
    Nothing,
    /// The system does not let us.
    Forbidden,
}

/// The directory is opened anew each time: whoever puts another one in its place by a link means the other one.
pub(super) fn open_root(folder: &Path) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(CWD, folder, flags, Mode::empty())?.into())
}

/// Looks what lies at a path below the directory, which names nothing hidden. The system itself sees to it that neither
/// `..` nor a link leads out; links are followed here, because one may lead to what is hidden.
pub(super) fn look(root: &File, path: &Path) -> io::Result<Lies> {
    let opened = match open(root, path) {
        Err(Errno::LOOP) => match links::target(root, path) {
            Some(path) => open(root, &path),
            None => return Ok(Lies::Nothing),
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
            return Ok(Lies::Nothing);
        }
        Err(Errno::ACCESS | Errno::PERM) => return Ok(Lies::Forbidden),
        Err(error) => return Err(error.into()),
    };
    let about = file.metadata()?;
    Ok(if about.is_file() {
        Lies::File(Found { file, about })
    } else if about.is_dir() {
        Lies::Folder
    } else {
        Lies::Nothing
    })
}

/// Opens what lies at a path on which there is no link.
fn open(root: &File, path: &Path) -> Result<File, Errno> {
    // Somebody may have put a named pipe there, which would wait for a writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    loop {
        match openat2(root, path, flags, Mode::empty(), within) {
            // Something was renamed meanwhile.
            Err(Errno::AGAIN | Errno::INTR) => {}
            opened => return opened.map(File::from),
        }
    }
}
