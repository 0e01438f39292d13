//! Options of a route that answers from a directory.

use std::path::PathBuf;

use super::super::option::{About, Form, Opt, Unset};
use super::route::RouteDraft;

/// Which files, and how.
pub(in crate::config) const FILES: &[Opt<RouteDraft>] = &[
    Opt {
        about: About {
            name: "root",
            form: Form::Text("DIRECTORY"),
            unset: Unset::Says("an upstream group answers"),
            example: r#""/srv""#,
            help: "The directory whose files are the answers, instead of an upstream group",
            more: "What is answered is kept as the route says, and the file is looked at again when it expires. Nothing \
                   outside the directory is ever sent: neither `..` nor a link leads out of it. Hidden files are not sent, \
                   but for `/.well-known`. The query counts only if `key` says so.",
        },
        set: |r, v, m| r.root = m.ok(v.parse(folder)).or(r.root.take()),
    },
    Opt {
        about: About {
            name: "index",
            form: Form::Text("FILE"),
            unset: Unset::Is(r#""index.html""#),
            example: r#""index.html""#,
            help: "The file that stands for a folder of `root`",
            more: "A folder without one is a 404. A url of a folder without its last slash is redirected to the one that has it.",
        },
        set: |r, v, m| m.put(&mut r.index, v.parse(file_name)),
    },
    Opt {
        about: About {
            name: "precompressed",
            form: Form::Switch,
            unset: Unset::Is("false"),
            example: "true",
            help: "Send `FILE.br`, `FILE.zst` or `FILE.gz` of `root` to those who accept it",
            more: "The first of these that lies beside the file and is accepted.",
        },
        set: |r, v, m| m.put(&mut r.precompressed, v.switch()),
    },
];

fn folder(text: &str) -> Result<PathBuf, String> {
    let folder = PathBuf::from(text);
    match std::fs::metadata(&folder) {
        Ok(about) if about.is_dir() => Ok(folder),
        Ok(_) => Err("not a directory".to_owned()),
        Err(error) => Err(format!("no directory that can be used: {error}")),
    }
}

fn file_name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.starts_with('.') || text.contains('/') {
        return Err("write the name of a file, such as \"index.html\"".to_owned());
    }
    Ok(text.to_owned())
}
