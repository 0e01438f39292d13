//! Write requests, their conditions and their outcomes.

use microcache_engine::OriginResponse;
use microcache_policy::{Fields, Millis, etag};

use crate::answer;
use crate::changes::change::DocumentContent;
use crate::changes::version::DocumentVersion;
use crate::name::DocumentName;
use crate::publishing::patch::Patch;

/// Largest TTL of a document, in seconds.
const MAX_TTL: u64 = 4_294_967_295;
/// The values of a TTL, for errors.
pub(crate) const TTL_RANGE: &str = "a number of seconds from 1 to 4294967295";

/// Returns the TTL of a document in milliseconds; `None` if it is out of range.
pub(crate) fn ttl_in_millis(seconds: u64) -> Option<Millis> {
    (1..=MAX_TTL).contains(&seconds).then_some(seconds * 1000)
}

/// A request to change one document.
#[derive(Debug)]
pub(crate) struct WriteRequest {
    pub(crate) name: DocumentName,
    pub(crate) op: WriteOp,
    pub(crate) condition: WriteCondition,
}

/// The operation of a write request.
#[derive(Debug)]
pub(crate) enum WriteOp {
    /// Replace the content, with an optional lifetime.
    Put(DocumentContent, Option<Millis>),
    /// Patch the content, keeping the expiry time.
    Patch(Patch),
    /// Delete the document.
    Delete,
}

/// The precondition of a write (RFC 9110 §13.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WriteCondition {
    /// `If-Match`.
    if_match: Option<VersionSet>,
    /// `If-None-Match`.
    if_none_match: Option<VersionSet>,
}

/// The versions named by a precondition.
#[derive(Clone, Debug, PartialEq, Eq)]
enum VersionSet {
    /// `*`.
    Any,
    Listed(Vec<DocumentVersion>),
}

impl WriteCondition {
    /// Reads the precondition of a request.
    pub(crate) fn from_fields(fields: Fields<'_>) -> Self {
        Self {
            if_match: VersionSet::parse(fields, "if-match"),
            if_none_match: VersionSet::parse(fields, "if-none-match"),
        }
    }

    /// Requires this version.
    pub(crate) fn if_match(version: DocumentVersion) -> Self {
        Self {
            if_match: Some(VersionSet::Listed(vec![version])),
            if_none_match: None,
        }
    }

    /// Returns whether there is any precondition.
    pub(crate) const fn is_set(&self) -> bool {
        self.if_match.is_some() || self.if_none_match.is_some()
    }

    /// Formats `If-Match` and `If-None-Match` for the Redis scripts: empty, `*`, or versions with a space
    /// before and after each.
    pub(crate) fn script_arguments(&self) -> (String, String) {
        let written = |versions: &Option<VersionSet>| match versions {
            None => String::new(),
            Some(VersionSet::Any) => "*".to_owned(),
            Some(VersionSet::Listed(versions)) => {
                let each = versions.iter().map(|it| format!("{it} "));
                std::iter::once(" ".to_owned()).chain(each).collect()
            }
        };
        (written(&self.if_match), written(&self.if_none_match))
    }

    /// Evaluates the precondition for the current version; `None` if the document does not exist.
    pub(crate) fn holds(&self, now: Option<DocumentVersion>) -> bool {
        let names = |versions: &VersionSet| now.is_some_and(|now| versions.contains(now));
        self.if_match.as_ref().is_none_or(names) && !self.if_none_match.as_ref().is_some_and(names)
    }
}

impl VersionSet {
    fn parse(fields: Fields<'_>, name: &str) -> Option<Self> {
        let mut lines = fields.all(name).peekable();
        lines.peek()?;
        let mut versions = Vec::new();
        for line in lines {
            if line == b"*" {
                return Some(Self::Any);
            }
            // Other tags cannot match any document.
            let strong = etag::list(line).filter(|tag| !tag.is_weak());
            versions.extend(strong.filter_map(|tag| {
                let text = std::str::from_utf8(tag.opaque()).ok()?;
                text.parse::<DocumentVersion>().ok()
            }));
        }
        Some(Self::Listed(versions))
    }

    fn contains(&self, version: DocumentVersion) -> bool {
        match self {
            Self::Any => true,
            Self::Listed(versions) => versions.contains(&version),
        }
    }
}

/// The outcome of a write request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteOutcome {
    /// The document was created.
    Created(DocumentVersion),
    /// The content was replaced.
    Changed(DocumentVersion),
    /// The content was unchanged.
    Same(DocumentVersion),
    Deleted,
}

impl WriteOutcome {
    /// Converts to a response.
    pub(crate) fn answer(self) -> OriginResponse {
        let (status, version) = match self {
            Self::Created(version) => (201, Some(version)),
            Self::Changed(version) | Self::Same(version) => (204, Some(version)),
            Self::Deleted => (204, None),
        };
        let mut answer = answer::bare(status);
        if let Some(version) = version {
            answer.fields.push("ETag", version.entity_tag());
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(block: &str, now: Option<DocumentVersion>) -> bool {
        WriteCondition::from_fields(Fields::new(block.as_bytes())).holds(now)
    }

    #[test]
    fn conditions_are_held_against_the_version_there_is() {
        let now = Some(DocumentVersion {
            epoch: 1,
            number: 2,
        });
        assert!(holds("", now) && holds("", None));
        assert!(holds("If-Match: \"1.2\"\r\n", now));
        assert!(holds("If-Match: \"x\", \"1.2\"\r\n", now));
        assert!(holds("If-Match: *\r\n", now));
        for other in [
            "If-Match: \"1.1\"\r\n",
            "If-Match: W/\"1.2\"\r\n",
            "If-Match: 1.2\r\n",
            "If-None-Match: *\r\n",
            "If-None-Match: \"1.2\"\r\n",
        ] {
            assert!(!holds(other, now), "{other}");
        }
        let condition = |block: &str| {
            WriteCondition::from_fields(Fields::new(block.as_bytes())).script_arguments()
        };
        let text = |only: &str, never: &str| (only.to_owned(), never.to_owned());
        assert_eq!(condition(""), text("", ""));
        assert_eq!(
            condition("If-Match: x\r\nIf-None-Match: *\r\n"),
            text(" ", "*")
        );
        assert_eq!(
            condition("If-Match: \"1.2\", \"1.3\"\r\n"),
            text(" 1.2 1.3 ", "")
        );
        assert!(holds("If-None-Match: *\r\n", None));
        assert!(!holds("If-Match: *\r\n", None));
        assert!(!holds("If-Match: \"1.2\"\r\n", None));
    }
}
