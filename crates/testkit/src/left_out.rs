//! Reports of skipped tests, which need something that this machine lacks.

use std::env;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::process::{Command, Stdio};

/// Reports a skipped test: on standard error, past the capture of output, and in the list that `make test` prints last.
pub fn left_out(what: &str) {
    let line = format!("left out: {what}\n");
    let _ = io::stderr().write_all(line.as_bytes());
    if let Some(list) = env::var_os("LEFT_OUT") {
        let list = OpenOptions::new().create(true).append(true).open(list);
        let written = list.and_then(|mut list| list.write_all(line.as_bytes()));
        written.expect("the list of what was left out can be written");
    }
}

/// Returns true if a program is in the path, and reports what is left out otherwise.
pub fn is_installed(program: &str, what: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let is_there = env::split_paths(&path).any(|folder| folder.join(program).is_file());
    if !is_there {
        left_out(&format!("{what}: {program} is not installed"));
    }
    is_there
}

/// Returns true if the system's Python has a module, and reports what is left out otherwise.
pub fn has_python_module(module: &str, what: &str) -> bool {
    let mut python = Command::new("/usr/bin/python3");
    python.args(["-c", &format!("import {module}")]);
    let imported = python.stderr(Stdio::null()).status();
    let is_there = imported.is_ok_and(|status| status.success());
    if !is_there {
        left_out(&format!(
            "{what}: Python's module {module} is not installed"
        ));
    }
    is_there
}
