//! The texts of a configuration's files, and places in them.

use std::iter;
use std::ops::Range;

use super::environment::Variable;
use super::place::{Place, flag_name};

/// The texts of a configuration's files, one after the other. A place is a range of bytes of the whole.
#[derive(Clone, Debug, Default)]
pub(super) struct Texts {
    /// The name of each file, and where its text begins.
    files: Vec<(String, usize)>,
    text: String,
    /// Beginnings of the lines.
    lines: Vec<usize>,
    variables: Vec<Variable>,
}

impl Texts {
    /// Adds a file. Returns where its text begins.
    pub(super) fn add(&mut self, name: &str, text: &str) -> usize {
        let start = self.text.len();
        self.files.push((name.to_owned(), start));
        self.text.push_str(text);
        let next_lines = memchr::memchr_iter(b'\n', text.as_bytes()).map(|at| start + at + 1);
        self.lines.extend(iter::once(start).chain(next_lines));
        // A place at the end of a file is not one in the next file.
        self.text.push('\n');
        start
    }

    /// Returns the place of a part of a value, or that of the value if it does not contain the part as such.
    pub(super) fn narrowed(&self, place: &Place, part: &str) -> Place {
        let Place::File(span) = place else {
            return place.clone();
        };
        let text = self.text.get(span.clone()).unwrap_or_default();
        text.find(part).map_or_else(
            || place.clone(),
            |at| Place::File(span.start + at..span.start + at + part.len()),
        )
    }

    /// Notes that a variable was used, whose value reports must not contain.
    pub(super) fn note(&mut self, variable: Variable) {
        self.variables.push(variable);
    }

    /// Returns a message about a place with the names of variables instead of their values.
    pub(super) fn without_values(&self, message: &str, place: &Place) -> String {
        let mut variables: Vec<_> = self.variables.iter().collect();
        variables.sort_by_key(|variable| std::cmp::Reverse(variable.len()));
        variables
            .into_iter()
            .fold(message.to_owned(), |text, variable| {
                variable.hide_in(&text, place)
            })
    }

    /// Returns a place in the form that editors follow.
    pub(super) fn location(&self, place: &Place) -> String {
        match place {
            Place::File(span) => self.spot(span).location(),
            Place::Flag(name) => flag_name(name),
            Place::Urls => "origin".to_owned(),
        }
    }

    /// Returns the line of a place in its file.
    pub(super) fn line(&self, place: &Place) -> Option<usize> {
        match place {
            Place::File(span) => Some(self.spot(span).line),
            Place::Flag(_) | Place::Urls => None,
        }
    }

    /// Returns a place as file, line and column.
    pub(super) fn spot(&self, span: &Range<usize>) -> Spot<'_> {
        let begun = self
            .files
            .partition_point(|(_, start)| *start <= span.start);
        let (file, first) = begun
            .checked_sub(1)
            .map_or(("", 0), |at| (self.files[at].0.as_str(), self.files[at].1));
        let next = self
            .files
            .get(begun)
            .map_or(self.text.len(), |(_, next)| *next);
        let line = self.lines_up_to(span.start) - self.lines_up_to(first) + 1;
        let span = span.start - first..span.end.max(span.start) - first;
        Spot::find(file, line, &self.text[first..next], &span)
    }

    fn lines_up_to(&self, place: usize) -> usize {
        self.lines.partition_point(|start| *start <= place)
    }
}

/// A span as file, line and column, with the text of its line.
pub(super) struct Spot<'a> {
    pub(super) file: &'a str,
    pub(super) line: usize,
    pub(super) column: usize,
    pub(super) text: &'a str,
    /// White space as wide as the text before the span; tabs stay tabs.
    pub(super) lead: String,
    pub(super) width: usize,
}

impl<'a> Spot<'a> {
    fn find(file: &'a str, line: usize, text: &'a str, span: &Range<usize>) -> Self {
        let start = text.floor_char_boundary(span.start);
        let end = text.floor_char_boundary(span.end).max(start);
        let line_start = text[..start].rfind('\n').map_or(0, |i| i + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |i| start + i);
        let before = &text[line_start..start];
        let covered = text[start..end.min(line_end)].trim_end();
        Self {
            file,
            line,
            column: before.chars().count() + 1,
            text: text[line_start..line_end].trim_end(),
            lead: before
                .chars()
                .map(|c| if c == '\t' { '\t' } else { ' ' })
                .collect(),
            width: covered.chars().count().max(1),
        }
    }

    pub(super) fn location(&self) -> String {
        format!("{}:{}:{}", self.file, self.line, self.column)
    }
}
