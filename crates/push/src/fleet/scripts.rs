//! What Redis does in one go, and what it says then.

use std::sync::LazyLock;

use bytes::Bytes;
use microcache_store::redis::{FromRedisValue, NoReply, Script, Value, from_redis_value};

const BEGIN: &str = include_str!("begin.lua");

const PAST: &str = include_str!("past.lua");

/// Changes documents.
pub(super) static CHANGE: LazyLock<Script> =
    LazyLock::new(|| script(&[PAST, include_str!("change.lua")]));
/// Takes away what has had its time.
pub(super) static EXPIRE: LazyLock<Script> =
    LazyLock::new(|| script(&[PAST, include_str!("expire.lua")]));
/// Says what has changed.
pub(super) static READ: LazyLock<Script> = LazyLock::new(|| script(&[include_str!("read.lua")]));

/// The changes that the stream keeps, about: a node that has missed more takes up everything anew.
pub(super) const KEPT: u64 = 64 * 1024;

fn script(parts: &[&str]) -> Script {
    Script::new(format!("{BEGIN}\n{}", parts.join("\n")))
}

/// A life of the documents, as it is written.
pub(super) fn epoch(number: u64) -> String {
    format!("{number:x}")
}

/// What became of a change.
#[derive(Debug)]
pub(super) enum Changed {
    Done {
        epoch: u64,
        newest: u64,
        /// What was done of each, and the number of its version.
        done: Vec<(String, u64)>,
    },
    /// The node's copy is another version than this one.
    Stale {
        epoch: u64,
        number: u64,
    },
    Missing,
    Condition,
    Full,
}

impl Changed {
    pub(super) fn read(reply: Value) -> Result<Self, NoReply> {
        let words: Vec<String> = values(reply)?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        Ok(match *words {
            ["done", epoch, newest, ref rest @ ..] => {
                let pairs = rest.chunks_exact(2);
                let pairs = pairs.map(|pair| Ok((pair[0].to_owned(), number(pair[1])?)));
                Self::Done {
                    epoch: life(epoch)?,
                    newest: number(newest)?,
                    done: pairs.collect::<Result<_, _>>()?,
                }
            }
            ["stale", epoch, version] => Self::Stale {
                epoch: life(epoch)?,
                number: number(version)?,
            },
            ["missing"] => Self::Missing,
            ["condition"] => Self::Condition,
            ["full"] => Self::Full,
            _ => return Err(NoReply::Unreadable),
        })
    }
}

/// What became of documents that have had their time.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Expired {
    /// So many are gone by this.
    pub(super) gone: u64,
    /// How long each has left, in milliseconds; zero if it is gone.
    pub(super) left: Vec<u64>,
}

impl Expired {
    pub(super) fn read(reply: Value) -> Result<Self, NoReply> {
        let words: Vec<String> = values(reply)?;
        let mut numbers = words.iter().skip(1).map(|word| number(word));
        Ok(Self {
            gone: numbers.next().ok_or(NoReply::Unreadable)??,
            left: numbers.collect::<Result<_, _>>()?,
        })
    }
}

/// What was read.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) epoch: u64,
    /// The number of the last change there is.
    pub(super) newest: u64,
    /// The server's time, in milliseconds.
    pub(super) now: u64,
    pub(super) what: What,
}

#[derive(Debug)]
pub(super) enum What {
    /// Numbers of another life were asked for.
    Other,
    /// Some changes are not told any more.
    Gap,
    Changes(Vec<Entry>),
}

/// A change, as the stream tells it.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) number: u64,
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) record: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Put,
    Gone,
    /// It is something else by now, which is told later.
    Overtaken,
    /// It is no change of a document.
    Nothing,
}

impl Kind {
    pub(super) fn read(word: &[u8]) -> Self {
        match word {
            b"put" => Self::Put,
            b"gone" => Self::Gone,
            b"overtaken" => Self::Overtaken,
            _ => Self::Nothing,
        }
    }
}

impl Page {
    /// Up to where no other changes can be, if this was the last one that was read: numbers are the server's time.
    pub(super) fn through(&self, last: u64) -> u64 {
        if last < self.newest {
            return last;
        }
        last.max(self.now.saturating_mul(1000).saturating_sub(1))
    }

    pub(super) fn read(reply: Value) -> Result<Self, NoReply> {
        let mut words = values::<Vec<u8>>(reply)?.into_iter();
        let mut next = || words.next().ok_or(NoReply::Unreadable);
        let (epoch, newest, now) = (text(next()?)?, text(next()?)?, text(next()?)?);
        let what = match &*next()? {
            b"other" => What::Other,
            b"gap" => What::Gap,
            b"read" => {
                let mut entries = Vec::new();
                while let Ok(word) = next() {
                    entries.push(Entry {
                        number: number(&text(word)?)?,
                        kind: Kind::read(&next()?),
                        name: shown(&next()?),
                        record: next()?.into(),
                    });
                }
                What::Changes(entries)
            }
            _ => return Err(NoReply::Unreadable),
        };
        Ok(Self {
            epoch: life(&epoch)?,
            newest: number(&newest)?,
            now: number(&now)?,
            what,
        })
    }
}

/// The members of an array.
pub(super) fn values<T: FromRedisValue>(reply: Value) -> Result<Vec<T>, NoReply> {
    from_redis_value(reply).map_err(|_| NoReply::Unreadable)
}

/// A name. What is none stays none, and can be shown.
pub(super) fn shown(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

fn text(word: Vec<u8>) -> Result<String, NoReply> {
    String::from_utf8(word).map_err(|_| NoReply::Unreadable)
}

pub(super) fn number(word: &str) -> Result<u64, NoReply> {
    word.parse().map_err(|_| NoReply::Unreadable)
}

fn life(word: &str) -> Result<u64, NoReply> {
    u64::from_str_radix(word, 16).map_err(|_| NoReply::Unreadable)
}
