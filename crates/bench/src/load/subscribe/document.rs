//! What is published: a word that says which publication it is and when it was due, and that is found again in whatever a server makes
//! of it.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::{Duration, Instant};

use memchr::memmem::Finder;

/// Where the word stands in what is published.
const PLACE: &str = "{event}";
/// Letters of a run's name.
const NAME: usize = 16;

/// What is published, with a place for the word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    before: String,
    after: String,
    size: usize,
}

impl Document {
    /// The text in which the word takes the place of `{event}`, filled up to so many bytes.
    pub fn new(text: &str, size: usize) -> Result<Self, String> {
        let wrong = || format!("`{text}` has not one {PLACE} in it, where the event is to stand");
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

    /// The bytes of each publication, unless the word alone has more.
    pub fn size(&self) -> usize {
        self.size
    }

    /// One publication of a run.
    pub(super) fn write(&self, run: &Run, mark: Mark) -> String {
        let word = format!("{}-{}-{}-", run.name, mark.number, mark.due.as_nanos());
        let length = self.before.len() + word.len() + self.after.len();
        let fill = "x".repeat(self.size.saturating_sub(length));
        format!("{}{word}{fill}{}", self.before, self.after)
    }
}

/// Which publication it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) number: u64,
    /// When it was due, since the beginning of the run.
    pub(super) due: Duration,
}

/// What tells the publications of a run from all others, and the clock of both ends.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) begin: Instant,
    name: String,
    finder: Finder<'static>,
}

impl Run {
    pub(super) fn begin() -> Self {
        // The hasher of the standard library begins with a number that nobody knows.
        let name = format!("{:0NAME$x}", RandomState::new().build_hasher().finish());
        Self {
            begin: Instant::now(),
            finder: Finder::new(&name).into_owned(),
            name,
        }
    }

    /// Which of the run's publications this is, if it is one.
    pub(super) fn find(&self, data: &[u8]) -> Option<Mark> {
        let at = self.finder.find(data)? + NAME;
        let rest = data.get(at..)?.strip_prefix(b"-")?;
        let (number, rest) = number(rest)?;
        let (due, _) = self::number(rest)?;
        Some(Mark {
            number,
            due: Duration::from_nanos(due),
        })
    }
}

/// The digits before a hyphen, and what comes behind it.
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
    fn what_was_published_is_found_again() {
        let run = Run::begin();
        let mark = Mark {
            number: 17,
            due: Duration::from_nanos(1_234_567),
        };
        let document = Document::new("{\"bench\":\"{event}\"}", 200).expect("it has a place");
        let text = document.write(&run, mark);
        assert_eq!(text.len(), 200);
        assert!(text.starts_with("{\"bench\":\""), "{text}");
        assert!(text.ends_with("xxx\"}"), "{text}");
        let wrapped = format!("{{\"url\":\"/x\",\"value\":{text}}}");
        assert_eq!(run.find(wrapped.as_bytes()), Some(mark));
        assert_eq!(Run::begin().find(wrapped.as_bytes()), None);
        let short = Document::new("{event}", 1).expect("it has a place");
        assert_eq!(run.find(short.write(&run, mark).as_bytes()), Some(mark));
    }

    #[test]
    fn half_a_word_is_none() {
        let run = Run::begin();
        for rest in ["", "-", "-17", "-17-", "-17-5", "-x-5-", "-+1-5-", "17-5-"] {
            let text = format!("{}{rest}", run.name);
            assert_eq!(run.find(text.as_bytes()), None, "{rest}");
        }
    }

    #[test]
    fn a_text_has_one_place() {
        for text in ["", "event", "{event}{event}"] {
            let told = Document::new(text, 1).expect_err(text);
            assert!(told.contains("has not one {event}"), "{told}");
        }
    }
}
