//! The storage of certificates, keys and the account: files readable by this user only, each written atomically.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use microcache_proxy::config::AcmeConfig;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// The file of the account.
pub(super) const ACCOUNT: &str = "account.json";
/// The maximum size of a file.
const LARGEST_FILE: u64 = 256 * 1024;
/// The maximum length of an authority's directory name.
const LONGEST_NAME: usize = 200;

/// The directory of one authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Storage {
    folder: PathBuf,
}

/// A lock against other processes with the same directory.
pub(super) struct Lock(#[expect(dead_code, reason = "the file is what holds it")] File);

impl Storage {
    /// Opens the storage of an authority. Each has its own directory, so that test certificates stay apart.
    pub(super) fn of(config: &AcmeConfig) -> Self {
        let bare = config.directory.trim_start_matches("https://");
        let plain = |c: char| {
            if c.is_ascii_alphanumeric() || c == '.' || c == '-' {
                c
            } else {
                '_'
            }
        };
        let name: String = bare.chars().take(LONGEST_NAME).map(plain).collect();
        Self {
            folder: config.storage.join(name.trim_start_matches('.')),
        }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Creates the directory, for this user only.
    pub(super) fn prepare(&self) -> io::Result<()> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder)?;
        if fs::metadata(&self.folder)?.permissions().mode() & 0o077 != 0 {
            fs::set_permissions(&self.folder, Permissions::from_mode(0o700))?;
        }
        Ok(())
    }

    /// Reads the certificate of a name with its key, if there is one.
    pub(super) fn read(&self, name: &str) -> io::Result<Option<String>> {
        self.read_file(&certificate(name))
    }

    /// Writes the certificate of a name with its key.
    pub(super) fn write(&self, name: &str, pem: &str) -> io::Result<()> {
        self.write_file(&certificate(name), pem)
    }

    pub(super) fn read_file(&self, file: &str) -> io::Result<Option<String>> {
        let open = match File::open(self.folder.join(file)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            open => open?,
        };
        let mut text = String::new();
        open.take(LARGEST_FILE).read_to_string(&mut text)?;
        Ok(Some(text))
    }

    /// Replaces a file. The caller holds the lock of its subject.
    pub(super) fn write_file(&self, file: &str, text: &str) -> io::Result<()> {
        let beside = self.folder.join(format!(".{file}.new"));
        // A file left by a killed process may have any mode.
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let open = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&beside);
        let written = open.and_then(|mut open| {
            open.write_all(text.as_bytes())?;
            open.sync_all()
        });
        if let Err(error) = written {
            let _ = fs::remove_file(&beside);
            return Err(error);
        }
        fs::rename(&beside, self.folder.join(file))?;
        File::open(&self.folder)?.sync_all()
    }

    pub(super) fn remove_file(&self, file: &str) -> io::Result<()> {
        fs::remove_file(self.folder.join(file))
    }

    /// Tests whether a certificate could be stored now. Otherwise none is requested, since authorities limit their
    /// number.
    pub(super) fn probe(&self, name: &str) -> io::Result<()> {
        let file = format!("{name}.probe");
        // The size of a certificate and its chain.
        self.write_file(&file, &" ".repeat(16 * 1024))?;
        self.remove_file(&file)
    }

    /// Takes a lock against other processes; `None` if one of them holds it.
    pub(super) fn lock(&self, what: &str) -> io::Result<Option<Lock>> {
        let path = self.folder.join(format!("{what}.lock"));
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Lock(file))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

fn certificate(name: &str) -> String {
    format!("{name}.pem")
}

#[cfg(test)]
mod tests {
    use microcache_testkit::Folder;

    use super::*;

    fn storage_in(folder: &Folder) -> Storage {
        Storage {
            folder: folder.path().join("authority"),
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn files_are_complete_and_readable_by_the_owner_only() {
        let folder = Folder::absent();
        let storage = storage_in(&folder);
        storage.prepare().unwrap();
        assert_eq!(mode(&storage.folder), 0o700);
        fs::set_permissions(&storage.folder, Permissions::from_mode(0o755)).unwrap();
        storage.prepare().unwrap();
        assert_eq!(mode(&storage.folder), 0o700);
        assert_eq!(storage.read("a.example").unwrap(), None);
        // An earlier process was killed during a write.
        fs::write(storage.folder.join(".a.example.pem.new"), "half").unwrap();
        storage.write("a.example", "first").unwrap();
        storage.write("a.example", "second").unwrap();
        assert_eq!(
            storage.read("a.example").unwrap().as_deref(),
            Some("second")
        );
        let file = storage.folder.join("a.example.pem");
        assert_eq!(mode(&file), 0o600);
        storage.probe("a.example").unwrap();
        let names = fs::read_dir(&storage.folder).unwrap();
        assert_eq!(names.count(), 1, "nothing else is left");
    }

    #[test]
    fn one_process_at_a_time_does_the_same() {
        let folder = Folder::absent();
        let storage = storage_in(&folder);
        storage.prepare().unwrap();
        let lock = storage.lock("a.example").unwrap().expect("it is free");
        assert!(storage.lock("a.example").unwrap().is_none());
        assert!(storage.lock("b.example").unwrap().is_some());
        drop(lock);
        assert!(storage.lock("a.example").unwrap().is_some());
    }

    #[test]
    fn a_failed_write_keeps_the_previous_file() {
        let folder = Folder::absent();
        let storage = storage_in(&folder);
        storage.prepare().unwrap();
        storage.write("a.example", "first").unwrap();
        // Nothing can be put in its place.
        fs::create_dir(storage.folder.join(".a.example.pem.new")).unwrap();
        assert!(storage.write("a.example", "second").is_err());
        assert_eq!(storage.read("a.example").unwrap().as_deref(), Some("first"));
    }
}
