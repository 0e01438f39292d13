//! Positions in the sequence of all changes.

use std::fmt;
use std::str::FromStr;

/// The number of a change, qualified by the epoch of the generation or of the shared documents it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// The epoch within which the number is unique.
    pub(crate) epoch: u64,
    pub(crate) number: u64,
}

impl Version {
    /// Returns the entity tag of this version.
    pub(crate) fn entity_tag(self) -> String {
        format!("\"{self}\"")
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}.{}", self.epoch, self.number)
    }
}

/// Error: the text is no version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoVersion;

impl FromStr for Version {
    type Err = NoVersion;

    fn from_str(text: &str) -> Result<Self, NoVersion> {
        let (epoch, number) = text.split_once('.').ok_or(NoVersion)?;
        let version = Self {
            epoch: u64::from_str_radix(epoch, 16).map_err(|_| NoVersion)?,
            number: number.parse().map_err(|_| NoVersion)?,
        };
        // Each version has one spelling.
        (version.to_string() == text)
            .then_some(version)
            .ok_or(NoVersion)
    }
}

/// An event id: the position at which a subscription resumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The last change delivered.
    pub(crate) version: Version,
    /// Snapshot bound after a reset, up to which changes are sent as full snapshots; 0 = none.
    pub(crate) told_whole_through: u64,
}

impl Place {
    /// Returns the change up to which deletions need not be delivered.
    pub(crate) fn knows_through(&self) -> u64 {
        self.version.number.max(self.told_whole_through)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.told_whole_through {
            0 => write!(f, "{}", self.version),
            through => write!(f, "{}-{through}", self.version),
        }
    }
}

impl FromStr for Place {
    type Err = NoVersion;

    fn from_str(text: &str) -> Result<Self, NoVersion> {
        let (version, through) = match text.split_once('-') {
            Some((version, through)) => (version, through.parse().map_err(|_| NoVersion)?),
            None => (text, 0),
        };
        Ok(Self {
            version: version.parse()?,
            told_whole_through: through,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let version = Version {
            epoch: 0xabc,
            number: 17,
        };
        assert_eq!(version.to_string(), "abc.17");
        assert_eq!("abc.17".parse(), Ok(version));
        for other in [
            "", ".", "abc", "abc.", ".17", "ABC.17", "0abc.17", "abc.017", "abc.+17", "abc.17 ",
            "abc.17.1",
        ] {
            assert_eq!(other.parse::<Version>(), Err(NoVersion), "{other}");
        }
    }

    #[test]
    fn a_place_may_be_in_the_middle_of_what_is_told_first() {
        for text in ["abc.17", "abc.0-17"] {
            let place: Place = text.parse().expect("a place");
            assert_eq!(
                (place.to_string().as_str(), place.knows_through()),
                (text, 17)
            );
        }
        for other in ["abc.17-", "abc.17-x", "-17", "abc.17-1-2"] {
            assert_eq!(other.parse::<Place>(), Err(NoVersion), "{other}");
        }
    }
}
