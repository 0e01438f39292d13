//! Places of values.

use std::ops::Range;

/// The place of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// These bytes of the texts of all files.
    File(Range<usize>),
    /// The flag of this option.
    Flag(&'static str),
    /// The URLs of the command line.
    Urls,
}

impl Place {
    /// Returns whether both are places in the files, and have bytes in common.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File(one), Self::File(other)) => one.start < other.end && other.start < one.end,
            _ => false,
        }
    }
}

/// Returns the flag of an option.
pub(super) fn flag_name(option: &str) -> String {
    format!("--{}", option.replace('_', "-"))
}
