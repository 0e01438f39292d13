//! Where links lead.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::readlinkat;

use super::path::is_hidden;

/// The most links on one path, as Linux has it.
const MAX_LINKS: usize = 40;

/// The path to which the links on another one lead, without a link, `..` or a hidden part in it. `None` where they lead
/// out of the directory, to what is hidden, or nowhere.
///
/// Links may change meanwhile: whoever opens it has the system refuse those that have come.
pub(super) fn target(root: &File, path: &Path) -> Option<PathBuf> {
    let mut ahead: Vec<OsString> = Vec::new();
    push(&mut ahead, path)?;
    let (mut found, mut links) = (PathBuf::new(), 0);
    while let Some(name) = ahead.pop() {
        if name == ".." {
            // It is no link, so this is the folder above.
            found.pop().then_some(())?;
            continue;
        }
        if is_hidden(name.as_bytes()) {
            return None;
        }
        found.push(&name);
        // What is no link, or is not there, is for the one who opens it to say.
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

/// Puts the parts of a path before those that are still ahead, the first one last. There is none from the root of
/// the system.
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
