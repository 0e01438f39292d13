//! A script, as CGI names it.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A script to run, with the variables that name it (RFC 3875 §4.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::upstream) struct Script {
    root: Vec<u8>,
    name: Vec<u8>,
    path_info: Vec<u8>,
}

impl Script {
    /// The script of this decoded path below the document root, with the path behind it.
    pub(in crate::upstream) fn new(root: &Path, name: Vec<u8>, path_info: Vec<u8>) -> Self {
        let root = root.as_os_str().as_bytes();
        Self {
            root: root.strip_suffix(b"/").unwrap_or(root).to_owned(),
            name,
            path_info,
        }
    }

    /// `DOCUMENT_ROOT`
    pub(in crate::upstream) fn root(&self) -> &[u8] {
        &self.root
    }

    /// `SCRIPT_NAME`, with a slash first.
    pub(in crate::upstream) fn name(&self) -> &[u8] {
        &self.name
    }

    /// `PATH_INFO`
    pub(in crate::upstream) fn path_info(&self) -> &[u8] {
        &self.path_info
    }
}
