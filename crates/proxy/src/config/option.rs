//! An option of the configuration: name, form, default, help and setter in one place.

use super::mistake::Mistakes;
use super::options;
use super::raw::Value;

/// One option of a `T`: its description, and the function that reads it.
pub(super) struct Opt<T: 'static> {
    pub(super) about: About,
    /// Reads the value and sets it, or notes a mistake.
    pub(super) set: Setter<T>,
}

/// The function that reads an option's value into a `T`.
type Setter<T> = fn(&mut T, &Value, &mut Mistakes);

/// The description of an option.
#[derive(Clone, Copy, Debug)]
pub(super) struct About {
    /// The name in the file. The flag is the same with dashes.
    pub(super) name: &'static str,
    /// The form of the value.
    pub(super) form: Form,
    /// The default.
    pub(super) unset: Unset,
    /// A value, without the quotes of text.
    example: &'static str,
    /// One line: a noun phrase of at most 80 characters, in operators' terms.
    pub(super) help: &'static str,
    /// Further explanation, in sentences.
    pub(super) more: &'static str,
}

/// Begins an option with a default, which is its example too. Text is given without its quotes.
pub(super) const fn opt(name: &'static str, form: Form, default: &'static str) -> About {
    About {
        name,
        form,
        unset: Unset::Is(default),
        example: default,
        help: "",
        more: "",
    }
}

/// Begins an option without a default value.
pub(super) const fn optional(name: &'static str, form: Form, example: &'static str) -> About {
    About {
        name,
        form,
        unset: Unset::Says("none"),
        example,
        help: "",
        more: "",
    }
}

impl About {
    /// Describes the behaviour without the option, in place of "none".
    pub(super) const fn unset(self, words: &'static str) -> Self {
        Self {
            unset: Unset::Says(words),
            ..self
        }
    }

    /// Sets an example other than the default.
    pub(super) const fn example(self, example: &'static str) -> Self {
        Self { example, ..self }
    }

    /// Sets the line of help.
    pub(super) const fn help(self, help: &'static str) -> Self {
        Self { help, ..self }
    }

    /// Sets the further explanation.
    pub(super) const fn more(self, more: &'static str) -> Self {
        Self { more, ..self }
    }

    /// Completes the option with the function that reads it.
    pub(super) const fn sets<T>(self, set: Setter<T>) -> Opt<T> {
        Opt { about: self, set }
    }

    /// Returns the example in the syntax of the file.
    pub(super) fn example_in_file(&self) -> String {
        self.form.in_file(self.example)
    }

    /// Returns the default in the syntax of the file, or in words where there is no value.
    pub(super) fn default_in_file(&self) -> String {
        match self.unset {
            Unset::Is(value) => self.form.in_file(value),
            Unset::Says(words) => words.to_owned(),
        }
    }
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
    /// Text; the word is its placeholder.
    Text(&'static str),
    /// One text or a list of them.
    List(&'static str),
    /// A table, in files only; the words describe it.
    Table(&'static str),
}

impl Form {
    /// Returns a value in the syntax of the file: text gets its quotes.
    fn in_file(self, value: &str) -> String {
        match self {
            Self::Duration | Self::Size | Self::Text(_) => format!("{value:?}"),
            Self::Number | Self::Switch | Self::List(_) | Self::Table(_) => value.to_owned(),
        }
    }
}

/// The default of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unset {
    /// This value, without the quotes of text.
    Is(&'static str),
    /// A description, where no single value is the default.
    Says(&'static str),
}

/// A flag of the command line.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// The option's name.
    pub option: &'static str,
    /// The heading of the flag in the help.
    pub group: &'static str,
    /// The form of the flag's value.
    pub takes: Takes,
    /// One line of help.
    pub help: &'static str,
    /// The default, in words.
    pub default: &'static str,
    /// The help in few words, if the short help lists the flag.
    pub brief: Option<&'static str>,
}

/// The form of a flag's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// No value.
    Nothing,
    /// `true` or `false`.
    Truth,
    /// A number.
    Number,
    /// One value with this placeholder.
    One(&'static str),
    /// One value with this placeholder; the flag may be repeated.
    Many(&'static str),
}

/// Returns the flags of the command line: every top-level option that fits on one line, by group.
pub fn flags() -> impl Iterator<Item = Flag> {
    let groups = options::groups().into_iter();
    groups.flat_map(|(group, abouts)| {
        abouts
            .into_iter()
            .filter_map(move |about| flag(group, &about))
    })
}

fn flag(group: &'static str, about: &About) -> Option<Flag> {
    let takes = match about.form {
        Form::Duration => Takes::One("DURATION"),
        Form::Size => Takes::One("SIZE"),
        Form::Number => Takes::Number,
        // A switch that is on by default needs a value to be turned off.
        Form::Switch if about.unset == Unset::Is("true") => Takes::Truth,
        Form::Switch => Takes::Nothing,
        Form::Text(name) => Takes::One(name),
        Form::List(name) => Takes::Many(name),
        Form::Table(_) => return None,
    };
    Some(Flag {
        option: about.name,
        group,
        takes,
        help: about.help,
        default: about.unset.words(),
        brief: options::COMMON
            .iter()
            .find_map(|(name, brief)| (*name == about.name).then_some(*brief)),
    })
}

impl Unset {
    /// Returns the value or the description, as text.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Is(words) | Self::Says(words) => words,
        }
    }
}
