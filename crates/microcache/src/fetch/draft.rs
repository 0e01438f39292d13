//! A file that is being written, beside the one that it will be.
//!
//! Whoever writes one has its lock. The system lets go of that when the process ends, however it ends: so the next one
//! who writes the same file knows what was left behind by one that was killed, and removes it.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions, Permissions, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// So much of a file's name, in bytes, is in the name of its draft: that must not be too long for a name.
const NAME: usize = 200;
/// How the name of a draft ends, behind a number.
const ENDING: &[u8] = b".microcache.part";
/// In a folder with more than so many files nobody looks for what was left behind.
const LOOKED_AT: usize = 10_000;
/// How often another name is tried, because somebody took the file for one that was left behind.
const TRIES: usize = 10;

/// A draft. Dropped before it is published, it is removed.
pub(super) struct Draft {
    path: PathBuf,
    becomes: PathBuf,
    /// Open for as long as the lock is needed.
    _lock: File,
}

impl Draft {
    /// Whoever may read the file that it replaces may read it, and nobody else.
    pub(super) fn begin(becomes: PathBuf, replaced: Option<&Metadata>) -> io::Result<(File, Self)> {
        remove_left_behind(&becomes);
        let mode = if replaced.is_some() { 0o600 } else { 0o666 };
        let (file, path) = create(&becomes, mode)?;
        let draft = Self {
            _lock: file.try_clone()?,
            path,
            becomes,
        };
        if let Some(replaced) = replaced {
            let is_owned_alike = fchown(&file, Some(replaced.uid()), Some(replaced.gid())).is_ok();
            let kept = if is_owned_alike { 0o777 } else { 0o707 };
            file.set_permissions(Permissions::from_mode(replaced.mode() & kept))?;
        }
        Ok((file, draft))
    }

    /// Gives it its name. What is in it is on the disk already, and the name follows where that can be asked for.
    pub(super) fn publish(self) -> io::Result<()> {
        fs::rename(&self.path, &self.becomes)?;
        let _ = File::open(folder_of(&self.becomes)).and_then(|folder| folder.sync_all());
        Ok(())
    }
}

/// What was published is not there any more.
impl Drop for Draft {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// A new file under a name that nobody has, with its lock.
fn create(becomes: &Path, mode: u32) -> io::Result<(File, PathBuf)> {
    for _ in 0..TRIES {
        // The number of a process comes again, and a draft of one that was killed may still be there.
        let unique = RandomState::new().build_hasher().finish();
        let number = format!("{unique:016x}");
        let name = [&beginning(becomes), number.as_bytes(), ENDING].concat();
        let path = becomes.with_file_name(OsString::from_vec(name));
        let mut options = OpenOptions::new();
        let file = options
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&path)?;
        match file.try_lock() {
            // Where there are no locks, nothing is ever taken for left behind.
            Err(TryLockError::Error(_)) => return Ok((file, path)),
            Ok(()) if file.metadata()?.nlink() > 0 => return Ok((file, path)),
            // Somebody has found it between these two steps.
            Ok(()) | Err(TryLockError::WouldBlock) => {}
        }
    }
    Err(ErrorKind::ResourceBusy.into())
}

/// Removes the drafts of this file whose writers are gone.
fn remove_left_behind(becomes: &Path) {
    let Ok(entries) = fs::read_dir(folder_of(becomes)) else {
        return;
    };
    let beginning = beginning(becomes);
    let names: Vec<_> = entries.map_while(Result::ok).take(LOOKED_AT + 1).collect();
    if names.len() > LOOKED_AT {
        return;
    }
    for entry in names {
        if is_draft(&entry.file_name(), &beginning) {
            let _ = remove_if_left(&entry.path());
        }
    }
}

fn remove_if_left(path: &Path) -> io::Result<()> {
    // Who opens a pipe does not wait for the other end.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let flags = flags.bits().cast_signed();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    if file.metadata()?.is_file() && file.try_lock().is_ok() {
        fs::remove_file(path)?;
    }
    Ok(())
}

/// Whether this is the name of a draft of the file whose drafts' names begin like this.
fn is_draft(name: &OsStr, beginning: &[u8]) -> bool {
    let number = name.as_bytes().strip_prefix(beginning);
    let number = number.and_then(|rest| rest.strip_suffix(ENDING));
    number.is_some_and(|number| number.len() == 16 && number.iter().all(u8::is_ascii_hexdigit))
}

fn beginning(becomes: &Path) -> Vec<u8> {
    let name = becomes.file_name().unwrap_or_default().as_bytes();
    [&name[..name.len().min(NAME)], b"."].concat()
}

fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().unwrap_or(path);
    if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drafts_are_known_by_their_names() {
        let beginning = beginning(Path::new("folder/page"));
        for (name, is_one) in [
            ("page.0123456789abcdef.microcache.part", true),
            ("page.0123456789abcde.microcache.part", false),
            ("page.0123456789abcdeg.microcache.part", false),
            ("page2.0123456789abcdef.microcache.part", false),
            ("page.0123456789abcdef.part", false),
            ("page", false),
            ("page..microcache.part", false),
        ] {
            assert_eq!(is_draft(OsStr::new(name), &beginning), is_one, "{name}");
        }
        assert_eq!(folder_of(Path::new("page")), Path::new("."));
        assert_eq!(folder_of(Path::new("/page")), Path::new("/"));
    }

    /// What is being written stays, what nobody writes any more goes, and so does nothing else.
    #[test]
    fn what_was_left_behind_is_removed() {
        let name = format!("microcache-draft-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).expect("a folder");
        let page = folder.join("page");
        let (_, written) = Draft::begin(page.clone(), None).expect("begun");
        let left = folder.join("page.0123456789abcdef.microcache.part");
        fs::write(&left, "half").expect("written");
        let other = folder.join("other.0123456789abcdef.microcache.part");
        fs::write(&other, "half").expect("written");
        let (_, second) = Draft::begin(page.clone(), None).expect("begun");
        assert!(written.path.exists() && second.path.exists());
        assert!(!left.exists() && other.exists());
        second.publish().expect("published");
        drop(written);
        let mut names: Vec<_> = fs::read_dir(&folder)
            .expect("it is there")
            .map(|entry| entry.expect("an entry").path())
            .collect();
        names.sort();
        assert_eq!(names, [other, page]);
        fs::remove_dir_all(&folder).expect("removed");
    }
}
