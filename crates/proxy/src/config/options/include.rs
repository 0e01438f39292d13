//! The option that names further files.

use super::super::option::Form::List;
use super::super::option::{Opt, opt};

/// The option that names further files. It is read before all others.
pub(in crate::config) const INCLUDE: &[Opt<()>] = &[opt("include", List("PATTERN"), "[]")
    .example(r#"["conf.d/*.toml"]"#)
    .help("Further files of the configuration")
    .more(
        "Paths are relative to this file; `*` in a file name stands for any characters, and the files that it matches \
         are read in the order of their names, without hidden ones. Their `[[routes]]` come after those of this file, \
         their `[upstreams]` are added to them, and an option at their top may be set nowhere else. Included files \
         cannot include others.",
    )
    .sets(|(), _, _| {})];
