//! Pages in place of error responses.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use bytes::Bytes;

use super::place::Place;
use crate::files::media_type;

/// The error pages of a route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorPages {
    /// Pages for single statuses come before pages for classes.
    pub(super) pages: Vec<ErrorPage>,
    /// Errors of the origin get the pages too.
    pub(super) from_origin: bool,
}

/// A page for some statuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorPage {
    pub(super) statuses: RangeInclusive<u16>,
    pub(crate) content_type: String,
    /// The file with the body.
    pub(super) file: (PathBuf, Place),
    pub(crate) body: Bytes,
}

impl ErrorPage {
    /// Returns the page for these statuses, whose file is to be read.
    pub(super) fn for_statuses(statuses: RangeInclusive<u16>, file: (PathBuf, Place)) -> Self {
        Self {
            statuses,
            content_type: media_type(&file.0),
            file,
            body: Bytes::new(),
        }
    }
}

impl ErrorPages {
    /// Returns the page for a status. Only some errors of the origin are replaced.
    pub(crate) fn page(&self, status: u16, is_generated: bool) -> Option<&ErrorPage> {
        let mut pages = self.pages.iter();
        (is_generated || self.from_origin)
            .then(|| pages.find(|page| page.statuses.contains(&status)))
            .flatten()
    }

    /// Returns true if there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }
}
