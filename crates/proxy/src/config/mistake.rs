//! Mistakes, where they are, and how they are told.

use std::fmt;
use std::ops::Range;

use super::secrets::masked;

/// Where something was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// These bytes of the file.
    File(Range<usize>),
    /// A flag of this option.
    Flag(&'static str),
    /// The urls of the command line.
    Urls,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    place: Place,
    what: String,
    remedy: Option<String>,
}

impl Mistake {
    /// What is wrong, and where.
    pub(super) fn new(place: &Place, what: impl Into<String>) -> Self {
        Self {
            place: place.clone(),
            what: what.into(),
            remedy: None,
        }
    }

    /// What to write instead.
    #[must_use]
    pub(super) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

/// The mistakes met so far. Reading goes on after each, so that all are reported at once. Beside them
/// stands what can be meant and yet is dangerous.
#[derive(Debug, Default)]
pub(super) struct Mistakes {
    mistakes: Vec<Mistake>,
    dangers: Vec<Mistake>,
}

impl Mistakes {
    /// Notes one.
    pub(super) fn note(&mut self, mistake: Mistake) {
        self.mistakes.push(mistake);
    }

    /// Notes something that the operator may mean, and should know the price of.
    pub(super) fn warn(&mut self, danger: Mistake) {
        self.dangers.push(danger);
    }

    /// Notes one, or gives the value.
    pub(super) fn ok<T>(&mut self, result: Result<T, Mistake>) -> Option<T> {
        result.map_err(|mistake| self.note(mistake)).ok()
    }

    /// Puts a good value into its slot, and notes a bad one.
    pub(super) fn put<T>(&mut self, slot: &mut T, result: Result<T, Mistake>) {
        if let Some(value) = self.ok(result) {
            *slot = value;
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.mistakes.len()
    }

    /// All of them, in the order of the file, if there are any; else what to warn of.
    pub(super) fn report(self, name: &str, text: &str) -> Result<Report, Report> {
        if self.mistakes.is_empty() {
            Ok(Report::of("warning: ", self.dangers, name, text))
        } else {
            Err(self.refused(name, text))
        }
    }

    /// All of them, in the order of the file.
    pub(super) fn refused(self, name: &str, text: &str) -> Report {
        Report::of("", self.mistakes, name, text)
    }
}

/// Every mistake of a configuration, or everything to warn of, ready to be printed.
#[derive(Clone, Debug, Default)]
pub struct Report {
    label: &'static str,
    name: String,
    text: String,
    mistakes: Vec<Mistake>,
}

impl std::error::Error for Report {}

/// One mistake, for programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Where: a file with line and column, a flag, or the urls of the command line.
    pub place: String,
    /// The line of the file.
    pub line: Option<usize>,
    /// What is wrong.
    pub what: String,
    /// What to write instead.
    pub remedy: Option<String>,
}

impl fmt::Display for Told {
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

    /// How many.
    pub fn count(&self) -> usize {
        self.mistakes.len()
    }

    /// Both, of one configuration.
    #[must_use]
    pub(super) fn and(mut self, other: Self) -> Self {
        self.mistakes.extend(other.mistakes);
        Self {
            mistakes: self.mistakes,
            ..other
        }
    }

    /// Each for itself.
    pub fn told(&self) -> impl Iterator<Item = Told> {
        self.mistakes.iter().map(|mistake| {
            let (place, line) = match &mistake.place {
                Place::File(span) => {
                    let Spot { line, column, .. } = Spot::find(&self.text, span);
                    (format!("{}:{line}:{column}", self.name), Some(line))
                }
                Place::Flag(name) => (flag_name(name), None),
                Place::Urls => ("origin".to_owned(), None),
            };
            Told {
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
        who: &str,
    ) -> fmt::Result {
        write!(f, "{who}: {}{}", self.label, masked(&mistake.what))?;
        match &mistake.remedy {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}

/// The flag of an option.
fn flag_name(option: &str) -> String {
    format!("--{}", option.replace('_', "-"))
}

/// A span as people see it: the line it begins on, and what of that line it covers.
struct Spot<'a> {
    line: usize,
    column: usize,
    text: &'a str,
    /// White space as wide as what stands before the span; tabs stay tabs.
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
