//! Ownership checks of directories. A directory that other users can write to is not trusted: they could
//! plant links, records or a journal.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, fstat};
use rustix::process::geteuid;

/// Reasons why a directory is not trusted.
#[derive(Debug, thiserror::Error)]
pub enum OwnershipError {
    /// Its owner cannot be determined.
    #[error("{} cannot be used: {source}", directory.display())]
    Unusable {
        /// The directory.
        directory: PathBuf,
        /// Error of the system call.
        source: io::Error,
    },
    /// It belongs neither to this user nor to root.
    #[error("{} belongs to another user (uid {owner}; running as uid {us}): choose a directory owned by this user", directory.display())]
    Foreign {
        /// The directory.
        directory: PathBuf,
        /// Its owner's user id.
        owner: u32,
        /// User id of this process.
        us: u32,
    },
    /// It is writable by its group or by everyone.
    #[error("{0} is writable by other users: run `chmod go-w {0}`, or choose a new directory below it", directory.display())]
    Writable {
        /// The directory.
        directory: PathBuf,
    },
}

/// Checks that an open directory belongs to this user or to root, and is not writable by others. `path` is
/// used in messages only.
///
/// # Errors
///
/// [`OwnershipError`] if it is not trusted.
pub fn check(path: &Path, directory: impl AsFd) -> Result<(), OwnershipError> {
    let stat = fstat(directory).map_err(|error| OwnershipError::Unusable {
        directory: path.into(),
        source: error.into(),
    })?;
    judge(path, stat.st_uid, stat.st_mode, geteuid().as_raw())
}

fn judge(path: &Path, owner: u32, mode: u32, us: u32) -> Result<(), OwnershipError> {
    let directory = path.into();
    if owner != us && owner != 0 {
        return Err(OwnershipError::Foreign {
            directory,
            owner,
            us,
        });
    }
    // The sticky bit prevents removals by other users, but not planted files.
    if Mode::from_raw_mode(mode).intersects(Mode::WGRP | Mode::WOTH) {
        return Err(OwnershipError::Writable { directory });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use microcache_testkit::Folder;

    use super::*;

    fn verdict(owner: u32, mode: u32, us: u32) -> String {
        let judged = judge(Path::new("/d"), owner, mode, us);
        judged.map_or_else(|error| error.to_string(), |()| "trusted".to_owned())
    }

    #[test]
    fn a_directory_is_trusted_if_no_one_else_may_write_to_it() {
        for (owner, mode, us) in [(7, 0o700, 7), (7, 0o755, 7), (0, 0o755, 7), (0, 0o2755, 0)] {
            assert_eq!(verdict(owner, mode, us), "trusted", "{owner} {mode:o} {us}");
        }
        let foreign = "/d belongs to another user (uid 8; running as uid 7): choose a directory owned by this user";
        assert_eq!(verdict(8, 0o700, 7), foreign);
        assert!(
            verdict(8, 0o777, 0)
                .starts_with("/d belongs to another user (uid 8; running as uid 0)")
        );
        let open = "/d is writable by other users: run `chmod go-w /d`, or choose a new directory below it";
        for (owner, mode, us) in [(7, 0o770, 7), (7, 0o702, 7), (0, 0o1777, 7), (0, 0o2777, 0)] {
            assert_eq!(verdict(owner, mode, us), open, "{owner} {mode:o} {us}");
        }
    }

    #[test]
    fn the_open_directory_is_checked() {
        let folder = Folder::new();
        let path = folder.path();
        for (mode, is_trusted) in [(0o700, true), (0o777, false), (0o755, true)] {
            fs::set_permissions(path, Permissions::from_mode(mode)).expect("ours");
            let open = File::open(path).expect("a directory");
            assert_eq!(check(path, &open).is_ok(), is_trusted, "{mode:o}");
        }
    }
}
