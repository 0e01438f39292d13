//! One option: everything there is to know about it, in one place.

use super::mistake::Mistakes;
use super::options;
use super::raw::Value;

/// One option of a `T`.
pub(super) struct Opt<T: 'static> {
    /// What people read about it.
    pub(super) about: About,
    /// Reads the value, and sets it or notes what is wrong.
    pub(super) set: fn(&mut T, &Value, &mut Mistakes),
}

/// What people read about an option.
#[derive(Clone, Copy, Debug)]
pub(super) struct About {
    /// Its name in the file. The flag is the same with dashes.
    pub(super) name: &'static str,
    /// The form of its value.
    pub(super) form: Form,
    /// What holds without it.
    pub(super) unset: Unset,
    /// A value as the file has it.
    pub(super) example: &'static str,
    /// One line.
    pub(super) help: &'static str,
    /// What else is worth knowing.
    pub(super) more: &'static str,
}

/// The form of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `"1s"`
    Duration,
    /// `"64MiB"`
    Size,
    /// `4`
    Number,
    /// `true`
    Switch,
    /// Text; the word says what it means.
    Text(&'static str),
    /// One text or a list of them.
    List(&'static str),
    /// Something only a file can say; the words describe it.
    Table(&'static str),
}

/// What holds when an option is not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unset {
    /// This value, as the file would have it.
    Is(&'static str),
    /// What these words say.
    Says(&'static str),
}

/// A flag of the command line.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// The option's name.
    pub option: &'static str,
    /// What follows the flag.
    pub takes: Takes,
    /// One line of help.
    pub help: &'static str,
    /// The default, in words.
    pub default: &'static str,
    /// Whether the short help names it.
    pub common: bool,
}

/// What follows a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// Nothing.
    Nothing,
    /// `true` or `false`.
    Truth,
    /// A number.
    Number,
    /// One value, called so.
    One(&'static str),
    /// One value, and the flag may be repeated.
    Many(&'static str),
}

/// The flags of the command line: every top-level option that fits on one line.
pub fn flags() -> impl Iterator<Item = Flag> {
    options::top_level().into_iter().filter_map(|about| {
        let takes = match about.form {
            Form::Duration => Takes::One("DURATION"),
            Form::Size => Takes::One("SIZE"),
            Form::Number => Takes::Number,
            // What is on without it needs a word to be turned off.
            Form::Switch if about.unset == Unset::Is("true") => Takes::Truth,
            Form::Switch => Takes::Nothing,
            Form::Text(name) => Takes::One(name),
            Form::List(name) => Takes::Many(name),
            Form::Table(_) => return None,
        };
        Some(Flag {
            option: about.name,
            takes,
            help: about.help,
            default: about.unset.words(),
            common: options::COMMON.contains(&about.name),
        })
    })
}

impl Unset {
    /// As Markdown.
    pub(super) fn marked(self) -> String {
        match self {
            Self::Is(value) => format!("`{value}`"),
            Self::Says(words) => words.to_owned(),
        }
    }

    /// As text.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Is(words) | Self::Says(words) => words,
        }
    }
}
