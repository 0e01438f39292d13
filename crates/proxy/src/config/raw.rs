//! The values of a file or command line as written, each with its place.

use std::cell::RefCell;
use std::fmt;
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;
use std::time::Duration;

use microcache_policy::Millis;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::environment::Text;
use super::flag::{Flag, Takes};
use super::mistake::{Mistake, Mistakes};
use super::place::Place;
use super::texts::Texts;
use super::units::{parse_duration, parse_size, show_duration, show_size, size_forms};

/// One value, from a file, a flag or an option's default.
#[derive(Clone, Debug)]
pub(super) struct Value {
    node: Node,
    pub(super) place: Place,
}

#[derive(Clone, Debug)]
enum Node {
    Text(Text),
    /// Digits, optionally with a sign; each option sets the bounds.
    Number(String),
    Switch(bool),
    List(Vec<Value>),
    Table(Vec<(Key, Value)>),
    /// A form that no option accepts, in words.
    Other(&'static str),
}

/// A value without its place, to be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plain {
    /// `"1s"`
    Text(String),
    /// `4`
    Number(String),
    /// `true`
    Switch(bool),
    /// `["a", "b"]`
    List(Vec<Self>),
    /// `{ path = "/" }`
    Table(Vec<(String, Self)>),
}

/// Formats the value in the syntax of the file.
impl fmt::Display for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Number(digits) => f.write_str(digits),
            Self::Switch(on) => on.fmt(f),
            Self::List(items) => {
                f.write_str("[")?;
                for (i, item) in items.iter().enumerate() {
                    let comma = if i == 0 { "" } else { ", " };
                    write!(f, "{comma}{item}")?;
                }
                f.write_str("]")
            }
            Self::Table(entries) => {
                f.write_str("{")?;
                for (i, (key, value)) in entries.iter().enumerate() {
                    let comma = if i == 0 { "" } else { "," };
                    write!(f, "{comma} {key} = {value}")?;
                }
                f.write_str(" }")
            }
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) place: Place,
}

/// Parses a TOML document as far as possible, and notes its syntax errors. Its text begins at `start` of all texts.
pub(super) fn document(text: &str, start: usize, mistakes: &mut Mistakes) -> Value {
    let mut text = text.to_owned();
    let mut faults = Vec::new();
    loop {
        let (table, errors) = DeTable::parse_recoverable(&text);
        let hiding = errors
            .iter()
            .map(|error| SyntaxError::new(error, &text))
            .find(|fault| fault.hides_later_errors(&text));
        if let Some(fault) = hiding {
            text.replace_range(fault.line.clone(), &" ".repeat(fault.line.len()));
            faults.push(fault);
            continue;
        }
        for error in &errors {
            let fault = SyntaxError::new(error, &text);
            // Further errors of a line are mostly consequences of the first.
            if faults.iter().all(|earlier| earlier.line != fault.line) {
                faults.push(fault);
            }
        }
        let parsed = Parsed { faults, start };
        for fault in &parsed.faults {
            mistakes.note(Mistake::new(&parsed.place(&fault.span), &fault.message));
        }
        let entries = parsed.entries(table.get_ref());
        return Value::new(Node::Table(entries), &parsed.place(&(0..0)));
    }
}

/// A parsed document: its syntax errors, and where it begins.
struct Parsed {
    faults: Vec<SyntaxError>,
    start: usize,
}

impl Parsed {
    fn place(&self, span: &Range<usize>) -> Place {
        Place::File(self.start + span.start..self.start + span.end)
    }

    /// Returns the entries in the order of the file, except those on a line with a syntax error, which are guesses of
    /// the parser.
    fn entries(&self, table: &DeTable<'_>) -> Vec<(Key, Value)> {
        let is_guess = |at: usize| self.faults.iter().any(|fault| fault.line.contains(&at));
        let mut entries: Vec<_> = table
            .iter()
            .filter(|(key, value)| value.get_ref().is_table() || !is_guess(key.span().start))
            .collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        entries
            .into_iter()
            .map(|(key, value)| {
                let key = Key {
                    name: key.get_ref().to_string(),
                    place: self.place(&key.span()),
                };
                (key, self.value(value))
            })
            .collect()
    }

    fn value(&self, value: &Spanned<DeValue<'_>>) -> Value {
        let node = match value.get_ref() {
            DeValue::String(text) => Node::Text(text.to_string().into()),
            DeValue::Integer(number) if number.radix() == 10 => {
                Node::Number(number.as_str().to_owned())
            }
            DeValue::Boolean(on) => Node::Switch(*on),
            DeValue::Array(items) => {
                Node::List(items.iter().map(|item| self.value(item)).collect())
            }
            DeValue::Table(table) => Node::Table(self.entries(table)),
            DeValue::Integer(_) => Node::Other("a number that is not decimal"),
            DeValue::Float(number) => Node::Number(number.as_str().to_owned()),
            DeValue::Datetime(_) => Node::Other("a date"),
        };
        Value::new(node, &self.place(&value.span()))
    }
}

/// A syntax error.
struct SyntaxError {
    message: String,
    span: Range<usize>,
    line: Range<usize>,
}

impl SyntaxError {
    fn new(error: &toml::de::Error, text: &str) -> Self {
        let span = error.span().unwrap_or(0..0);
        let at = span.start.min(text.len());
        let bytes = text.as_bytes();
        let start = memchr::memrchr(b'\n', &bytes[..at]).map_or(0, |i| i + 1);
        let end = memchr::memchr(b'\n', &bytes[at..]).map_or(text.len(), |i| at + i);
        Self {
            message: error.message().to_owned(),
            span,
            line: start..end,
        }
    }

    /// Returns whether the parser skips everything up to the next table, as after a key alone on its line. Such a
    /// line is blanked and the text parsed again, so that the mistakes there are reported too.
    fn hides_later_errors(&self, text: &str) -> bool {
        self.message.starts_with("key with no value") && !text[self.line.clone()].trim().is_empty()
    }
}

/// Returns the command line as a table: URLs are `origin`, flags are options. They are in the order of the `known` ones.
pub(super) fn command_line(
    urls: &[String],
    flags: &[(&'static str, Vec<String>)],
    known: impl Iterator<Item = Flag>,
) -> Value {
    let text = |text: &String, place: &Place| Value::new(Node::Text(text.clone().into()), place);
    let list = |values: &[String], place: &Place| {
        Node::List(values.iter().map(|value| text(value, place)).collect())
    };
    let mut entries = Vec::new();
    if !urls.is_empty() {
        let urls: Vec<String> = urls.iter().flat_map(|url| split_list(url, "URL")).collect();
        entries.push(("origin", list(&urls, &Place::Urls), Place::Urls));
    }
    for flag in known {
        let Some((_, values)) = flags.iter().find(|(name, _)| *name == flag.option) else {
            continue;
        };
        let place = Place::Flag(flag.option);
        let first = values.first().map_or("", String::as_str);
        let node = match flag.takes {
            Takes::Nothing => Node::Switch(true),
            Takes::Truth => match first {
                "true" => Node::Switch(true),
                "false" => Node::Switch(false),
                other => Node::Text(other.to_owned().into()),
            },
            Takes::Number => Node::Number(first.to_owned()),
            Takes::One(_) => Node::Text(first.to_owned().into()),
            Takes::Many(form) => {
                let items: Vec<String> = values
                    .iter()
                    .flat_map(|typed| split_list(typed, form))
                    .collect();
                list(&items, &place)
            }
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

/// Splits a list at its commas. URLs with passwords and conditions with values may contain commas: there, a comma
/// ends an item only if the next one begins. Certificates and keys come in pairs.
fn split_list(typed: &str, form: &str) -> Vec<String> {
    let begins = |last: &str, piece: &str| match form {
        // Pairs.
        "CERTIFICATE,KEY" => last.contains(','),
        "URL" => piece.contains("://"),
        "CONDITION" => ["cookie:", "header:", "query:"]
            .iter()
            .any(|part| piece.trim_start().starts_with(part)),
        _ => true,
    };
    let mut items: Vec<String> = Vec::new();
    for piece in typed.split(',') {
        match items.last_mut() {
            Some(last) if !begins(last, piece) => {
                last.push(',');
                last.push_str(piece);
            }
            _ => items.push(piece.to_owned()),
        }
    }
    items.iter().map(|item| item.trim().to_owned()).collect()
}

impl Value {
    fn new(node: Node, place: &Place) -> Self {
        Self {
            node,
            place: place.clone(),
        }
    }

    /// The default value of an option, in the syntax of the file.
    pub(super) fn of_default(text: &str) -> Self {
        match DeValue::parse(text) {
            Ok(value) => {
                let parsed = Parsed {
                    faults: Vec::new(),
                    start: 0,
                };
                parsed.value(&value)
            }
            Err(_) => Self::new(Node::Other("a malformed default"), &Place::Urls),
        }
    }

    /// Returns the text.
    pub(super) fn text(&self) -> Result<&str, Mistake> {
        match &self.node {
            Node::Text(text) => Ok(text.value()),
            _ => Err(self.wrong("text in quotes")),
        }
    }

    /// Returns the path of a file.
    pub(super) fn path(&self) -> Result<PathBuf, Mistake> {
        self.text().map(PathBuf::from)
    }

    /// Returns the path of a file, and its place.
    pub(super) fn file(&self) -> Result<(PathBuf, Place), Mistake> {
        self.path().map(|path| (path, self.place.clone()))
    }

    /// Returns text that `parse` accepts.
    pub(super) fn parse<T>(
        &self,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, Mistake> {
        let text = self.text()?;
        parse(text)
            .map_err(|why| Mistake::new(&self.place, format!("cannot use \"{text}\"")).remedy(why))
    }

    /// Returns one of several words.
    pub(super) fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Result<T, Mistake> {
        let words: Vec<_> = choices
            .iter()
            .map(|(word, _)| format!("\"{word}\""))
            .collect();
        match &self.node {
            Node::Text(text) => choices.iter().find(|(word, _)| *word == text.value()),
            _ => None,
        }
        .map(|(_, choice)| *choice)
        .ok_or_else(|| self.wrong(&format!("one of {}", words.join(", "))))
    }

    /// Returns a switch.
    pub(super) fn switch(&self) -> Result<bool, Mistake> {
        match self.node {
            Node::Switch(on) => Ok(on),
            _ => Err(self.wrong("true or false")),
        }
    }

    /// Returns a whole number within bounds.
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

    /// Returns a fraction from 0 to 1.
    pub(super) fn share(&self) -> Result<f64, Mistake> {
        let read = match &self.node {
            Node::Number(digits) => digits.parse().ok(),
            _ => None,
        };
        read.filter(|share| (0.0..=1.0).contains(share))
            .ok_or_else(|| self.wrong("a number from 0 to 1, such as 0.01"))
    }

    /// Returns a duration within bounds.
    pub(super) fn duration(&self, bounds: &RangeInclusive<Duration>) -> Result<Duration, Mistake> {
        let read = match &self.node {
            Node::Text(text) => parse_duration(text.value()),
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

    /// Returns a duration within bounds, in milliseconds.
    pub(super) fn millis(&self, bounds: &RangeInclusive<Duration>) -> Result<Millis, Mistake> {
        self.duration(bounds).map(|d| d.as_millis() as Millis)
    }

    /// Returns a size within bounds, in bytes.
    pub(super) fn size(&self, bounds: &RangeInclusive<u64>) -> Result<u64, Mistake> {
        let text = match &self.node {
            Node::Text(text) => text.value(),
            _ => "",
        };
        let Some(size) = parse_size(text) else {
            return Err(self.wrong(&size_forms(text)));
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

    /// Returns the values of a list. A single value is a list of one.
    pub(super) fn items(&self) -> &[Self] {
        match &self.node {
            Node::List(items) => items,
            _ => std::slice::from_ref(self),
        }
    }

    /// Returns the good values of a list, and notes the bad ones.
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

    /// Returns the table.
    pub(super) fn table(&self) -> Result<Table<'_>, Mistake> {
        match &self.node {
            Node::Table(entries) => Ok(Table {
                entries,
                looked_up: RefCell::default(),
            }),
            _ => Err(self.wrong("a table of names and values, such as { name = value }")),
        }
    }

    /// Returns the entries of a table; none of any other value.
    pub(super) fn named(&self) -> &[(Key, Self)] {
        match &self.node {
            Node::Table(entries) => entries,
            _ => &[],
        }
    }

    /// Returns the value of this name in a table.
    pub(super) fn entry(&self, name: &str) -> Option<&Self> {
        let mut entries = self.named().iter();
        entries
            .find(|(key, _)| key.name == name)
            .map(|(_, value)| value)
    }

    /// Returns the value without its place.
    pub(super) fn plain(&self) -> Plain {
        self.to_plain(|text| text.value().to_owned())
    }

    /// Returns the value without its place, and without users and passwords.
    pub(super) fn shown(&self) -> Plain {
        self.to_plain(Text::shown)
    }

    fn to_plain(&self, show: fn(&Text) -> String) -> Plain {
        match &self.node {
            Node::Text(text) => Plain::Text(show(text)),
            Node::Number(digits) => Plain::Number(digits.clone()),
            Node::Switch(on) => Plain::Switch(*on),
            Node::List(items) => {
                Plain::List(items.iter().map(|item| item.to_plain(show)).collect())
            }
            Node::Table(entries) => {
                let entries = entries.iter();
                Plain::Table(
                    entries
                        .map(|(key, value)| (key.name.clone(), value.to_plain(show)))
                        .collect(),
                )
            }
            Node::Other(form) => Plain::Text((*form).to_owned()),
        }
    }

    /// Gives every string in it to `change`, with its place.
    pub(super) fn each_text(&mut self, change: &mut impl FnMut(&mut Text, &Place)) {
        match &mut self.node {
            Node::Text(text) => change(text, &self.place),
            Node::List(items) => items.iter_mut().for_each(|item| item.each_text(change)),
            Node::Table(entries) => entries
                .iter_mut()
                .for_each(|(_, value)| value.each_text(change)),
            Node::Number(_) | Node::Switch(_) | Node::Other(_) => {}
        }
    }

    /// Adds the options of an included file: its routes after those that are there, its groups next to them. An
    /// option that is already set is a mistake.
    pub(super) fn merge(&mut self, included: Self, texts: &Texts, mistakes: &mut Mistakes) {
        let (Node::Table(entries), Node::Table(added)) = (&mut self.node, included.node) else {
            return;
        };
        for (key, value) in added {
            let known = entries.iter_mut().find(|(known, _)| known.name == key.name);
            let Some((earlier, present)) = known else {
                entries.push((key, value));
                continue;
            };
            match (&mut present.node, key.name.as_str()) {
                (Node::List(routes), "routes") => routes.extend_from_slice(value.items()),
                (Node::Table(_), "upstreams") if matches!(value.node, Node::Table(_)) => {
                    present.merge(value, texts, mistakes);
                }
                (_, "include") => {}
                _ => {
                    let what = format!("`{}` is set twice", key.name);
                    let other = texts.location(&earlier.place);
                    mistakes.note(
                        Mistake::new(&key.place, what)
                            .remedy(format!("remove it here or at {other}")),
                    );
                }
            }
        }
    }

    /// Returns whether it is text.
    pub(super) fn is_text(&self) -> bool {
        matches!(self.node, Node::Text(_))
    }

    fn wrong(&self, expected: &str) -> Mistake {
        let shown = match &self.node {
            Node::Text(text) => format!("\"{}\"", text.value()),
            Node::Number(digits) => digits.clone(),
            Node::Switch(on) => on.to_string(),
            Node::List(_) => "a list".to_owned(),
            Node::Table(_) => "a table".to_owned(),
            Node::Other(form) => (*form).to_owned(),
        };
        Mistake::new(&self.place, format!("expected {expected}, found {shown}"))
    }
}

/// A table being read. It records the names looked up: the others are unknown options.
#[derive(Debug)]
pub(super) struct Table<'a> {
    entries: &'a [(Key, Value)],
    looked_up: RefCell<Vec<&'static str>>,
}

impl<'a> Table<'a> {
    /// Returns the value of `name`.
    pub(super) fn get(&self, name: &'static str) -> Option<&'a Value> {
        let mut looked_up = self.looked_up.borrow_mut();
        if !looked_up.contains(&name) {
            looked_up.push(name);
        }
        self.entries
            .iter()
            .find(|(key, _)| key.name == name)
            .map(|(_, value)| value)
    }

    /// Returns all entries, for tables with names of the operator's choice.
    pub(super) fn entries(&self) -> &'a [(Key, Value)] {
        self.entries
    }

    /// Returns the keys that were not looked up, and the names that were.
    pub(super) fn unknown(self) -> (Vec<&'a Key>, Vec<&'static str>) {
        let known = self.looked_up.into_inner();
        let keys = self.entries.iter().map(|(key, _)| key);
        let unknown = keys.filter(|key| !known.contains(&key.name.as_str()));
        (unknown.collect(), known)
    }
}
