//! Folders of tests.

use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use std::{env, process, thread};

/// Pause between attempts to remove a folder.
const PAUSE: Duration = Duration::from_millis(20);

/// Folder of a test, removed on drop with all that is in it.
pub struct Folder(PathBuf);

impl Folder {
    /// Creates an empty folder, which only this user may use.
    pub fn new() -> Self {
        let folder = Self::absent();
        let made = DirBuilder::new().mode(0o700).create(&folder.0);
        made.expect("a new folder");
        folder
    }

    /// Returns a folder that does not exist yet, such as one that a server creates; removed on drop.
    pub fn absent() -> Self {
        Self::absent_in(env::temp_dir())
    }

    /// Returns a folder in `parent` that does not exist yet; removed on drop.
    pub fn absent_in(parent: impl AsRef<Path>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("microcache-test-{}-{number}", process::id());
            let path = parent.as_ref().join(name);
            // Something may be left of a process with the same number that was killed.
            if path.symlink_metadata().is_err() {
                return Self(path);
            }
        }
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Path of the folder as text.
    pub fn as_str(&self) -> &str {
        self.0.to_str().expect("a path that is text")
    }

    /// Path of something in it, as arguments and configurations have it.
    pub fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.as_str())
    }

    /// Writes a file in it, and returns its path.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.file(name);
        fs::write(&path, content).expect("a file");
        path
    }

    /// Paths of all files in it, however deep, in order.
    pub fn files(&self) -> Vec<PathBuf> {
        let (mut files, mut folders) = (Vec::new(), vec![self.0.clone()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    files.push(path);
                }
            }
        }
        files.sort();
        files
    }
}

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A process that was killed may have children that write a moment longer.
        for _ in 0..100 {
            match fs::remove_dir_all(&self.0) {
                Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => thread::sleep(PAUSE),
                _ => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_gone_at_the_end_with_what_is_in_it() {
        let (folder, absent) = (Folder::new(), Folder::absent());
        assert!(folder.path().is_dir() && !absent.path().exists());
        fs::create_dir(folder.path().join("deep")).expect("a folder");
        let files = [folder.write("a", "text"), folder.write("deep/b", "text")];
        assert_eq!(folder.files(), files.map(PathBuf::from));
        let path = folder.path().to_owned();
        drop(folder);
        assert!(!path.exists());
    }
}
