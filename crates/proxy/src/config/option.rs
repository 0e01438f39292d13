//! An option of the configuration: name, form, default, help and setter in one place.

use super::flag::{Flag, Takes};
use super::mistake::Mistakes;
use super::raw::{Table, Value};

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

    /// Returns the default, if it is a value.
    pub(super) fn default_value(&self) -> Option<Value> {
        match self.unset {
            Unset::Is(text) => Some(Value::of_default(&self.form.in_file(text))),
            Unset::Says(_) => None,
        }
    }

    /// Returns the flag for the option in a group of the help, if its value fits on one line.
    pub(super) fn flag(&self, group: &'static str, brief: Option<&'static str>) -> Option<Flag> {
        let takes = match self.form {
            Form::Duration => Takes::One("DURATION"),
            Form::Size => Takes::One("SIZE"),
            Form::Number => Takes::Number,
            // A switch that is on by default needs a value to be turned off.
            Form::Switch if self.unset == Unset::Is("true") => Takes::Truth,
            Form::Switch => Takes::Nothing,
            Form::Text(name) => Takes::One(name),
            Form::List(name) => Takes::Many(name),
            Form::Table(_) => return None,
        };
        Some(Flag {
            option: self.name,
            group,
            takes,
            help: self.help,
            default: self.unset.words(),
            brief,
        })
    }

    /// Returns the default in the syntax of the file, or in words where there is no value.
    pub(super) fn default_in_file(&self) -> String {
        match self.unset {
            Unset::Is(value) => self.form.in_file(value),
            Unset::Says(words) => words.to_owned(),
        }
    }
}

impl Table<'_> {
    /// Applies `options` to the target.
    pub(super) fn apply<T>(&self, options: &[Opt<T>], target: &mut T, mistakes: &mut Mistakes) {
        for option in options {
            if let Some(value) = self.get(option.about.name) {
                (option.set)(target, value, mistakes);
            }
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

impl Unset {
    /// Returns the value or the description, as text.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Is(words) | Self::Says(words) => words,
        }
    }
}
