//! Where files lie: `DIRECTORY/microcache-v1/xx/ID`, where xx are the id's first two digits.
//!
//! With 256 folders, a million files are some 4,000 to each, which today's file systems find as fast as
//! four; with 65,536 the folders alone would take 256 MiB.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::OFlags;

use crate::tier::EntryId;

const VERSIONS: &str = "microcache-v";
const VERSION: &str = "1";
const TEMPORARY: &str = "tmp";
const JOURNAL: &str = "journal";

/// The tree of one directory.
pub(super) struct Layout {
    directory: PathBuf,
    home: PathBuf,
    temporaries: AtomicU64,
}

impl Layout {
    /// How many directories there are for entries.
    pub(super) const FOLDERS: u32 = 256;

    pub(super) fn new(directory: &Path) -> Self {
        Self {
            directory: directory.into(),
            home: directory.join(format!("{VERSIONS}{VERSION}")),
            temporaries: AtomicU64::new(0),
        }
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn create_directory(&self) -> io::Result<()> {
        create(&self.directory)
    }

    /// Makes what is missing, and says whether everything was.
    pub(super) fn create_home(&self) -> io::Result<bool> {
        let is_new = !self.home.try_exists()?;
        create(&self.home.join(TEMPORARY))?;
        Ok(is_new)
    }

    pub(super) fn entry(&self, id: EntryId) -> PathBuf {
        let name = id.to_string();
        let mut path = self.folder_of(&name);
        path.push(name);
        path
    }

    /// Makes the folder of an entry.
    pub(super) fn create_folder(&self, id: EntryId) -> io::Result<()> {
        create(&self.folder_of(&id.to_string()))
    }

    pub(super) fn folder(&self, number: u32) -> PathBuf {
        self.folder_of(&format!("{number:02x}"))
    }

    pub(super) fn journal(&self) -> PathBuf {
        self.home.join(JOURNAL)
    }

    /// Where a journal lies until it is complete.
    pub(super) fn new_journal(&self) -> PathBuf {
        self.home.join(format!("{JOURNAL}.new"))
    }

    /// Where a journal lies that could not be read to its end.
    pub(super) fn damaged_journal(&self) -> PathBuf {
        self.home.join(format!("{JOURNAL}.damaged"))
    }

    /// Has names that were given or taken here written to the disk.
    pub(super) fn sync_home(&self) -> io::Result<()> {
        File::open(&self.home)?.sync_all()
    }

    /// The id that a file of this name in a folder has.
    pub(super) fn id_of(folder: u32, name: &str) -> Option<EntryId> {
        let number = u128::from_str_radix(name, 16).ok();
        let number = number.filter(|_| is_digits(name, 32))?;
        (number >> 120 == u128::from(folder)).then(|| EntryId::from_bytes(number.to_be_bytes()))
    }

    /// A new file under a name that nobody looks for.
    pub(super) fn create_temporary(&self) -> io::Result<(File, PathBuf)> {
        let number = self.temporaries.fetch_add(1, Ordering::Relaxed);
        let path = self.home.join(TEMPORARY).join(number.to_string());
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(OFlags::NOATIME.bits().cast_signed())
            .open(&path)?;
        Ok((file, path))
    }

    /// Removes what a process left half-written when it was killed.
    pub(super) fn clear_temporaries(&self) -> io::Result<()> {
        for file in fs::read_dir(self.home.join(TEMPORARY))? {
            remove(&file?.path())?;
        }
        Ok(())
    }

    /// Removes the trees of other versions of the format, and what else is in the way in our own.
    pub(super) fn clear_foreign(&self) -> io::Result<()> {
        let own = self.home.file_name();
        clear(&self.directory, |name| {
            let version = name.strip_prefix(VERSIONS);
            own.is_some_and(|own| own == name)
                || version.is_none_or(|version| version.parse::<u32>().is_err())
        })?;
        clear(&self.home, |name| {
            name == TEMPORARY || name.starts_with(JOURNAL) || is_digits(name, 2)
        })
    }

    fn folder_of(&self, digits: &str) -> PathBuf {
        let mut path = self.home.clone();
        path.push(&digits[..2]);
        path
    }
}

/// Removes a file, a link, or a directory with all that is in it. What is gone already is fine.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::IsADirectory => fs::remove_dir_all(path),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn create(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn clear(directory: &Path, stays: impl Fn(&str) -> bool) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if !entry.file_name().to_str().is_some_and(&stays) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

fn is_digits(name: &str, count: usize) -> bool {
    name.len() == count && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_back_to_its_id() {
        let id = EntryId::of(b"key");
        let path = Layout::new(Path::new("/d")).entry(id);
        let name = id.to_string();
        let folder = u32::from_str_radix(&name[..2], 16).unwrap();
        assert_eq!(
            path,
            Layout::new(Path::new("/d")).folder(folder).join(&name)
        );
        assert_eq!(Layout::id_of(folder, &name), Some(id));
        assert_eq!(Layout::id_of(folder ^ 1, &name), None);
    }

    #[test]
    fn other_names_are_nobodys() {
        for name in [
            "",
            "tmp",
            "00000000000000000000000000000000a",
            "+0000000000000000000000000000000",
            "0000000000000000000000000000000G",
            "0000000000000000000000000000000A",
        ] {
            assert_eq!(Layout::id_of(0, name), None, "{name}");
        }
    }
}
