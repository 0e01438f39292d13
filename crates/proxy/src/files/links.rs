//! Resolution of symbolic links.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::readlinkat;

use super::path::is_hidden;

/// Most links on one path, as in Linux.
const MAX_LINKS: usize = 40;

/// Resolves the links of a path, to one without links, `..` or hidden parts. `None` if they lead out of the
/// directory, to a hidden file, or nowhere.
///
/// Links may change meanwhile: the path must be opened without following any.
pub(super) fn target(root: &File, path: &Path) -> Option<PathBuf> {
    let mut ahead: Vec<OsString> = Vec::new();
    push(&mut ahead, path)?;
    let (mut found, mut links) = (PathBuf::new(), 0);
    while let Some(name) = ahead.pop() {
        if name == ".." {
            // It is not a link, so this is the parent directory.
            found.pop().then_some(())?;
            continue;
        }
        if is_hidden(name.as_bytes()) {
            return None;
        }
        found.push(&name);
        // Other files and missing ones are handled when the path is opened.
        if let Ok(link) = readlinkat(root, &found, Vec::new()) {
            links += 1;
            found.pop();
            push(&mut ahead, Path::new(OsStr::from_bytes(link.to_bytes())))?;
            if links > MAX_LINKS {
                return None;
            }
        }
    }
    if found.as_os_str().is_empty() {
        found.push(".");
    }
    Some(found)
}

/// Pushes the parts of a path to the stack, the first one on top. `None` for an absolute path.
fn push(ahead: &mut Vec<OsString>, path: &Path) -> Option<()> {
    for part in path.components().rev() {
        match part {
            Component::Normal(name) => ahead.push(name.to_owned()),
            Component::ParentDir => ahead.push("..".into()),
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(())
}
