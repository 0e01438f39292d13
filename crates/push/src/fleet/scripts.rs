//! The Lua scripts, and their replies.

use std::sync::LazyLock;

use bytes::Bytes;
use microcache_store::redis::{FromRedisValue, NoReply, Script, Value, from_redis_value};

const BEGIN: &str = include_str!("begin.lua");

const HISTORY: &str = include_str!("history.lua");

/// Changes documents.
pub(super) static CHANGE: LazyLock<Script> =
    LazyLock::new(|| script(&[HISTORY, include_str!("change.lua")]));
/// Deletes expired documents.
pub(super) static EXPIRE: LazyLock<Script> =
    LazyLock::new(|| script(&[HISTORY, include_str!("expire.lua")]));
/// Reads changes.
pub(super) static READ: LazyLock<Script> = LazyLock::new(|| script(&[include_str!("read.lua")]));

/// Approximate length of the stream, in changes: a node that is further behind reloads everything.
pub(super) const STREAM_LENGTH: u64 = 64 * 1024;

fn script(parts: &[&str]) -> Script {
    Script::new(format!("{BEGIN}\n{}", parts.join("\n")))
}

/// Formats an epoch.
pub(super) fn epoch(number: u64) -> String {
    format!("{number:x}")
}

/// The reply of `change.lua`.
#[derive(Debug)]
pub(super) enum ChangeReply {
    Done {
        epoch: u64,
        newest: u64,
        /// The outcome of each request, and the number of its version.
        done: Vec<(String, u64)>,
    },
    /// The node's copy is outdated; this is the current version.
    Stale {
        epoch: u64,
        number: u64,
    },
    Missing,
    Condition,
    Full,
}

impl ChangeReply {
    pub(super) fn read(reply: Value) -> Result<Self, NoReply> {
        let words: Vec<String> = values(reply)?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        Ok(match *words {
            ["done", epoch, newest, ref rest @ ..] => {
                let pairs = rest.chunks_exact(2);
                let pairs = pairs.map(|pair| Ok((pair[0].to_owned(), number(pair[1])?)));
                Self::Done {
                    epoch: parse_epoch(epoch)?,
                    newest: number(newest)?,
                    done: pairs.collect::<Result<_, _>>()?,
                }
            }
            ["stale", epoch, version] => Self::Stale {
                epoch: parse_epoch(epoch)?,
                number: number(version)?,
            },
            ["missing"] => Self::Missing,
            ["condition"] => Self::Condition,
            ["full"] => Self::Full,
            _ => return Err(NoReply::Unreadable),
        })
    }
}

/// The reply of `expire.lua`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ExpireReply {
    /// Number of documents deleted.
    pub(super) deleted: u64,
    /// Remaining lifetime of each, in milliseconds; zero if deleted.
    pub(super) left: Vec<u64>,
}

impl ExpireReply {
    pub(super) fn read(reply: Value) -> Result<Self, NoReply> {
        let words: Vec<String> = values(reply)?;
        let mut numbers = words.iter().skip(1).map(|word| number(word));
        Ok(Self {
            deleted: numbers.next().ok_or(NoReply::Unreadable)??,
            left: numbers.collect::<Result<_, _>>()?,
        })
    }
}

/// The reply of `read.lua`.
#[derive(Debug)]
pub(super) struct ReadReply {
    pub(super) epoch: u64,
    /// The number of the newest change.
    pub(super) newest: u64,
    /// The server's time, in milliseconds.
    pub(super) now: u64,
    pub(super) result: ReadResult,
}

#[derive(Debug)]
pub(super) enum ReadResult {
    /// The requested version is of another epoch.
    OtherEpoch,
    /// Later changes are no longer in the stream.
    Gap,
    Changes(Vec<StreamEntry>),
}

/// An entry of the stream.
#[derive(Debug)]
pub(super) struct StreamEntry {
    pub(super) number: u64,
    pub(super) kind: EntryKind,
    pub(super) name: String,
    pub(super) record: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryKind {
    Put,
    Deleted,
    /// A put whose content was replaced by a later change.
    Overtaken,
    /// Not a change of a document.
    Foreign,
}

impl EntryKind {
    pub(super) fn read(word: &[u8]) -> Self {
        match word {
            b"put" => Self::Put,
            b"gone" => Self::Deleted,
            b"overtaken" => Self::Overtaken,
            _ => Self::Foreign,
        }
    }
}

impl ReadReply {
    /// Returns the number up to which no further changes are possible, if `last` was the last one read:
    /// numbers are the server's time.
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
        let result = match &*next()? {
            b"other" => ReadResult::OtherEpoch,
            b"gap" => ReadResult::Gap,
            b"read" => {
                let mut entries = Vec::new();
                while let Ok(word) = next() {
                    entries.push(StreamEntry {
                        number: number(&text(word)?)?,
                        kind: EntryKind::read(&next()?),
                        name: lossy_text(&next()?),
                        record: next()?.into(),
                    });
                }
                ReadResult::Changes(entries)
            }
            _ => return Err(NoReply::Unreadable),
        };
        Ok(Self {
            epoch: parse_epoch(&epoch)?,
            newest: number(&newest)?,
            now: number(&now)?,
            result,
        })
    }
}

/// Decodes an array.
pub(super) fn values<T: FromRedisValue>(reply: Value) -> Result<Vec<T>, NoReply> {
    from_redis_value(reply).map_err(|_| NoReply::Unreadable)
}

/// Decodes a name, replacing invalid UTF-8, which no name contains.
pub(super) fn lossy_text(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

fn text(word: Vec<u8>) -> Result<String, NoReply> {
    String::from_utf8(word).map_err(|_| NoReply::Unreadable)
}

pub(super) fn number(word: &str) -> Result<u64, NoReply> {
    word.parse().map_err(|_| NoReply::Unreadable)
}

fn parse_epoch(word: &str) -> Result<u64, NoReply> {
    u64::from_str_radix(word, 16).map_err(|_| NoReply::Unreadable)
}
