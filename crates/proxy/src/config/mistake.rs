//! Mistakes of a configuration, their places, and their report.

use std::fmt;
use std::ops::Range;

use super::secrets::masked;

/// The place of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// These bytes of the file.
    File(Range<usize>),
    /// The flag of this option.
    Flag(&'static str),
    /// The URLs of the command line.
    Urls,
}

/// A mistake, with its place and remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    place: Place,
    what: String,
    remedy: Option<String>,
}

impl Mistake {
    /// A mistake at a place.
    pub(super) fn new(place: &Place, what: impl Into<String>) -> Self {
        Self {
            place: place.clone(),
            what: what.into(),
            remedy: None,
        }
    }

    /// Adds the remedy.
    #[must_use]
    pub(super) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

/// The mistakes found so far, and the warnings. Reading continues after each, so that all are reported at once.
#[derive(Debug, Default)]
pub(super) struct Mistakes {
    mistakes: Vec<Mistake>,
    warnings: Vec<Mistake>,
}

impl Mistakes {
    /// Notes a mistake.
    pub(super) fn note(&mut self, mistake: Mistake) {
        self.mistakes.push(mistake);
    }

    /// Notes a warning: valid, but dangerous.
    pub(super) fn warn(&mut self, warning: Mistake) {
        self.warnings.push(warning);
    }

    /// Returns the value, or notes the mistake.
    pub(super) fn ok<T>(&mut self, result: Result<T, Mistake>) -> Option<T> {
        result.map_err(|mistake| self.note(mistake)).ok()
    }

    /// Assigns the value, or notes the mistake.
    pub(super) fn put<T>(&mut self, slot: &mut T, result: Result<T, Mistake>) {
        if let Some(value) = self.ok(result) {
            *slot = value;
        }
    }

    /// The number of mistakes.
    pub(super) fn count(&self) -> usize {
        self.mistakes.len()
    }

    /// Returns all mistakes in the order of the file, or the warnings if there are none.
    pub(super) fn report(self, name: &str, text: &str) -> Result<Report, Report> {
        if self.mistakes.is_empty() {
            Ok(Report::of("warning: ", self.warnings, name, text))
        } else {
            Err(self.refused(name, text))
        }
    }

    /// Returns all mistakes in the order of the file.
    pub(super) fn refused(self, name: &str, text: &str) -> Report {
        Report::of("", self.mistakes, name, text)
    }
}

/// The mistakes or the warnings of a configuration, ready to be printed.
#[derive(Clone, Debug, Default)]
pub struct Report {
    label: &'static str,
    name: String,
    text: String,
    mistakes: Vec<Mistake>,
}

impl std::error::Error for Report {}

/// A mistake, as data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MistakeView {
    /// The file with line and column, the flag, or `origin` for the URLs of the command line.
    pub place: String,
    /// The line in the file.
    pub line: Option<usize>,
    /// The description.
    pub what: String,
    /// The remedy.
    pub remedy: Option<String>,
}

impl fmt::Display for MistakeView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)?;
        match &self.remedy {
            Some(remedy) => write!(f, " ({remedy})"),
            None => Ok(()),
        }
    }
}

impl Report {
    fn of(label: &'static str, mut mistakes: Vec<Mistake>, name: &str, text: &str) -> Self {
        mistakes.sort_by_key(|mistake| match &mistake.place {
            Place::File(span) => span.start,
            Place::Flag(_) | Place::Urls => usize::MAX,
        });
        Self {
            label,
            name: name.to_owned(),
            text: text.to_owned(),
            mistakes,
        }
    }

    /// The number of mistakes.
    pub fn count(&self) -> usize {
        self.mistakes.len()
    }

    /// Joins the reports of one configuration.
    #[must_use]
    pub(super) fn and(mut self, other: Self) -> Self {
        self.mistakes.extend(other.mistakes);
        Self {
            mistakes: self.mistakes,
            ..other
        }
    }

    /// Returns the mistakes as data.
    pub fn mistakes(&self) -> impl Iterator<Item = MistakeView> {
        self.mistakes.iter().map(|mistake| {
            let (place, line) = match &mistake.place {
                Place::File(span) => {
                    let Spot { line, column, .. } = Spot::find(&self.text, span);
                    (format!("{}:{line}:{column}", self.name), Some(line))
                }
                Place::Flag(name) => (flag_name(name), None),
                Place::Urls => ("origin".to_owned(), None),
            };
            MistakeView {
                place,
                line,
                what: masked(&mistake.what),
                remedy: mistake.remedy.as_deref().map(masked),
            }
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, mistake) in self.mistakes.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            match &mistake.place {
                Place::File(span) => self.in_file(f, mistake, span)?,
                Place::Flag(name) => self.on_command_line(f, mistake, &flag_name(name))?,
                Place::Urls => self.on_command_line(f, mistake, "origin")?,
            }
        }
        Ok(())
    }
}

impl Report {
    fn in_file(
        &self,
        f: &mut fmt::Formatter<'_>,
        mistake: &Mistake,
        span: &Range<usize>,
    ) -> fmt::Result {
        let spot = Spot::find(&self.text, span);
        let Spot { line, column, .. } = spot;
        let (name, label, what) = (&self.name, self.label, masked(&mistake.what));
        writeln!(f, "{name}:{line}:{column}: {label}{what}")?;
        let number = line.to_string();
        let gap = " ".repeat(number.len());
        writeln!(f, "{gap} |")?;
        writeln!(f, "{number} | {}", masked(spot.text))?;
        write!(f, "{gap} | {}{}", spot.lead, "^".repeat(spot.width))?;
        if let Some(remedy) = &mistake.remedy {
            write!(f, "\n{gap} = {remedy}")?;
        }
        Ok(())
    }

    fn on_command_line(
        &self,
        f: &mut fmt::Formatter<'_>,
        mistake: &Mistake,
        subject: &str,
    ) -> fmt::Result {
        write!(f, "{subject}: {}{}", self.label, masked(&mistake.what))?;
        match &mistake.remedy {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}

/// Returns the flag of an option.
fn flag_name(option: &str) -> String {
    format!("--{}", option.replace('_', "-"))
}

/// A span as line and column, with the text of its line.
struct Spot<'a> {
    line: usize,
    column: usize,
    text: &'a str,
    /// White space as wide as the text before the span; tabs stay tabs.
    lead: String,
    width: usize,
}

impl<'a> Spot<'a> {
    fn find(text: &'a str, span: &Range<usize>) -> Self {
        let start = text.floor_char_boundary(span.start);
        let end = text.floor_char_boundary(span.end).max(start);
        let line_start = text[..start].rfind('\n').map_or(0, |i| i + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |i| start + i);
        let before = &text[line_start..start];
        let covered = text[start..end.min(line_end)].trim_end();
        Self {
            line: text[..line_start].matches('\n').count() + 1,
            column: before.chars().count() + 1,
            text: text[line_start..line_end].trim_end(),
            lead: before
                .chars()
                .map(|c| if c == '\t' { '\t' } else { ' ' })
                .collect(),
            width: covered.chars().count().max(1),
        }
    }
}
