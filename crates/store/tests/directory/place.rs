//! Directory of a test.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use microcache_store::{Claim, Directory, DirectorySettings, EntryId, GetOutcome, TierError};
use microcache_testkit::{Folder, WAIT_TIMEOUT};
use tokio::runtime::Handle;

use crate::shared_records::Looked;
pub(crate) use crate::shared_records::{entry, id, mine};

pub(crate) const LONG: Duration = Duration::from_mins(10);
pub(crate) const HOLD: Duration = Duration::from_secs(5);
const MIB: u64 = 1024 * 1024;

pub(crate) struct Place {
    pub(crate) directory: PathBuf,
    _folder: Option<Folder>,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = Folder::absent();
        Self {
            directory: folder.path().to_owned(),
            _folder: Some(folder),
        }
    }

    /// Handle of another process.
    pub(crate) fn at(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            _folder: None,
        }
    }

    pub(crate) fn settings(&self) -> DirectorySettings {
        DirectorySettings {
            pause: Duration::ZERO,
            read_deadline: WAIT_TIMEOUT,
            write_deadline: WAIT_TIMEOUT,
            ..DirectorySettings::new(&self.directory, 64 * MIB)
        }
    }

    pub(crate) fn open(&self) -> Arc<Directory> {
        open_with(self.settings())
    }

    /// Root folder of the tier.
    pub(crate) fn home(&self) -> PathBuf {
        self.directory.join("microcache-shared-v1")
    }

    /// Path of the record of an id.
    pub(crate) fn file(&self, id: EntryId) -> PathBuf {
        let name = id.to_string();
        self.home().join(&name[..2]).join(name)
    }

    pub(crate) fn claim(&self, id: EntryId) -> PathBuf {
        self.file(id).with_extension("claim")
    }

    /// Names of all files in it.
    pub(crate) fn names(&self) -> Vec<String> {
        let folders = fs::read_dir(self.home()).expect("it is there");
        let files = folders.filter_map(|folder| fs::read_dir(folder.ok()?.path()).ok());
        files
            .flatten()
            .map(|file| {
                file.expect("a file")
                    .file_name()
                    .into_string()
                    .expect("text")
            })
            .collect()
    }
}

pub(crate) fn open_with(settings: DirectorySettings) -> Arc<Directory> {
    Directory::open(settings, &Handle::current()).expect("a directory")
}

/// Head and body of a hit.
pub(crate) fn found(got: Result<impl Looked, TierError>) -> Option<(Vec<u8>, Vec<u8>)> {
    got.expect("a directory that works").parts()
}

pub(crate) fn is_unstorable(got: &Result<GetOutcome, TierError>) -> bool {
    matches!(got, Ok(GetOutcome::Missing(Claim::Unstorable)))
}

pub(crate) fn is_theirs(got: &Result<GetOutcome, TierError>) -> bool {
    matches!(got, Ok(GetOutcome::Missing(Claim::HeldElsewhere)))
}
