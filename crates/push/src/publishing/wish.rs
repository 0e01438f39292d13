//! Write requests, their conditions and their outcomes.

use microcache_engine::OriginResponse;
use microcache_policy::{Fields, Millis, etag};

use crate::answer;
use crate::changes::change::Content;
use crate::changes::version::Version;
use crate::name::Name;
use crate::publishing::patch::Patch;

/// A request to change one document.
#[derive(Debug)]
pub(crate) struct Wish {
    pub(crate) name: Name,
    pub(crate) deed: Deed,
    pub(crate) condition: Condition,
}

/// The operation of a write request.
#[derive(Debug)]
pub(crate) enum Deed {
    /// Replace the content, with an optional lifetime.
    Put(Content, Option<Millis>),
    /// Patch the content, keeping the expiry time.
    Patch(Patch),
    /// Delete the document.
    Delete,
}

/// The precondition of a write (RFC 9110 §13.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Condition {
    /// `If-Match`.
    only: Option<Versions>,
    /// `If-None-Match`.
    never: Option<Versions>,
}

/// The versions named by a precondition.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Versions {
    /// `*`.
    Any,
    These(Vec<Version>),
}

impl Condition {
    /// Reads the precondition of a request.
    pub(crate) fn of(fields: Fields<'_>) -> Self {
        Self {
            only: Versions::of(fields, "if-match"),
            never: Versions::of(fields, "if-none-match"),
        }
    }

    /// Requires this version.
    pub(crate) fn only(version: Version) -> Self {
        Self {
            only: Some(Versions::These(vec![version])),
            never: None,
        }
    }

    /// Returns whether there is any precondition.
    pub(crate) const fn is_set(&self) -> bool {
        self.only.is_some() || self.never.is_some()
    }

    /// Formats `If-Match` and `If-None-Match` for the Redis scripts: empty, `*`, or versions with a space
    /// before and after each.
    pub(crate) fn written(&self) -> (String, String) {
        let written = |versions: &Option<Versions>| match versions {
            None => String::new(),
            Some(Versions::Any) => "*".to_owned(),
            Some(Versions::These(versions)) => {
                let each = versions.iter().map(|it| format!("{it} "));
                std::iter::once(" ".to_owned()).chain(each).collect()
            }
        };
        (written(&self.only), written(&self.never))
    }

    /// Evaluates the precondition for the current version; `None` if the document does not exist.
    pub(crate) fn holds(&self, now: Option<Version>) -> bool {
        let names = |versions: &Versions| now.is_some_and(|now| versions.has(now));
        self.only.as_ref().is_none_or(names) && !self.never.as_ref().is_some_and(names)
    }
}

impl Versions {
    fn of(fields: Fields<'_>, name: &str) -> Option<Self> {
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
                text.parse::<Version>().ok()
            }));
        }
        Some(Self::These(versions))
    }

    fn has(&self, version: Version) -> bool {
        match self {
            Self::Any => true,
            Self::These(versions) => versions.contains(&version),
        }
    }
}

/// The outcome of a write request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// The document was created.
    Created(Version),
    /// The content was replaced.
    Changed(Version),
    /// The content was unchanged.
    Same(Version),
    Deleted,
}

impl Done {
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

/// Rejection of a write request; the document is unchanged, except possibly for `Unknown`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    #[error("there is no such document")]
    Missing,
    #[error("the document is not, or not any more, what the request names")]
    Condition,
    #[error("a change has to say which version it is meant for, by If-Match or If-None-Match")]
    NoCondition,
    #[error("the memory for documents is full (push_memory)")]
    Full,
    #[error("the document would be too large (push_max_document)")]
    TooLarge,
    #[error("only a JSON document can be patched")]
    NoJson,
    #[error("a test of the patch does not hold")]
    Test,
    #[error("the patch cannot be applied: {0}")]
    Unfit(String),
    #[error("the change could not be written down: {0}")]
    Unwritten(String),
    #[error("too many changes wait to be written down")]
    Busy,
    #[error("nothing was changed: push_redis, which keeps the documents: {0}")]
    Unreachable(String),
    #[error(
        "the change may have been made, or not: push_redis, which keeps the documents: {0}; look at the document, or send the same again"
    )]
    Unknown(String),
    #[error("nothing was changed: push_redis has no memory left (maxmemory)")]
    KeeperFull,
    #[error("nothing was changed: others change the document faster than it can be patched")]
    Contended,
}

impl Refused {
    /// Returns the HTTP status.
    pub(crate) const fn status(&self) -> u16 {
        match self {
            Self::Missing => 404,
            Self::Test => 409,
            Self::Condition => 412,
            Self::TooLarge => 413,
            Self::NoJson => 415,
            Self::Unfit(_) => 422,
            Self::NoCondition => 428,
            Self::Unwritten(_)
            | Self::Busy
            | Self::Unreachable(_)
            | Self::Unknown(_)
            | Self::Contended => 503,
            Self::Full | Self::KeeperFull => 507,
        }
    }

    /// Converts to a response.
    pub(crate) fn answer(&self) -> OriginResponse {
        let answer = answer::problem(self.status(), self);
        if self.status() == 503 {
            answer::later(answer)
        } else {
            answer
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(block: &str, now: Option<Version>) -> bool {
        Condition::of(Fields::new(block.as_bytes())).holds(now)
    }

    #[test]
    fn conditions_are_held_against_the_version_there_is() {
        let now = Some(Version {
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
        let condition = |block: &str| Condition::of(Fields::new(block.as_bytes())).written();
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
