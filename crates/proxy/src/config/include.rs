//! The files of a configuration: the main one, and those that its `include` names.

use std::io;
use std::path::{Path, PathBuf};

use microcache_policy::glob;

use super::environment::Variable;
use super::mistake::{Mistake, Mistakes};
use super::place::Place;
use super::raw::{self, Value};
use super::texts::Texts;

/// Limit of included files.
const MAX_FILES: usize = 1_000;

/// The files of a configuration as one document.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) value: Value,
    pub(super) texts: Texts,
    /// The patterns of `include`, relative to the main file or absolute.
    pub(super) include: Vec<PathBuf>,
}

impl Document {
    /// Reads the text of the main file, and the files that it includes. Environment variables are replaced.
    pub(super) fn read(name: &str, text: &str, mistakes: &mut Mistakes) -> Self {
        let mut texts = Texts::default();
        let value = parse(name, text, &mut texts, mistakes);
        let mut document = Self {
            value,
            texts,
            include: Vec::new(),
        };
        let patterns = document.value.entry("include").cloned();
        let main = Path::new(name);
        let mut read = vec![main.to_owned()];
        for item in patterns.iter().flat_map(Value::items) {
            let Some(pattern) = mistakes.ok(item.text()) else {
                continue;
            };
            let pattern = main.with_file_name(pattern);
            match matching(&pattern) {
                Ok(files) => {
                    for file in files {
                        if !read.contains(&file) {
                            document.add(&file, &item.place, mistakes);
                            read.push(file);
                        }
                    }
                }
                Err(error) => mistakes.note(unreadable(&pattern, &error, &item.place)),
            }
            document.include.push(pattern);
        }
        document
    }

    fn add(&mut self, file: &Path, place: &Place, mistakes: &mut Mistakes) {
        match std::fs::read_to_string(file) {
            Ok(text) => {
                let name = file.display().to_string();
                let included = parse(&name, &text, &mut self.texts, mistakes);
                if let Some(value) = included.entry("include") {
                    let what = "an included file cannot include further files";
                    mistakes.note(
                        Mistake::new(&value.place, what)
                            .remedy("name them in the `include` of the main file"),
                    );
                }
                self.value.merge(included, &self.texts, mistakes);
            }
            Err(error) => mistakes.note(unreadable(file, &error, place)),
        }
    }
}

fn unreadable(file: &Path, error: &io::Error, place: &Place) -> Mistake {
    Mistake::new(place, format!("cannot read {}: {error}", file.display()))
}

fn parse(name: &str, text: &str, texts: &mut Texts, mistakes: &mut Mistakes) -> Value {
    let start = texts.add(name, text);
    let mut value = raw::document(text, start, mistakes);
    value.each_text(
        &mut |text, place| match text.expand(&|name: &str| std::env::var(name).ok()) {
            Ok(used) => {
                for variable in used {
                    texts.note(Variable::new(variable, place));
                }
            }
            Err(error) => {
                let reference = error.reference();
                let mistake = Mistake::new(&texts.narrowed(place, &reference), error.to_string());
                mistakes.note(mistake.remedy(error.remedy()));
                mistakes.mute(place);
            }
        },
    );
    value
}

/// Returns the files that a pattern of `include` matches, sorted by name: none if there is no such directory. A name
/// without `*` matches itself, even if there is no such file.
pub(super) fn matching(pattern: &Path) -> io::Result<Vec<PathBuf>> {
    let name = pattern.file_name().unwrap_or_default().to_string_lossy();
    if !name.contains('*') {
        return Ok(vec![pattern.to_owned()]);
    }
    let folder = pattern
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let mut files = Vec::new();
    let entries = match std::fs::read_dir(folder.unwrap_or(Path::new("."))) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(files),
        entries => entries?,
    };
    for entry in entries {
        let found = entry?.file_name();
        let text = found.to_string_lossy();
        // Editors and packages keep other versions of a file as hidden ones.
        if !text.starts_with('.') && glob::matches(name.as_bytes(), text.as_bytes()) {
            files.push(pattern.with_file_name(&found));
        }
        if files.len() > MAX_FILES {
            return Err(io::Error::other(format!("more than {MAX_FILES} files")));
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests;
