//! Directory layout: `DIRECTORY/microcache-v1/xx/ID`, with xx the first two digits of the id.
//!
//! With 256 folders, a million entries are about 4,000 files per folder, which file systems look up quickly;
//! 65,536 folders would occupy 256 MiB by themselves.
//!
//! The directory and its root folder stay open and all access is relative to them, without following
//! symbolic links. Only names of the tier's own format are removed, one by one; foreign names are left alone
//! and reported.

use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use rustix::fs::{OFlags, fstat};

use super::error::DiskError;
use crate::dir_handle::DirHandle;
use crate::ownership;
use crate::tier::EntryId;

const VERSIONS: &str = "microcache-v";
const HOME: &str = "microcache-v1";
const TEMPORARY: &str = "tmp";
/// Journal file.
pub(super) const JOURNAL: &str = "journal";
/// Journal under construction.
pub(super) const NEW_JOURNAL: &str = "journal.new";
/// Journal that was set aside because of damage.
pub(super) const DAMAGED_JOURNAL: &str = "journal.damaged";
/// Maximum of foreign names in reports; further ones are only counted.
const MAX_NAMED: usize = 8;

/// Directory tree of a tier.
pub(super) struct DiskLayout {
    directory: PathBuf,
    open: RwLock<Arc<OpenTree>>,
    temporaries: AtomicU64,
    foreign: Mutex<ForeignNames>,
}

/// Open handles of the tree.
pub(super) struct OpenTree {
    directory: DirHandle,
    home: DirHandle,
    temporary: DirHandle,
}

/// Foreign names found in the tree.
#[derive(Default)]
struct ForeignNames {
    named: Vec<String>,
    more: u64,
}

/// Opens the configured directory, creating it if needed.
///
/// # Errors
///
/// [`DiskError`] if it cannot be used, or other users may write to it.
pub(super) fn open_directory(path: &Path) -> Result<DirHandle, DiskError> {
    let unusable = |source| DiskError::unusable(path, source);
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(unusable)?;
    let directory = DirHandle::open(path).map_err(unusable)?;
    ownership::check(path, &directory)?;
    Ok(directory)
}

impl OpenTree {
    /// Opens the tree in a directory, creating what is missing. Returns whether it is new.
    fn new(path: &Path, directory: DirHandle) -> Result<(Self, bool), DiskError> {
        let at = path.join(HOME);
        let unusable = |source| DiskError::unusable(&at, source);
        let is_new = directory.make_folder(HOME).map_err(unusable)?;
        let home = directory.folder(HOME).map_err(unusable)?;
        ownership::check(&at, &home)?;
        let temporary = home
            .make_folder(TEMPORARY)
            .and_then(|_| home.folder(TEMPORARY));
        let temporary =
            temporary.map_err(|source| DiskError::unusable(&at.join(TEMPORARY), source))?;
        let open = Self {
            directory,
            home,
            temporary,
        };
        Ok((open, is_new))
    }

    pub(super) const fn directory(&self) -> &DirHandle {
        &self.directory
    }

    /// Root folder of this format version.
    pub(super) const fn home(&self) -> &DirHandle {
        &self.home
    }

    fn folder_of(&self, name: &str) -> io::Result<DirHandle> {
        self.home.folder(&name[..2])
    }
}

impl DiskLayout {
    /// Number of entry folders.
    pub(super) const FOLDERS: u32 = 256;

    /// Opens the tree, creating what is missing. Returns whether it is new.
    pub(super) fn new(path: &Path, directory: DirHandle) -> Result<(Self, bool), DiskError> {
        let (open, is_new) = OpenTree::new(path, directory)?;
        let layout = Self {
            directory: path.into(),
            open: RwLock::new(Arc::new(open)),
            temporaries: AtomicU64::new(0),
            foreign: Mutex::default(),
        };
        Ok((layout, is_new))
    }

    /// Opens the tree again after it was removed. Returns whether it is new.
    pub(super) fn reopen(&self, directory: DirHandle) -> Result<bool, DiskError> {
        let (open, is_new) = OpenTree::new(&self.directory, directory)?;
        *self.open.write() = Arc::new(open);
        Ok(is_new)
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn open(&self) -> Arc<OpenTree> {
        Arc::clone(&self.open.read())
    }

    /// Path of an entry, relative to the root folder.
    pub(super) fn path_of(id: EntryId) -> String {
        let name = id.to_string();
        [&name[..2], "/", &name].concat()
    }

    pub(super) fn open_entry(&self, id: EntryId, how: OFlags) -> io::Result<File> {
        let name = id.to_string();
        self.open().folder_of(&name)?.file(&name, how)
    }

    /// Opens an entry file for writing.
    pub(super) fn open_entry_to_write(&self, id: EntryId) -> io::Result<File> {
        let name = id.to_string();
        let folder = self.open().folder_of(&name)?;
        folder.file_to_write(&name, OFlags::empty())
    }

    pub(super) fn is_missing(&self, id: EntryId) -> bool {
        let name = id.to_string();
        let stat = self.open().folder_of(&name).and_then(|it| it.stat(&name));
        stat.is_err_and(|error| error.kind() == ErrorKind::NotFound)
    }

    /// Returns whether an open file still has the name of its entry.
    pub(super) fn is_same(&self, file: impl AsFd, id: EntryId) -> bool {
        let name = id.to_string();
        let named = self.open().folder_of(&name).and_then(|it| it.stat(&name));
        match (fstat(file), named) {
            (Ok(one), Ok(other)) => (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino),
            _ => false,
        }
    }

    /// Removes the file of an entry. A directory of that name is foreign and left alone.
    pub(super) fn remove_entry(&self, id: EntryId) -> io::Result<()> {
        let name = id.to_string();
        let folder = match self.open().folder_of(&name) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            folder => folder?,
        };
        self.remove(&folder, &format!("{HOME}/{}", &name[..2]), &name)
    }

    /// Renames a temporary file to an entry.
    pub(super) fn give_name(&self, temporary: &str, id: EntryId) -> io::Result<()> {
        let (open, name) = (self.open(), id.to_string());
        let folder = match open.folder_of(&name) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                open.home.make_folder(&name[..2])?;
                open.folder_of(&name)?
            }
            folder => folder?,
        };
        open.temporary.rename(temporary, &folder, &name)
    }

    /// Opens an entry folder, if it exists. Anything else of that name is recorded as foreign.
    pub(super) fn folder(&self, number: u32) -> io::Result<Option<DirHandle>> {
        let name = format!("{number:02x}");
        match self.open().home.folder(&name) {
            Ok(folder) => Ok(Some(folder)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) if error.kind() == ErrorKind::NotADirectory => {
                self.note_foreign(HOME, Some(&name));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Lists the ids in a folder. Other names are recorded as foreign.
    pub(super) fn ids(&self, number: u32, folder: &DirHandle) -> io::Result<Vec<EntryId>> {
        let mut ids = Vec::new();
        for name in folder.names()? {
            let name = name?;
            match name.as_deref().and_then(|name| Self::id_of(number, name)) {
                Some(id) => ids.push(id),
                None => self.note_foreign(&format!("{HOME}/{number:02x}"), name.as_deref()),
            }
        }
        Ok(ids)
    }

    /// Parses the file name of an entry in a folder.
    fn id_of(folder: u32, name: &str) -> Option<EntryId> {
        let number = u128::from_str_radix(name, 16).ok();
        let number = number.filter(|_| is_digits(name, 32))?;
        (number >> 120 == u128::from(folder)).then(|| EntryId::from_bytes(number.to_be_bytes()))
    }

    /// Creates a temporary file. Returns it with its name.
    pub(super) fn create_temporary(&self) -> io::Result<(File, String)> {
        let number = self.temporaries.fetch_add(1, Ordering::Relaxed);
        let name = number.to_string();
        let how = OFlags::CREATE | OFlags::EXCL | OFlags::NOATIME;
        let file = self.open().temporary.file_to_write(&name, how)?;
        Ok((file, name))
    }

    /// Opens a temporary file for reading.
    pub(super) fn open_temporary(&self, name: &str) -> io::Result<File> {
        self.open().temporary.file(name, OFlags::NOATIME)
    }

    pub(super) fn remove_temporary(&self, name: &str) -> io::Result<()> {
        self.open().temporary.remove(name)
    }

    /// Removes temporary files left by a crash.
    pub(super) fn clear_temporaries(&self) -> io::Result<()> {
        let open = self.open();
        self.clear(
            &open.temporary,
            &format!("{HOME}/{TEMPORARY}"),
            is_temporary,
        )
    }

    /// Removes the trees of other format versions, and records foreign names in our own.
    pub(super) fn clear_foreign(&self) -> io::Result<()> {
        let open = self.open();
        for name in open.directory.names()? {
            let name = name?;
            let version = name.as_deref().and_then(|name| name.strip_prefix(VERSIONS));
            let is_version = version.is_some_and(|it| it.parse::<u32>().is_ok());
            if let Some(name) = name.filter(|name| is_version && name != HOME) {
                self.clear_version(&open.directory, &name)?;
            }
        }
        for name in open.home.names()? {
            let name = name?;
            if !name.as_deref().is_some_and(is_in_home) {
                self.note_foreign(HOME, name.as_deref());
            }
        }
        Ok(())
    }

    /// Removes the tree of another version, as far as its names match the format.
    fn clear_version(&self, directory: &DirHandle, version: &str) -> io::Result<()> {
        let Ok(home) = directory.folder(version) else {
            self.note_foreign("", Some(version));
            return Ok(());
        };
        if ownership::check(&self.directory.join(version), &home).is_err() {
            self.note_foreign("", Some(version));
            return Ok(());
        }
        let names = home.names()?.collect::<io::Result<Vec<_>>>()?;
        for name in names.iter().flatten().filter(|name| is_in_home(name)) {
            let at = format!("{version}/{name}");
            match home.folder(name) {
                Ok(folder) => {
                    self.clear(&folder, &at, |it| is_digits(it, 32) || is_temporary(it))?;
                    let _ = home.remove_folder(name);
                }
                Err(_) if name.starts_with(JOURNAL) => home.remove(name)?,
                Err(_) => self.note_foreign(version, Some(name)),
            }
        }
        if directory.remove_folder(version).is_err() {
            self.note_foreign("", Some(version));
        }
        Ok(())
    }

    /// Removes the files whose names match, and records the others as foreign.
    fn clear(
        &self,
        folder: &DirHandle,
        at: &str,
        is_ours: impl Fn(&str) -> bool,
    ) -> io::Result<()> {
        for name in folder.names()?.collect::<io::Result<Vec<_>>>()? {
            match name {
                Some(name) if is_ours(&name) => self.remove(folder, at, &name)?,
                name => self.note_foreign(at, name.as_deref()),
            }
        }
        Ok(())
    }

    fn remove(&self, folder: &DirHandle, at: &str, name: &str) -> io::Result<()> {
        match folder.remove(name) {
            Err(error) if error.kind() == ErrorKind::IsADirectory => {
                self.note_foreign(at, Some(name));
                Ok(())
            }
            removed => removed,
        }
    }

    fn note_foreign(&self, at: &str, name: Option<&str>) {
        let name = Path::new(at).join(name.unwrap_or("(not UTF-8)"));
        let name = name.to_string_lossy().escape_debug().to_string();
        let mut foreign = self.foreign.lock();
        if foreign.named.contains(&name) {
            return;
        }
        if foreign.named.len() < MAX_NAMED {
            foreign.named.push(name);
        } else {
            foreign.more += 1;
        }
    }

    /// Describes the foreign names, if there are any.
    pub(super) fn foreign(&self) -> Option<String> {
        let foreign = self.foreign.lock();
        let mut names = foreign.named.join(", ");
        if foreign.more > 0 {
            names = format!("{names} and {} more", foreign.more);
        }
        let directory = self.directory.display();
        (!names.is_empty()).then(|| format!("foreign files in {directory}: {names}"))
    }
}

/// Returns whether a name belongs into the root folder.
fn is_in_home(name: &str) -> bool {
    matches!(name, TEMPORARY | JOURNAL | NEW_JOURNAL | DAMAGED_JOURNAL) || is_digits(name, 2)
}

fn is_temporary(name: &str) -> bool {
    name.parse::<u64>()
        .is_ok_and(|number| number.to_string() == name)
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
        let (folder, name) = (&id.to_string()[..2], id.to_string());
        assert_eq!(DiskLayout::path_of(id), format!("{folder}/{name}"));
        let folder = u32::from_str_radix(folder, 16).unwrap();
        assert_eq!(DiskLayout::id_of(folder, &name), Some(id));
        assert_eq!(DiskLayout::id_of(folder ^ 1, &name), None);
    }

    #[test]
    fn other_names_are_foreign() {
        for name in [
            "",
            "tmp",
            "00000000000000000000000000000000a",
            "+0000000000000000000000000000000",
            "0000000000000000000000000000000G",
            "0000000000000000000000000000000A",
        ] {
            assert_eq!(DiskLayout::id_of(0, name), None, "{name}");
        }
        assert!(is_temporary("17") && !is_temporary("+17") && !is_temporary("017"));
    }
}
