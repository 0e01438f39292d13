//! What was written, as it was written, each value with its place.

use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::time::Duration;

use microcache_policy::Millis;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::mistake::{Mistake, Mistakes, Place};
use super::option::{self, Opt, Takes};
use super::suggest::nearest;
use super::units::{parse_duration, parse_size, show_duration, show_size};

/// One value, from a file, a flag or an option's default.
#[derive(Clone, Debug)]
pub(super) struct Value {
    node: Node,
    pub(super) place: Place,
}

#[derive(Clone, Debug)]
enum Node {
    Text(String),
    /// Digits, perhaps with a sign; how large a number may be is for each option to say.
    Number(String),
    Switch(bool),
    List(Vec<Value>),
    Table(Vec<(Key, Value)>),
    /// A form that no option takes; this is its name.
    Other(&'static str),
}

#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) place: Place,
}

/// Reads a TOML document as far as it can be read, and notes what cannot.
pub(super) fn document(text: &str, mistakes: &mut Mistakes) -> Value {
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let place = Place::File(error.span().unwrap_or(0..0));
        mistakes.note(Mistake::new(&place, error.message()));
    }
    let span = table.span();
    Value::of(&Spanned::new(span, DeValue::Table(table.into_inner())))
}

/// What the command line says, as a file would: urls are `origin`, flags are options.
pub(super) fn command_line(urls: &[String], flags: &[(&'static str, Vec<String>)]) -> Value {
    let text = |text: &String, place: &Place| Value::new(Node::Text(text.clone()), place);
    let list = |values: &[String], place: &Place| {
        Node::List(values.iter().map(|value| text(value, place)).collect())
    };
    let mut entries = Vec::new();
    if !urls.is_empty() {
        entries.push(("origin", list(urls, &Place::Urls), Place::Urls));
    }
    for flag in option::flags() {
        let Some((_, values)) = flags.iter().find(|(name, _)| *name == flag.option) else {
            continue;
        };
        let place = Place::Flag(flag.option);
        let first = values.first().map_or("", String::as_str);
        let node = match flag.takes {
            Takes::Nothing => Node::Switch(true),
            Takes::Number => Node::Number(first.to_owned()),
            Takes::One(_) => Node::Text(first.to_owned()),
            Takes::Many(_) => list(values, &place),
        };
        entries.push((flag.option, node, place));
    }
    let entries = entries.into_iter().map(|(name, node, place)| {
        let key = Key {
            name: name.to_owned(),
            place: place.clone(),
        };
        (key, Value::new(node, &place))
    });
    Value::new(Node::Table(entries.collect()), &Place::Urls)
}

impl Value {
    fn new(node: Node, place: &Place) -> Self {
        Self {
            node,
            place: place.clone(),
        }
    }

    /// The value that an option has when nobody sets it, as its table writes it.
    pub(super) fn of_default(text: &str) -> Self {
        match DeValue::parse(text) {
            Ok(value) => Self::of(&value),
            Err(_) => Self::new(Node::Other("malformed default"), &Place::Urls),
        }
    }

    fn of(value: &Spanned<DeValue<'_>>) -> Self {
        let node = match value.get_ref() {
            DeValue::String(text) => Node::Text(text.to_string()),
            DeValue::Integer(number) if number.radix() == 10 => {
                Node::Number(number.as_str().to_owned())
            }
            DeValue::Boolean(on) => Node::Switch(*on),
            DeValue::Array(items) => Node::List(items.iter().map(Self::of).collect()),
            DeValue::Table(table) => Node::Table(entries(table)),
            other => Node::Other(other.type_str()),
        };
        Self {
            node,
            place: Place::File(value.span()),
        }
    }

    /// Text.
    pub(super) fn text(&self) -> Result<&str, Mistake> {
        match &self.node {
            Node::Text(text) => Ok(text),
            _ => Err(self.wrong("text in quotes")),
        }
    }

    /// Text that `parse` understands.
    pub(super) fn parse<T>(
        &self,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, Mistake> {
        let text = self.text()?;
        parse(text)
            .map_err(|why| Mistake::new(&self.place, format!("cannot use \"{text}\"")).remedy(why))
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Result<T, Mistake> {
        let words: Vec<_> = choices
            .iter()
            .map(|(word, _)| format!("\"{word}\""))
            .collect();
        match &self.node {
            Node::Text(text) => choices.iter().find(|(word, _)| word == text),
            _ => None,
        }
        .map(|(_, choice)| *choice)
        .ok_or_else(|| self.wrong(&format!("one of {}", words.join(", "))))
    }

    /// On or off.
    pub(super) fn switch(&self) -> Result<bool, Mistake> {
        match self.node {
            Node::Switch(on) => Ok(on),
            _ => Err(self.wrong("true or false")),
        }
    }

    /// A whole number within bounds.
    pub(super) fn count(&self, bounds: RangeInclusive<usize>) -> Result<usize, Mistake> {
        let expected = format!("a number from {} to {}", bounds.start(), bounds.end());
        let Node::Number(digits) = &self.node else {
            return Err(self.wrong(&expected));
        };
        digits
            .parse()
            .ok()
            .filter(|number| bounds.contains(number))
            .ok_or_else(|| self.wrong(&expected))
    }

    /// A duration within bounds.
    pub(super) fn duration(&self, bounds: &RangeInclusive<Duration>) -> Result<Duration, Mistake> {
        let read = match &self.node {
            Node::Text(text) => parse_duration(text),
            _ => None,
        };
        let Some(duration) = read else {
            return Err(
                self.wrong("a number and a unit, such as \"500ms\", \"1s\", \"10m\", \"1d\"")
            );
        };
        if !bounds.contains(&duration) {
            return Err(self.wrong(&format!(
                "a duration from {} to {}",
                show_duration(*bounds.start()),
                show_duration(*bounds.end())
            )));
        }
        Ok(duration)
    }

    /// A duration within bounds, in milliseconds.
    pub(super) fn millis(&self, bounds: &RangeInclusive<Duration>) -> Result<Millis, Mistake> {
        self.duration(bounds).map(|d| d.as_millis() as Millis)
    }

    /// A size within bounds, in bytes.
    pub(super) fn size(&self, bounds: &RangeInclusive<u64>) -> Result<u64, Mistake> {
        let read = match &self.node {
            Node::Text(text) => parse_size(text),
            _ => None,
        };
        let Some(size) = read else {
            return Err(self.wrong("a number and a unit, such as \"512KiB\", \"64MiB\", \"1GB\""));
        };
        if !bounds.contains(&size) {
            return Err(self.wrong(&format!(
                "a size from {} to {}",
                show_size(*bounds.start()),
                show_size(*bounds.end())
            )));
        }
        Ok(size)
    }

    /// The values of a list. One value alone is a list of one.
    pub(super) fn items(&self) -> &[Self] {
        match &self.node {
            Node::List(items) => items,
            _ => std::slice::from_ref(self),
        }
    }

    /// Every value of a list; each bad one is noted.
    pub(super) fn each<T>(
        &self,
        mistakes: &mut Mistakes,
        read: impl Fn(&Self) -> Result<T, Mistake>,
    ) -> Vec<T> {
        self.items()
            .iter()
            .filter_map(|item| mistakes.ok(read(item)))
            .collect()
    }

    /// The entries of a table.
    pub(super) fn table(&self) -> Result<Table<'_>, Mistake> {
        match &self.node {
            Node::Table(entries) => Ok(Table {
                entries,
                asked: RefCell::default(),
            }),
            _ => Err(self.wrong("a table of names and values, such as { name = value }")),
        }
    }

    /// Whether this is text alone.
    pub(super) fn is_text(&self) -> bool {
        matches!(self.node, Node::Text(_))
    }

    fn wrong(&self, expected: &str) -> Mistake {
        let shown = match &self.node {
            Node::Text(text) => format!("\"{text}\""),
            Node::Number(digits) => digits.clone(),
            Node::Switch(on) => on.to_string(),
            Node::List(_) => "a list".to_owned(),
            Node::Table(_) => "a table".to_owned(),
            Node::Other(form) => format!("a value of the form {form}"),
        };
        Mistake::new(&self.place, format!("expected {expected}, not {shown}"))
    }
}

fn entries(table: &DeTable<'_>) -> Vec<(Key, Value)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
        .into_iter()
        .map(|(key, value)| {
            let key = Key {
                name: key.get_ref().to_string(),
                place: Place::File(key.span()),
            };
            (key, Value::of(value))
        })
        .collect()
}

/// A table being read. It remembers what it was asked for: the rest is unknown.
#[derive(Debug)]
pub(super) struct Table<'a> {
    entries: &'a [(Key, Value)],
    asked: RefCell<Vec<&'static str>>,
}

impl<'a> Table<'a> {
    /// The value of `name`.
    pub(super) fn get(&self, name: &'static str) -> Option<&'a Value> {
        self.asked.borrow_mut().push(name);
        self.entries
            .iter()
            .find(|(key, _)| key.name == name)
            .map(|(_, value)| value)
    }

    /// All entries, for tables whose names are the operator's own.
    pub(super) fn entries(&self) -> &'a [(Key, Value)] {
        self.entries
    }

    /// Sets what the table says of `options`.
    pub(super) fn apply<T>(&self, options: &[Opt<T>], target: &mut T, mistakes: &mut Mistakes) {
        for option in options {
            if let Some(value) = self.get(option.about.name) {
                (option.set)(target, value, mistakes);
            }
        }
    }

    /// Notes every name that nobody asked for.
    pub(super) fn refuse_rest(self, mistakes: &mut Mistakes) {
        let known = self.asked.into_inner();
        for (key, _) in self.entries {
            if known.contains(&key.name.as_str()) {
                continue;
            }
            let mistake = Mistake::new(&key.place, format!("unknown option `{}`", key.name));
            mistakes.note(match nearest(&key.name, known.iter().copied()) {
                Some(name) => mistake.remedy(format!("did you mean `{name}`?")),
                None => mistake.remedy(format!("known here: {}", known.join(", "))),
            });
        }
    }
}
