//! A temporary file in the directory of its final name, renamed when it is complete.
//!
//! The writer holds a lock on it, which the system releases when the process ends in any way. So the next
//! writer of the same file recognises the remains of a killed one, and removes them.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions, Permissions, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// Bytes of the file's name in the draft's name, which must not be too long.
const NAME: usize = 200;
/// Suffix of a draft's name, behind a random number.
const ENDING: &[u8] = b".microcache.part";
/// Limit of directory entries up to which remains are searched for.
const LOOKED_AT: usize = 10_000;
/// Attempts to create a draft, in case another process removes it as remains before it is locked.
const TRIES: usize = 10;

/// A draft. Dropped before it is published, it is removed.
pub(super) struct Draft {
    path: PathBuf,
    becomes: PathBuf,
    /// Open for as long as the lock is needed.
    _lock: File,
}

impl Draft {
    /// Creates a draft with the permissions of the file that it replaces, or with the default ones.
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

    /// Renames the draft to its final name. Its content has been synced before, and the directory is synced
    /// where possible.
    pub(super) fn publish(self) -> io::Result<()> {
        fs::rename(&self.path, &self.becomes)?;
        let _ = File::open(folder_of(&self.becomes)).and_then(|folder| folder.sync_all());
        Ok(())
    }
}

/// Removes the draft, unless it was published.
impl Drop for Draft {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Creates a file under an unused name, and locks it.
fn create(becomes: &Path, mode: u32) -> io::Result<(File, PathBuf)> {
    for _ in 0..TRIES {
        // Process ids are reused, and a draft of a killed process may still be there.
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
            // Without locks, nothing is considered abandoned.
            Err(TryLockError::Error(_)) => return Ok((file, path)),
            Ok(()) if file.metadata()?.nlink() > 0 => return Ok((file, path)),
            // Another process removed it before it was locked.
            Ok(()) | Err(TryLockError::WouldBlock) => {}
        }
    }
    Err(ErrorKind::ResourceBusy.into())
}

/// Removes abandoned drafts of this file.
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
    // Opening a pipe must not block.
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

/// Returns true if this is the name of a draft whose name begins like this.
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
    use microcache_testkit::Folder;

    use super::*;

    #[test]
    fn drafts_are_recognized_by_their_names() {
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

    /// Locked drafts and other files stay; only abandoned drafts are removed.
    #[test]
    fn leftover_drafts_are_removed() {
        let folder = Folder::new();
        let page = folder.path().join("page");
        let (_, written) = Draft::begin(page.clone(), None).expect("begun");
        let [left, other] = ["page", "other"].map(|page| {
            let name = format!("{page}.0123456789abcdef.microcache.part");
            PathBuf::from(folder.write(&name, "half"))
        });
        let (_, second) = Draft::begin(page.clone(), None).expect("begun");
        assert!(written.path.exists() && second.path.exists());
        assert!(!left.exists() && other.exists());
        second.publish().expect("published");
        drop(written);
        assert_eq!(folder.files(), [other, page]);
    }
}
