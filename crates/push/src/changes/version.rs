//! Positions in the sequence of all changes.

use std::fmt;
use std::str::FromStr;

/// The number of a change, qualified by the epoch of the generation or of the shared documents it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DocumentVersion {
    /// The epoch within which the number is unique.
    pub(crate) epoch: u64,
    pub(crate) number: u64,
}

impl DocumentVersion {
    /// Returns the entity tag of this version.
    pub(crate) fn entity_tag(self) -> String {
        format!("\"{self}\"")
    }
}

impl fmt::Display for DocumentVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}.{}", self.epoch, self.number)
    }
}

/// Error: the text is not a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VersionError;

impl FromStr for DocumentVersion {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        let (epoch, number) = text.split_once('.').ok_or(VersionError)?;
        let version = Self {
            epoch: u64::from_str_radix(epoch, 16).map_err(|_| VersionError)?,
            number: number.parse().map_err(|_| VersionError)?,
        };
        // Each version has one spelling.
        (version.to_string() == text)
            .then_some(version)
            .ok_or(VersionError)
    }
}

/// An event id: the position at which a subscription resumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventId {
    /// The last change delivered.
    pub(crate) version: DocumentVersion,
    /// Snapshot bound after a reset, up to which changes are sent as full snapshots; 0 = none.
    pub(crate) snapshot_through: u64,
}

impl EventId {
    /// Returns the change up to which deletions need not be delivered.
    pub(crate) fn known_through(&self) -> u64 {
        self.version.number.max(self.snapshot_through)
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.snapshot_through {
            0 => write!(f, "{}", self.version),
            through => write!(f, "{}-{through}", self.version),
        }
    }
}

impl FromStr for EventId {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        let (version, through) = match text.split_once('-') {
            Some((version, through)) => (version, through.parse().map_err(|_| VersionError)?),
            None => (text, 0),
        };
        Ok(Self {
            version: version.parse()?,
            snapshot_through: through,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_written_versions_are_parsed() {
        let version = DocumentVersion {
            epoch: 0xabc,
            number: 17,
        };
        assert_eq!(version.to_string(), "abc.17");
        assert_eq!("abc.17".parse(), Ok(version));
        for other in [
            "", ".", "abc", "abc.", ".17", "ABC.17", "0abc.17", "abc.017", "abc.+17", "abc.17 ",
            "abc.17.1",
        ] {
            assert_eq!(
                other.parse::<DocumentVersion>(),
                Err(VersionError),
                "{other}"
            );
        }
    }

    #[test]
    fn a_position_may_lie_within_a_snapshot() {
        for text in ["abc.17", "abc.0-17"] {
            let id: EventId = text.parse().expect("a place");
            assert_eq!((id.to_string().as_str(), id.known_through()), (text, 17));
        }
        for other in ["abc.17-", "abc.17-x", "-17", "abc.17-1-2"] {
            assert_eq!(other.parse::<EventId>(), Err(VersionError), "{other}");
        }
    }
}
