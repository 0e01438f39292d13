//! Tests that this machine does not allow.

use std::env;
use std::fs::OpenOptions;
use std::io::{self, Write};

/// Reports it past the capture of a test's output, and in the list with which `make test` ends.
pub fn left_out(what: &str) {
    let line = format!("left out: {what}\n");
    let _ = io::stderr().write_all(line.as_bytes());
    if let Some(list) = env::var_os("LEFT_OUT") {
        let list = OpenOptions::new().create(true).append(true).open(list);
        let written = list.and_then(|mut list| list.write_all(line.as_bytes()));
        written.expect("the list of what was left out can be written");
    }
}
