//! A cache of a test's own, and the commands that use it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::support::Folder;

const BINARY: &str = env!("CARGO_BIN_EXE_microcache");

pub(crate) struct Place(Folder);

/// How a command has ended, and what it has printed.
pub(crate) struct Printed {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self(Folder::new())
    }

    pub(crate) fn folder(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// Where the cache is.
    pub(crate) fn cache(&self) -> PathBuf {
        self.path("cache")
    }

    /// Without a cache, and without what the machine says of the web.
    pub(crate) fn bare(&self) -> Command {
        self.fetching(Command::new(BINARY))
    }

    fn fetching(&self, mut command: Command) -> Command {
        command.arg("fetch").current_dir(self.folder());
        for name in [
            "HOME",
            "XDG_CACHE_HOME",
            "http_proxy",
            "HTTP_PROXY",
            "HTTPS_PROXY",
            "https_proxy",
            "ALL_PROXY",
            "all_proxy",
            "NO_PROXY",
        ] {
            command.env_remove(name);
        }
        command.env("no_proxy", "*");
        command
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        self.with_cache(self.bare(), arguments)
    }

    fn with_cache(&self, mut command: Command, arguments: &[&str]) -> Command {
        command.arg("--cache").arg(self.cache()).args(arguments);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Printed {
        printed(self.command(arguments).output().expect("it runs"))
    }

    pub(crate) fn start(&self, arguments: &[&str]) -> Child {
        // Signals that are ignored where the tests run (`nohup`, a background job) would be ignored here as well.
        let mut command = Command::new("env");
        command.args(["--default-signal=HUP,INT,TERM", BINARY]);
        let mut command = self.with_cache(self.fetching(command), arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("it runs")
    }

    /// The names of all files that are in the cache.
    pub(crate) fn files(&self) -> Vec<String> {
        let home = self.cache().join("microcache-shared-v1");
        let folders = fs::read_dir(home).into_iter().flatten();
        let files = folders.filter_map(|folder| fs::read_dir(folder.ok()?.path()).ok());
        let name = |file: std::io::Result<fs::DirEntry>| file.ok()?.file_name().into_string().ok();
        files.flatten().filter_map(name).collect()
    }
}

pub(crate) fn printed(output: Output) -> Printed {
    Printed {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).expect("UTF-8"),
        err: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}
