//! Published documents, each carrying a marker with its number and scheduled time that can be found in every
//! form of delivery.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::{Duration, Instant};

use memchr::memmem::Finder;

/// Placeholder of the marker.
const PLACE: &str = "{event}";
/// Length of a run's identifier, in hexadecimal digits.
const NAME: usize = 16;

/// Template of the published document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentTemplate {
    before: String,
    after: String,
    size: usize,
}

impl DocumentTemplate {
    /// Parses a template with one `{event}` and pads the documents to `size` bytes.
    ///
    /// # Errors
    ///
    /// A message for the user if there is not exactly one placeholder.
    pub fn new(text: &str, size: usize) -> Result<Self, String> {
        let wrong = || format!("`{text}` must contain {PLACE} exactly once");
        let (before, after) = text.split_once(PLACE).ok_or_else(wrong)?;
        if after.contains(PLACE) {
            return Err(wrong());
        }
        Ok(Self {
            before: before.to_owned(),
            after: after.to_owned(),
            size,
        })
    }

    /// Size of each document in bytes, unless the marker alone exceeds it.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the document of one publication.
    pub(super) fn write(&self, run: &RunIdentity, mark: PublicationMarker) -> String {
        let word = format!("{}-{}-{}-", run.name, mark.number, mark.due.as_nanos());
        let length = self.before.len() + word.len() + self.after.len();
        let fill = "x".repeat(self.size.saturating_sub(length));
        format!("{}{word}{fill}{}", self.before, self.after)
    }
}

/// Marker of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PublicationMarker {
    pub(super) number: u64,
    /// Scheduled time, relative to the start of the run.
    pub(super) due: Duration,
}

/// Identity of a run in its markers, and the clock shared by publisher and subscribers.
#[derive(Debug)]
pub(super) struct RunIdentity {
    pub(super) begin: Instant,
    name: String,
    finder: Finder<'static>,
}

impl RunIdentity {
    pub(super) fn begin() -> Self {
        // The standard library seeds its hashers randomly.
        let name = format!("{:0NAME$x}", RandomState::new().build_hasher().finish());
        Self {
            begin: Instant::now(),
            finder: Finder::new(&name).into_owned(),
            name,
        }
    }

    /// Returns the marker of this run in `data`, if any.
    pub(super) fn find(&self, data: &[u8]) -> Option<PublicationMarker> {
        let at = self.finder.find(data)? + NAME;
        let rest = data.get(at..)?.strip_prefix(b"-")?;
        let (number, rest) = number(rest)?;
        let (due, _) = self::number(rest)?;
        Some(PublicationMarker {
            number,
            due: Duration::from_nanos(due),
        })
    }
}

/// Returns the number before a hyphen, and the bytes after it.
fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let end = memchr::memchr(b'-', bytes)?;
    let digits = std::str::from_utf8(&bytes[..end]).ok()?;
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some((digits.parse().ok()?, &bytes[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_words_are_found_again() {
        let run = RunIdentity::begin();
        let mark = PublicationMarker {
            number: 17,
            due: Duration::from_nanos(1_234_567),
        };
        let document =
            DocumentTemplate::new("{\"bench\":\"{event}\"}", 200).expect("it has a place");
        let text = document.write(&run, mark);
        assert_eq!(text.len(), 200);
        assert!(text.starts_with("{\"bench\":\""), "{text}");
        assert!(text.ends_with("xxx\"}"), "{text}");
        let wrapped = format!("{{\"url\":\"/x\",\"value\":{text}}}");
        assert_eq!(run.find(wrapped.as_bytes()), Some(mark));
        assert_eq!(RunIdentity::begin().find(wrapped.as_bytes()), None);
        let short = DocumentTemplate::new("{event}", 1).expect("it has a place");
        assert_eq!(run.find(short.write(&run, mark).as_bytes()), Some(mark));
    }

    #[test]
    fn half_a_word_is_none() {
        let run = RunIdentity::begin();
        for rest in ["", "-", "-17", "-17-", "-17-5", "-x-5-", "-+1-5-", "17-5-"] {
            let text = format!("{}{rest}", run.name);
            assert_eq!(run.find(text.as_bytes()), None, "{rest}");
        }
    }

    #[test]
    fn a_text_has_one_place() {
        for text in ["", "event", "{event}{event}"] {
            let message = DocumentTemplate::new(text, 1).expect_err(text);
            assert!(
                message.contains("must contain {event} exactly once"),
                "{message}"
            );
        }
    }
}
