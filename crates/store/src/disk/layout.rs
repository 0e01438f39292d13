//! Where files lie: `DIRECTORY/microcache-v1/xx/ID`, where xx are the id's first two digits.
//!
//! With 256 folders, a million files are some 4,000 to each, which today's file systems find as fast as
//! four; with 65,536 the folders alone would take 256 MiB.
//!
//! The directory and our folder in it stay open, and everything is done relative to them: a link leads nowhere. Only
//! names that are given here are removed, one by one; what has other names is left alone, and said.

use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use rustix::fs::{OFlags, fstat};

use super::DiskError;
use crate::beneath::Folder;
use crate::ownership;
use crate::tier::EntryId;

const VERSIONS: &str = "microcache-v";
const HOME: &str = "microcache-v1";
const TEMPORARY: &str = "tmp";
/// The journal.
pub(super) const JOURNAL: &str = "journal";
/// A journal until it is complete.
pub(super) const NEW_JOURNAL: &str = "journal.new";
/// A journal that could not be read to its end.
pub(super) const DAMAGED_JOURNAL: &str = "journal.damaged";
/// So many names that are not ours are said; of the others how many there are.
const MAX_NAMED: usize = 8;

/// The tree of one directory.
pub(super) struct Layout {
    directory: PathBuf,
    open: RwLock<Arc<Open>>,
    temporaries: AtomicU64,
    foreign: Mutex<Foreign>,
}

/// What stays open of it.
pub(super) struct Open {
    directory: Folder,
    home: Folder,
    temporary: Folder,
}

/// Names that are in the way and were not given here.
#[derive(Default)]
struct Foreign {
    named: Vec<String>,
    more: u64,
}

/// The directory that was asked for, without what is in it.
pub(super) fn open_directory(path: &Path) -> Result<Folder, DiskError> {
    let unusable = |source| DiskError::unusable(path, source);
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(unusable)?;
    let directory = Folder::open(path).map_err(unusable)?;
    ownership::check(path, &directory)?;
    Ok(directory)
}

impl Open {
    /// Makes what is missing in a directory. Says whether everything was.
    fn new(path: &Path, directory: Folder) -> Result<(Self, bool), DiskError> {
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

    pub(super) const fn directory(&self) -> &Folder {
        &self.directory
    }

    /// Our folder.
    pub(super) const fn home(&self) -> &Folder {
        &self.home
    }

    fn folder_of(&self, name: &str) -> io::Result<Folder> {
        self.home.folder(&name[..2])
    }
}

impl Layout {
    /// How many directories there are for entries.
    pub(super) const FOLDERS: u32 = 256;

    /// Makes what is missing, and says whether everything was.
    pub(super) fn new(path: &Path, directory: Folder) -> Result<(Self, bool), DiskError> {
        let (open, is_new) = Open::new(path, directory)?;
        let layout = Self {
            directory: path.into(),
            open: RwLock::new(Arc::new(open)),
            temporaries: AtomicU64::new(0),
            foreign: Mutex::default(),
        };
        Ok((layout, is_new))
    }

    /// The same again, after it was removed.
    pub(super) fn reopen(&self, directory: Folder) -> Result<bool, DiskError> {
        let (open, is_new) = Open::new(&self.directory, directory)?;
        *self.open.write() = Arc::new(open);
        Ok(is_new)
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn open(&self) -> Arc<Open> {
        Arc::clone(&self.open.read())
    }

    /// The path of an entry in our folder.
    pub(super) fn path_of(id: EntryId) -> String {
        let name = id.to_string();
        [&name[..2], "/", &name].concat()
    }

    pub(super) fn open_entry(&self, id: EntryId, how: OFlags) -> io::Result<File> {
        let name = id.to_string();
        self.open().folder_of(&name)?.file(&name, how)
    }

    /// Opens an entry to write to it.
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

    /// Whether a file is still the one that has an entry's name.
    pub(super) fn is_same(&self, file: impl AsFd, id: EntryId) -> bool {
        let name = id.to_string();
        let named = self.open().folder_of(&name).and_then(|it| it.stat(&name));
        match (fstat(file), named) {
            (Ok(one), Ok(other)) => (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino),
            _ => false,
        }
    }

    /// Removes the file of an entry. A directory in its place is not ours.
    pub(super) fn remove_entry(&self, id: EntryId) -> io::Result<()> {
        let name = id.to_string();
        let folder = match self.open().folder_of(&name) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            folder => folder?,
        };
        self.remove(&folder, &format!("{HOME}/{}", &name[..2]), &name)
    }

    /// Gives a temporary file the name of an entry.
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

    /// One of the folders of entries, if it is there. What else has its name is noted.
    pub(super) fn folder(&self, number: u32) -> io::Result<Option<Folder>> {
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

    /// The ids in a folder. Other names are noted.
    pub(super) fn ids(&self, number: u32, folder: &Folder) -> io::Result<Vec<EntryId>> {
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

    /// The id that a file of this name in a folder has.
    fn id_of(folder: u32, name: &str) -> Option<EntryId> {
        let number = u128::from_str_radix(name, 16).ok();
        let number = number.filter(|_| is_digits(name, 32))?;
        (number >> 120 == u128::from(folder)).then(|| EntryId::from_bytes(number.to_be_bytes()))
    }

    /// A new file under a name that nobody looks for.
    pub(super) fn create_temporary(&self) -> io::Result<(File, String)> {
        let number = self.temporaries.fetch_add(1, Ordering::Relaxed);
        let name = number.to_string();
        let how = OFlags::CREATE | OFlags::EXCL | OFlags::NOATIME;
        let file = self.open().temporary.file_to_write(&name, how)?;
        Ok((file, name))
    }

    /// Opens a temporary file to be read.
    pub(super) fn open_temporary(&self, name: &str) -> io::Result<File> {
        self.open().temporary.file(name, OFlags::NOATIME)
    }

    pub(super) fn remove_temporary(&self, name: &str) -> io::Result<()> {
        self.open().temporary.remove(name)
    }

    /// Removes what a process left half-written when it was killed.
    pub(super) fn clear_temporaries(&self) -> io::Result<()> {
        let open = self.open();
        self.clear(
            &open.temporary,
            &format!("{HOME}/{TEMPORARY}"),
            is_temporary,
        )
    }

    /// Removes what other versions of the format have left, and notes what else is in the way in our own.
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

    /// Removes the tree of another version, as far as its names are like ours.
    fn clear_version(&self, directory: &Folder, version: &str) -> io::Result<()> {
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

    /// Removes the files that have such names, and notes what has others.
    fn clear(&self, folder: &Folder, at: &str, is_ours: impl Fn(&str) -> bool) -> io::Result<()> {
        for name in folder.names()?.collect::<io::Result<Vec<_>>>()? {
            match name {
                Some(name) if is_ours(&name) => self.remove(folder, at, &name)?,
                name => self.note_foreign(at, name.as_deref()),
            }
        }
        Ok(())
    }

    fn remove(&self, folder: &Folder, at: &str, name: &str) -> io::Result<()> {
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

    /// What is in the way and was left alone, if there is anything.
    pub(super) fn foreign(&self) -> Option<String> {
        let foreign = self.foreign.lock();
        let mut names = foreign.named.join(", ");
        if foreign.more > 0 {
            names = format!("{names} and {} more", foreign.more);
        }
        let directory = self.directory.display();
        (!names.is_empty())
            .then(|| format!("not made by Microcache and left alone in {directory}: {names}"))
    }
}

/// Whether our folder may have such a name in it.
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
        assert_eq!(Layout::path_of(id), format!("{folder}/{name}"));
        let folder = u32::from_str_radix(folder, 16).unwrap();
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
        assert!(is_temporary("17") && !is_temporary("+17") && !is_temporary("017"));
    }
}
