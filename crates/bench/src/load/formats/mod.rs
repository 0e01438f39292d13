//! Output formats of a report: our own, and those of ab, siege and wrk.

mod ab;
mod csv;
mod hgrm;
pub(super) mod html;
mod json;
mod siege;
mod tables;
mod wrk;

use super::report::BenchReport;

pub(super) use json::latency;
pub(super) use tables::{figures, percentile_names, plural};

pub use hgrm::hgrm;
pub use html::html;

/// Output format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Text tables.
    Tables,
    /// Output of `ab`.
    Ab,
    /// Output of `siege` 4.
    Siege,
    /// Output of `wrk --latency`.
    Wrk,
    /// JSON with every metric.
    Json,
    /// CSV, one metric per line.
    Csv,
}

impl Format {
    /// All formats, by name.
    pub const ALL: [(&'static str, Self); 6] = [
        ("own", Self::Tables),
        ("ab", Self::Ab),
        ("siege", Self::Siege),
        ("wrk", Self::Wrk),
        ("json", Self::Json),
        ("csv", Self::Csv),
    ];

    /// Formats the report.
    pub fn write(self, report: &BenchReport) -> String {
        match self {
            Self::Tables => tables::write(report),
            Self::Ab => ab::write(report),
            Self::Siege => siege::write(report),
            Self::Wrk => wrk::write(report),
            Self::Json => json::write(report),
            Self::Csv => csv::write(report),
        }
    }
}
