//! Mistakes of a configuration, their places, and their report.

use std::fmt;
use std::ops::Range;

use super::place::Place;
use super::secrets::masked;
use super::texts::Texts;

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
    errors: Vec<Mistake>,
    warnings: Vec<Mistake>,
    muted: Vec<Place>,
}

impl Mistakes {
    /// Notes a mistake.
    pub(super) fn note(&mut self, mistake: Mistake) {
        if !self
            .muted
            .iter()
            .any(|place| place.overlaps(&mistake.place))
        {
            self.errors.push(mistake);
        }
    }

    /// Ignores further mistakes at a place, which would be consequences of the one that was noted.
    pub(super) fn mute(&mut self, place: &Place) {
        self.muted.push(place.clone());
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
        self.errors.len()
    }

    /// Returns all mistakes in the order of the files, or the warnings if there are none.
    pub(super) fn report(self, texts: &Texts) -> Result<Report, Report> {
        if self.errors.is_empty() {
            Ok(Report::of("warning: ", self.warnings, texts))
        } else {
            Err(self.refused(texts))
        }
    }

    /// Returns all mistakes in the order of the files.
    pub(super) fn refused(self, texts: &Texts) -> Report {
        Report::of("", self.errors, texts)
    }
}

/// The mistakes or the warnings of a configuration, ready to be printed.
#[derive(Clone, Debug, Default)]
pub struct Report {
    label: &'static str,
    texts: Box<Texts>,
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
    fn of(label: &'static str, mut mistakes: Vec<Mistake>, texts: &Texts) -> Self {
        for mistake in &mut mistakes {
            mistake.what = texts.without_values(&mistake.what, &mistake.place);
            if let Some(remedy) = &mut mistake.remedy {
                *remedy = texts.without_values(remedy, &mistake.place);
            }
        }
        mistakes.sort_by_key(|mistake| match &mistake.place {
            Place::File(span) => span.start,
            Place::Flag(_) | Place::Urls => usize::MAX,
        });
        Self {
            label,
            texts: Box::new(texts.clone()),
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
        self.mistakes.iter().map(|mistake| MistakeView {
            place: self.texts.location(&mistake.place),
            line: self.texts.line(&mistake.place),
            what: masked(&mistake.what),
            remedy: mistake.remedy.as_deref().map(masked),
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
                Place::Flag(_) | Place::Urls => self.on_command_line(f, mistake)?,
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
        let spot = self.texts.spot(span);
        let (label, what) = (self.label, masked(&mistake.what));
        writeln!(f, "{}: {label}{what}", spot.location())?;
        let number = spot.line.to_string();
        let gap = " ".repeat(number.len());
        writeln!(f, "{gap} |")?;
        writeln!(f, "{number} | {}", masked(spot.text))?;
        write!(f, "{gap} | {}{}", spot.lead, "^".repeat(spot.width))?;
        if let Some(remedy) = &mistake.remedy {
            write!(f, "\n{gap} = {remedy}")?;
        }
        Ok(())
    }

    fn on_command_line(&self, f: &mut fmt::Formatter<'_>, mistake: &Mistake) -> fmt::Result {
        let subject = self.texts.location(&mistake.place);
        write!(f, "{subject}: {}{}", self.label, masked(&mistake.what))?;
        match &mistake.remedy {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}
