//! The report in words and figures: our own, and those of the tools people know.

mod ab;
mod csv;
mod hgrm;
pub(super) mod html;
mod json;
mod own;
mod siege;
mod wrk;

use super::report::Report;

pub(super) use json::latency;
pub(super) use own::{figures, percentile_names, plural};

pub use hgrm::hgrm;
pub use html::html;

/// How a report is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Tables for people.
    Own,
    /// As `ab` prints it.
    Ab,
    /// As `siege` prints it.
    Siege,
    /// As `wrk --latency` prints it.
    Wrk,
    /// Everything, for programs.
    Json,
    /// One metric a line.
    Csv,
}

impl Format {
    /// All of them, by name.
    pub const ALL: [(&'static str, Self); 6] = [
        ("own", Self::Own),
        ("ab", Self::Ab),
        ("siege", Self::Siege),
        ("wrk", Self::Wrk),
        ("json", Self::Json),
        ("csv", Self::Csv),
    ];

    /// Writes the report.
    pub fn write(self, report: &Report) -> String {
        match self {
            Self::Own => own::write(report),
            Self::Ab => ab::write(report),
            Self::Siege => siege::write(report),
            Self::Wrk => wrk::write(report),
            Self::Json => json::write(report),
            Self::Csv => csv::write(report),
        }
    }
}
