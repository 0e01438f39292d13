//! Options of a route with static files.

use std::path::PathBuf;

use super::super::option::Form::{Switch, Text};
use super::super::option::{Opt, opt, optional};
use super::route::RouteDraft;

/// Options of static files.
pub(in crate::config) const FILES: &[Opt<RouteDraft>] = &[
    optional("root", Text("DIRECTORY"), "/srv")
        .unset("none: an upstream group answers")
        .help("Directory with static files, served instead of an upstream group")
        .more(
            "Files are cached as the route says and revalidated when they expire. Nothing outside \
             the directory is served: neither `..` nor a symbolic link leads out of it. Hidden \
             files are not served, except `/.well-known`. The query is part of the key only if \
             `key` says so.",
        )
        .sets(|r, v, m| r.root = m.ok(v.parse(folder)).or(r.root.take())),
    opt("index", Text("FILE"), "index.html")
        .help("Index file of a directory")
        .more(
            "A directory without one is a 404. A URL of a directory without a final slash is \
             redirected to the one with it.",
        )
        .sets(|r, v, m| m.put(&mut r.index, v.parse(file_name))),
    opt("precompressed", Switch, "false")
        .example("true")
        .help("Use of precompressed `FILE.br`, `FILE.zst` or `FILE.gz` from `root`")
        .more("The first of these that exists and that the client accepts is sent.")
        .sets(|r, v, m| m.put(&mut r.precompressed, v.switch())),
];

fn folder(text: &str) -> Result<PathBuf, String> {
    let folder = PathBuf::from(text);
    match std::fs::metadata(&folder) {
        Ok(about) if about.is_dir() => Ok(folder),
        Ok(_) => Err("not a directory".to_owned()),
        Err(error) => Err(format!("cannot use the directory: {error}")),
    }
}

fn file_name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.starts_with('.') || text.contains('/') {
        return Err("write a file name, such as \"index.html\"".to_owned());
    }
    Ok(text.to_owned())
}
