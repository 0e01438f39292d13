//! memcached's meta protocol, as far as a tier needs it: `mg`, `ms`, `md`, `ma` and `mn`, and the answers.
//!
//! Responses come in the order of the requests. There is nothing else that ties them together, so
//! a connection that was not read to the end of every answer is never used again.

use std::fmt::Write as _;
use std::io;

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

use crate::tier::TierError;

/// The longest line a server may answer with.
const MAX_LINE: u64 = 2048;

/// Commands that are sent together and answered together.
#[derive(Debug, Default)]
pub struct Request {
    parts: Vec<Bytes>,
    answers: usize,
}

/// What goes with a value.
#[derive(Clone, Copy, Debug, Default)]
pub struct Storing {
    /// After how many seconds it is forgotten: see [`super::time`].
    pub expires: u64,
    /// Only if nothing was stored or removed since this was the item's number.
    pub only_if: Option<u64>,
    /// Only if there is nothing yet.
    pub only_new: bool,
}

impl Request {
    /// Asks for an item: its value, its number, its client's flags. With `claim`, an item that is
    /// not there is put there, empty, for so many seconds, and the first one to ask is told so.
    #[must_use]
    pub fn get(self, key: &str, claim: Option<u64>) -> Self {
        self.command(match claim {
            Some(seconds) => format!("mg {key} v c f t N{seconds}\r\n"),
            None => format!("mg {key} v c f\r\n"),
        })
    }

    /// The same without the value.
    #[must_use]
    pub fn peek(self, key: &str, claim: u64) -> Self {
        self.command(format!("mg {key} c N{claim}\r\n"))
    }

    /// Has an item forgotten after so many seconds from now, and not when it was to be.
    #[must_use]
    pub fn touch(self, key: &str, expires: u64) -> Self {
        self.command(format!("mg {key} T{expires}\r\n"))
    }

    /// Asks in how many seconds an item expires.
    #[must_use]
    pub fn lifetime(self, key: &str) -> Self {
        self.command(format!("mg {key} t\r\n"))
    }

    /// Stores a value, given in parts.
    #[must_use]
    pub fn set(self, key: &str, value: impl IntoIterator<Item = Bytes>, how: Storing) -> Self {
        let value: SmallVec<[Bytes; 4]> = value.into_iter().collect();
        let length: usize = value.iter().map(Bytes::len).sum();
        let mut line = format!("ms {key} {length} T{}", how.expires);
        if let Some(number) = how.only_if {
            let _ = write!(line, " C{number}");
        }
        if how.only_new {
            line.push_str(" ME");
        }
        line.push_str("\r\n");
        let mut all = self.command(line);
        all.parts.extend(value);
        all.parts.push(Bytes::from_static(b"\r\n"));
        all
    }

    /// Counts an item on by so much, and asks for the sum. With `begin`, an item that is not there is put
    /// there with that number instead.
    #[must_use]
    pub fn count(self, key: &str, by: u64, begin: Option<u64>) -> Self {
        self.command(match begin {
            Some(begin) => format!("ma {key} v D{by} N0 J{begin}\r\n"),
            None => format!("ma {key} v D{by}\r\n"),
        })
    }

    /// Removes an item; with a number, only that one.
    #[must_use]
    pub fn delete(self, key: &str, only_if: Option<u64>) -> Self {
        self.command(match only_if {
            Some(number) => format!("md {key} C{number}\r\n"),
            None => format!("md {key}\r\n"),
        })
    }

    /// Asks whether anybody is there.
    #[must_use]
    pub fn noop(self) -> Self {
        self.command("mn\r\n".to_owned())
    }

    fn command(mut self, line: String) -> Self {
        self.parts.push(line.into());
        self.answers += 1;
        self
    }

    /// The bytes to send, in parts.
    pub(super) fn parts(&self) -> &[Bytes] {
        &self.parts
    }

    /// How many answers belong to it.
    pub(super) const fn answers(&self) -> usize {
        self.answers
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaResponse {
    /// Done; and the item, where one was asked for.
    Done(Item),
    /// There is no such item.
    Missing,
    /// The item is not the one it was to be.
    Changed,
    /// There is one already.
    NotStored,
    /// Somebody is there.
    Alive,
    /// The value is longer than we take, and was read over.
    TooLong,
    /// The server will not: what it says.
    Refused(String),
}

impl MetaResponse {
    /// The error of whoever could not expect this.
    pub fn is_unexpected(&self) -> TierError {
        TierError::Failed(match self {
            Self::Refused(reason) => format!("the server says: {reason}"),
            Self::TooLong => "a value is longer than it can be".to_owned(),
            _ => "an answer that does not belong to the question".to_owned(),
        })
    }
}

/// An item as a server gives it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// The value.
    pub value: Bytes,
    /// Its number: another one after every change.
    pub number: u64,
    /// What the client that stored it wanted to remember. Ours are 0.
    pub client_flags: u32,
    /// The seconds until it expires, where they were asked for; the most there are if it never does.
    pub seconds_left: Option<u64>,
    /// It is not there, or stale, and whoever asked is the one to bring it (`W`).
    pub won: bool,
    /// Somebody else was told to bring it (`Z`).
    pub taken: bool,
    /// Somebody marked it as stale (`X`).
    pub stale: bool,
}

/// Why an answer cannot be read. Nothing after it can be believed.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The connection ended.
    #[error("it closed the connection")]
    Closed,
    /// The connection failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// This is not memcached's protocol, or an error in it.
    #[error(
        "it answered {0:?}, which is not memcached's meta protocol (version 1.6 or later, no password)"
    )]
    Foreign(String),
}

/// Reads one answer with a value of at most `max_value` bytes. Not to be resumed when dropped.
pub async fn read_answer<R>(
    reader: &mut BufReader<R>,
    max_value: usize,
) -> Result<MetaResponse, Unreadable>
where
    R: tokio::io::AsyncRead + Unpin,
{
    let line = read_line(reader).await?;
    let (code, rest) = line.split_at_checked(2).unwrap_or((&line, ""));
    if !(rest.is_empty() || rest.starts_with(' ')) {
        return match line.strip_prefix("SERVER_ERROR ") {
            Some(reason) => Ok(MetaResponse::Refused(reason.to_owned())),
            None => Err(Unreadable::Foreign(line)),
        };
    }
    let mut words = rest.split_ascii_whitespace();
    match code {
        "VA" => {
            let length = words.next().and_then(number);
            let (Some(length), Some(item)) = (length, item(words)) else {
                return Err(Unreadable::Foreign(line));
            };
            match read_value(reader, length, max_value).await? {
                Some(value) => Ok(MetaResponse::Done(Item { value, ..item })),
                None => Ok(MetaResponse::TooLong),
            }
        }
        "HD" => match item(words) {
            Some(item) => Ok(MetaResponse::Done(item)),
            None => Err(Unreadable::Foreign(line)),
        },
        "EN" | "NF" => Ok(MetaResponse::Missing),
        "EX" => Ok(MetaResponse::Changed),
        "NS" => Ok(MetaResponse::NotStored),
        "MN" => Ok(MetaResponse::Alive),
        _ => Err(Unreadable::Foreign(line)),
    }
}

/// Reads a line, without its end.
pub(super) async fn read_line<R>(reader: &mut BufReader<R>) -> Result<String, Unreadable>
where
    R: tokio::io::AsyncRead + Unpin,
{
    let mut line = Vec::new();
    reader.take(MAX_LINE).read_until(b'\n', &mut line).await?;
    match line.strip_suffix(b"\r\n").map(str::from_utf8) {
        Some(Ok(text)) => Ok(text.to_owned()),
        None if !line.ends_with(b"\n") && (line.len() as u64) < MAX_LINE => Err(Unreadable::Closed),
        _ => {
            let beginning = &line[..line.len().min(60)];
            Err(Unreadable::Foreign(beginning.escape_ascii().to_string()))
        }
    }
}

/// Reads a value into memory of exactly its size: it may be kept for long. `None` if it is too
/// long; the deadline bounds how much of it is read over.
async fn read_value<R>(
    reader: &mut BufReader<R>,
    length: u64,
    max_value: usize,
) -> Result<Option<Bytes>, Unreadable>
where
    R: tokio::io::AsyncRead + Unpin,
{
    let value = if length <= max_value as u64 {
        let mut value = BytesMut::with_capacity(length as usize);
        let mut rest = reader.take(length);
        while (value.len() as u64) < length {
            if rest.read_buf(&mut value).await? == 0 {
                return Err(Unreadable::Closed);
            }
        }
        Some(value.freeze())
    } else {
        let over = tokio::io::copy_buf(&mut reader.take(length), &mut tokio::io::sink()).await?;
        if over < length {
            return Err(Unreadable::Closed);
        }
        None
    };
    let mut end = [0; 2];
    match reader.read_exact(&mut end).await {
        Ok(_) if end == *b"\r\n" => Ok(value),
        Ok(_) => Err(Unreadable::Foreign(end.escape_ascii().to_string())),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(Unreadable::Closed),
        Err(error) => Err(error.into()),
    }
}

/// What the flags of an answer say; those we did not ask for mean nothing to us.
fn item<'a>(flags: impl Iterator<Item = &'a str>) -> Option<Item> {
    let mut item = Item::default();
    for flag in flags {
        match flag.split_at_checked(1)? {
            ("c", value) => item.number = number(value)?,
            ("f", value) => item.client_flags = number(value)?.try_into().ok()?,
            ("t", "-1") => item.seconds_left = Some(u64::MAX),
            ("t", seconds) => item.seconds_left = Some(number(seconds)?),
            ("W", "") => item.won = true,
            ("Z", "") => item.taken = true,
            ("X", "") => item.stale = true,
            _ => {}
        }
    }
    Some(item)
}

/// Digits only: Rust's own reading would take a sign.
fn number(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 1000;

    fn read_all(input: &[u8]) -> Vec<Result<MetaResponse, String>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        // Two bytes of buffer: everything that can be in pieces is.
        [2, 8192]
            .map(|buffer| {
                runtime.block_on(async {
                    let mut reader = BufReader::with_capacity(buffer, input);
                    let mut all = Vec::new();
                    loop {
                        match read_answer(&mut reader, MAX).await {
                            Ok(answer) => all.push(Ok(answer)),
                            Err(error) => {
                                all.push(Err(error.to_string()));
                                return all;
                            }
                        }
                    }
                })
            })
            .into_iter()
            .reduce(|one, other| {
                assert_eq!(one, other);
                other
            })
            .unwrap()
    }

    #[test]
    fn requests_are_written() {
        let storing = Storing {
            expires: 60,
            only_if: Some(5),
            only_new: false,
        };
        let lock = Storing {
            expires: 3,
            only_if: None,
            only_new: true,
        };
        let value = [Bytes::from_static(b"head"), Bytes::from_static(b"body")];
        let request = Request::default()
            .get("k", None)
            .get("k", Some(30))
            .peek("k", 7)
            .touch("k", 8)
            .lifetime("k")
            .set("k", value, storing)
            .set("k:r", [], lock)
            .delete("k", None)
            .delete("k", Some(9))
            .count("k", 2, None)
            .count("k", 1, Some(10))
            .noop();
        assert_eq!(request.answers(), 12);
        assert_eq!(
            request.parts().concat().escape_ascii().to_string(),
            "mg k v c f\\r\\nmg k v c f t N30\\r\\nmg k c N7\\r\\nmg k T8\\r\\nmg k t\\r\\n\
             ms k 8 T60 C5\\r\\nheadbody\\r\\nms k:r 0 T3 ME\\r\\n\\r\\n\
             md k\\r\\nmd k C9\\r\\nma k v D2\\r\\nma k v D1 N0 J10\\r\\nmn\\r\\n"
        );
    }

    #[test]
    fn answers_are_read_one_after_the_other() {
        let item = Item {
            value: Bytes::from_static(b"VA\r\n"),
            number: 18_446_744_073_709_551_615,
            client_flags: 16,
            ..Item::default()
        };
        let stub = Item {
            number: 2,
            won: true,
            ..Item::default()
        };
        let stale = Item {
            value: Bytes::from_static(b"x"),
            taken: true,
            stale: true,
            ..Item::default()
        };
        let long = format!("VA 1001 c1\r\n{}\r\n", "x".repeat(1001));
        let input = [
            &b"VA 4 c18446744073709551615 f16 kkey O12\r\nVA\r\n\r\n"[..],
            b"VA 0 c2 f0 W\r\n\r\nVA 1 Z X\r\nx\r\nHD\r\nEN\r\nNF\r\nEX\r\nNS\r\nMN\r\n",
            long.as_bytes(),
            b"SERVER_ERROR object too large for cache\r\n",
        ]
        .concat();
        let expected = [
            MetaResponse::Done(item),
            MetaResponse::Done(stub),
            MetaResponse::Done(stale),
            MetaResponse::Done(Item::default()),
            MetaResponse::Missing,
            MetaResponse::Missing,
            MetaResponse::Changed,
            MetaResponse::NotStored,
            MetaResponse::Alive,
            MetaResponse::TooLong,
            MetaResponse::Refused("object too large for cache".to_owned()),
        ];
        let mut answers = read_all(&input);
        let end = answers.pop();
        assert_eq!(end, Some(Err(Unreadable::Closed.to_string())));
        assert_eq!(answers, expected.map(Ok));
    }

    #[test]
    fn anything_else_ends_the_conversation() {
        let endless = "x".repeat(5000);
        for foreign in [
            "HTTP/1.1 400 Bad Request\r\n",
            "-ERR unknown command `mg`, with args beginning with: \r\n",
            "ERROR\r\n",
            "CLIENT_ERROR bad data chunk\r\n",
            "VALUE k 0 1\r\n",
            "HD\n",
            "VA\r\n",
            "VA x\r\n",
            "VA +1\r\nx\r\n",
            "VA -1\r\n",
            "VA 99999999999999999999999\r\n",
            "VA 1 cx\r\nx\r\n",
            "VA 1 f4294967296\r\nx\r\n",
            "VA 1\r\nxyz\r\n",
            "HD c\u{e9}\r\n",
            "HDc1\r\n",
            "\r\n",
            "h\r\n",
            "\u{e9}\r\n",
            endless.as_str(),
        ] {
            match read_all(foreign.as_bytes()).as_slice() {
                // "HD é" is only a flag we did not ask for with a value we do not understand.
                [Err(error)] => assert!(error.contains("meta protocol"), "{foreign}: {error}"),
                other => panic!("{foreign}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_cut_answer_is_none() {
        let whole = b"VA 5 c1 f0\r\nhello\r\n";
        for length in 0..whole.len() {
            let end = Err(Unreadable::Closed.to_string());
            assert_eq!(read_all(&whole[..length]), [end], "{length}");
        }
        let promised = format!("VA {} c1 f0\r\nhello\r\n", u64::MAX);
        assert_eq!(
            read_all(promised.as_bytes()),
            [Err(Unreadable::Closed.to_string())]
        );
    }
}
