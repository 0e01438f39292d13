//! Options of a route with static files.

use std::path::PathBuf;

use super::super::mistake::{Mistake, Mistakes};
use super::super::option::Form::{Switch, Table, Text};
use super::super::option::{Opt, opt, optional};
use super::super::raw::Value;
use super::route::{Otherwise, RouteDraft};
use crate::files::NamedDirectory;

const OTHERWISE: &[(&str, Otherwise)] = &[
    ("404", Otherwise::NotFound),
    ("application", Otherwise::Application),
];

/// Options of static files.
pub(in crate::config) const FILES: &[Opt<RouteDraft>] = &[
    optional("root", Text("DIRECTORY"), "/srv")
        .unset("none: an upstream group answers")
        .help("Directory with static files, served instead of an upstream group")
        .more(
            "Files are cached as the route says and revalidated when they expire. Nothing outside \
             the directory is served: neither `..` nor a symbolic link leads out of it. Hidden \
             files are not served, except `/.well-known`, nor are sources and backups: `.php`, \
             `.phtml`, `.phar`, `.inc`, `.sql`, `.bak`, `.swp`, `~`. The query is part of the key only if \
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
    opt("otherwise", Text("404|application"), "404")
        .example("application")
        .help("Answer where `root` has no such file: `404`, or the application's")
        .more(
            "With `application`, as with `try_files` of nginx: a GET of a file that exists is \
             answered from `root`, a directory with its index file, and everything else by the \
             upstream group of the route.",
        )
        .sets(|r, v, m| m.put(&mut r.otherwise, v.choice(OTHERWISE))),
    opt("precompressed", Switch, "false")
        .example("true")
        .help("Use of precompressed `FILE.br`, `FILE.zst` or `FILE.gz` from `root`")
        .more("The first of these that exists and that the client accepts is sent.")
        .sets(|r, v, m| m.put(&mut r.precompressed, v.switch())),
    optional(
        "x_accel",
        Table("path prefixes and directories"),
        r#"{ "/protected/" = "/srv" }"#,
    )
    .help("Directories with files that the application names in X-Accel-Redirect")
    .more(
        "The application decides who may have a file and answers with `X-Accel-Redirect: \
         /protected/a.pdf`, or with `X-Sendfile: /srv/a.pdf`; the file is sent with its fields. \
         The prefix is no URL of the site. A path outside these directories is a 502. What `root` \
         never sends is not sent here either.",
    )
    .sets(set_x_accel),
];

fn set_x_accel(draft: &mut RouteDraft, value: &Value, mistakes: &mut Mistakes) {
    if mistakes.ok(value.table()).is_none() {
        return;
    }
    draft.route.x_accel.clear();
    for (key, value) in value.named() {
        let prefix = key.name.clone();
        if !prefix.starts_with('/') || !prefix.ends_with('/') {
            let what = format!("`{prefix}` does not begin and end with a slash");
            mistakes.note(Mistake::new(&key.place, what).remedy("write \"/protected/\""));
        } else if let Some(folder) = mistakes.ok(value.parse(folder)) {
            draft.route.x_accel.push(NamedDirectory { prefix, folder });
        }
    }
}

pub(super) fn folder(text: &str) -> Result<PathBuf, String> {
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
