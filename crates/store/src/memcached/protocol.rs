//! Meta protocol of memcached, limited to the commands of the tier: `mg`, `ms`, `md`, `ma` and `mn`.
//!
//! Responses arrive in the order of the requests and carry no other correlation, so a connection is never
//! reused unless every response was read completely.

use std::fmt::Write as _;
use std::io;

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

use crate::tier::TierError;

/// Maximum length of a response line, in bytes.
const MAX_LINE: u64 = 2048;

/// Pipelined commands.
#[derive(Debug, Default)]
pub struct MetaRequest {
    parts: Vec<Bytes>,
    answers: usize,
}

/// Options of a stored item.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetOptions {
    /// Lifetime as sent to the server, see [`super::time`].
    pub expires: u64,
    /// Stores only if the item still has this CAS number.
    pub only_if: Option<u64>,
    /// Stores only if the item does not exist.
    pub only_new: bool,
}

impl MetaRequest {
    /// Reads an item with its CAS number and client flags. With `claim`, a missing item is created empty for
    /// this many seconds, and the first client to ask is granted the claim.
    #[must_use]
    pub fn get(self, key: &str, claim: Option<u64>) -> Self {
        self.command(match claim {
            Some(seconds) => format!("mg {key} v c f t N{seconds}\r\n"),
            None => format!("mg {key} v c f\r\n"),
        })
    }

    /// Reads an item without its value.
    #[must_use]
    pub fn peek(self, key: &str, claim: u64) -> Self {
        self.command(format!("mg {key} c N{claim}\r\n"))
    }

    /// Replaces the lifetime of an item.
    #[must_use]
    pub fn touch(self, key: &str, expires: u64) -> Self {
        self.command(format!("mg {key} T{expires}\r\n"))
    }

    /// Reads the remaining lifetime of an item.
    #[must_use]
    pub fn lifetime(self, key: &str) -> Self {
        self.command(format!("mg {key} t\r\n"))
    }

    /// Stores a value, given in parts.
    #[must_use]
    pub fn set(self, key: &str, value: impl IntoIterator<Item = Bytes>, how: SetOptions) -> Self {
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

    /// Increments a counter and returns the sum. With `begin`, a missing counter is created with that value.
    #[must_use]
    pub fn increment(self, key: &str, by: u64, begin: Option<u64>) -> Self {
        self.command(match begin {
            Some(begin) => format!("ma {key} v D{by} N0 J{begin}\r\n"),
            None => format!("ma {key} v D{by}\r\n"),
        })
    }

    /// Deletes an item; with `only_if`, only if it has this CAS number.
    #[must_use]
    pub fn delete(self, key: &str, only_if: Option<u64>) -> Self {
        self.command(match only_if {
            Some(number) => format!("md {key} C{number}\r\n"),
            None => format!("md {key}\r\n"),
        })
    }

    /// Sends a no-op, as a health check.
    #[must_use]
    pub fn noop(self) -> Self {
        self.command("mn\r\n".to_owned())
    }

    fn command(mut self, line: String) -> Self {
        self.parts.push(line.into());
        self.answers += 1;
        self
    }

    /// Serialized commands, in parts.
    pub(super) fn parts(&self) -> &[Bytes] {
        &self.parts
    }

    /// Number of expected responses.
    pub(super) const fn answers(&self) -> usize {
        self.answers
    }
}

/// Response to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaResponse {
    /// Success, with the requested properties of the item.
    Done(MetaItem),
    /// The item does not exist.
    Missing,
    /// The item has another CAS number.
    Changed,
    /// The item already exists.
    NotStored,
    /// Response to a no-op.
    Alive,
    /// The value exceeded the size limit and was skipped.
    TooLong,
    /// Error message of the server.
    Refused(String),
}

impl MetaResponse {
    /// Converts a response that is not valid in its context to an error.
    pub fn to_unexpected_error(&self) -> TierError {
        TierError::Failed(match self {
            Self::Refused(reason) => format!("server error: {reason}"),
            Self::TooLong => "value exceeds the size limit".to_owned(),
            _ => "unexpected response".to_owned(),
        })
    }
}

/// Checks the responses to removals.
pub(super) fn check_removed(answers: &[MetaResponse]) -> Result<(), TierError> {
    let done =
        |answer: &&MetaResponse| matches!(answer, MetaResponse::Done(_) | MetaResponse::Missing);
    match answers.iter().find(|answer| !done(answer)) {
        None => Ok(()),
        Some(other) => Err(other.to_unexpected_error()),
    }
}

/// Item as returned by a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetaItem {
    /// Value.
    pub value: Bytes,
    /// CAS number, which changes with every update.
    pub number: u64,
    /// Client flags; 0 in records of this tier.
    pub client_flags: u32,
    /// Seconds until the item expires, if requested; `u64::MAX` if it never does.
    pub seconds_left: Option<u64>,
    /// `true` if the caller was granted the claim (`W`).
    pub won: bool,
    /// `true` if another client was granted the claim (`Z`).
    pub taken: bool,
    /// `true` if another client marked the item as stale (`X`).
    pub stale: bool,
}

/// Reasons why a response is unreadable; the connection must be closed.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    /// The server closed the connection.
    #[error("connection closed by the server")]
    Closed,
    /// I/O error.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Not the meta protocol, or a violation of it.
    #[error("unexpected response {0:?}; memcached 1.6 or later without authentication is required")]
    Foreign(String),
}

/// Reads one response with a value of at most `max_value` bytes. Not cancel-safe.
pub async fn read_answer<R>(
    reader: &mut BufReader<R>,
    max_value: usize,
) -> Result<MetaResponse, ProtocolError>
where
    R: tokio::io::AsyncRead + Unpin,
{
    let line = read_line(reader).await?;
    let (code, rest) = line.split_at_checked(2).unwrap_or((&line, ""));
    if !(rest.is_empty() || rest.starts_with(' ')) {
        return match line.strip_prefix("SERVER_ERROR ") {
            Some(reason) => Ok(MetaResponse::Refused(reason.to_owned())),
            None => Err(ProtocolError::Foreign(line)),
        };
    }
    let mut words = rest.split_ascii_whitespace();
    match code {
        "VA" => {
            let length = words.next().and_then(number);
            let (Some(length), Some(item)) = (length, item(words)) else {
                return Err(ProtocolError::Foreign(line));
            };
            match read_value(reader, length, max_value).await? {
                Some(value) => Ok(MetaResponse::Done(MetaItem { value, ..item })),
                None => Ok(MetaResponse::TooLong),
            }
        }
        "HD" => match item(words) {
            Some(item) => Ok(MetaResponse::Done(item)),
            None => Err(ProtocolError::Foreign(line)),
        },
        "EN" | "NF" => Ok(MetaResponse::Missing),
        "EX" => Ok(MetaResponse::Changed),
        "NS" => Ok(MetaResponse::NotStored),
        "MN" => Ok(MetaResponse::Alive),
        _ => Err(ProtocolError::Foreign(line)),
    }
}

/// Reads a line without its line end.
pub(super) async fn read_line<R>(reader: &mut BufReader<R>) -> Result<String, ProtocolError>
where
    R: tokio::io::AsyncRead + Unpin,
{
    let mut line = Vec::new();
    reader.take(MAX_LINE).read_until(b'\n', &mut line).await?;
    match line.strip_suffix(b"\r\n").map(str::from_utf8) {
        Some(Ok(text)) => Ok(text.to_owned()),
        None if !line.ends_with(b"\n") && (line.len() as u64) < MAX_LINE => {
            Err(ProtocolError::Closed)
        }
        _ => {
            let beginning = &line[..line.len().min(60)];
            Err(ProtocolError::Foreign(beginning.escape_ascii().to_string()))
        }
    }
}

/// Reads a value into a buffer of exactly its size, since it may be kept. `None` if it exceeds the limit;
/// the deadline bounds how much is skipped.
async fn read_value<R>(
    reader: &mut BufReader<R>,
    length: u64,
    max_value: usize,
) -> Result<Option<Bytes>, ProtocolError>
where
    R: tokio::io::AsyncRead + Unpin,
{
    let value = if length <= max_value as u64 {
        let mut value = BytesMut::with_capacity(length as usize);
        let mut rest = reader.take(length);
        while (value.len() as u64) < length {
            if rest.read_buf(&mut value).await? == 0 {
                return Err(ProtocolError::Closed);
            }
        }
        Some(value.freeze())
    } else {
        let over = tokio::io::copy_buf(&mut reader.take(length), &mut tokio::io::sink()).await?;
        if over < length {
            return Err(ProtocolError::Closed);
        }
        None
    };
    let mut end = [0; 2];
    match reader.read_exact(&mut end).await {
        Ok(_) if end == *b"\r\n" => Ok(value),
        Ok(_) => Err(ProtocolError::Foreign(end.escape_ascii().to_string())),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(ProtocolError::Closed),
        Err(error) => Err(error.into()),
    }
}

/// Parses the flags of a response; unknown ones are ignored.
fn item<'a>(flags: impl Iterator<Item = &'a str>) -> Option<MetaItem> {
    let mut item = MetaItem::default();
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

/// Parses digits; `str::parse` would accept a sign.
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
        // A buffer of two bytes splits everything that can be split.
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
        let storing = SetOptions {
            expires: 60,
            only_if: Some(5),
            only_new: false,
        };
        let lock = SetOptions {
            expires: 3,
            only_if: None,
            only_new: true,
        };
        let value = [Bytes::from_static(b"head"), Bytes::from_static(b"body")];
        let request = MetaRequest::default()
            .get("k", None)
            .get("k", Some(30))
            .peek("k", 7)
            .touch("k", 8)
            .lifetime("k")
            .set("k", value, storing)
            .set("k:r", [], lock)
            .delete("k", None)
            .delete("k", Some(9))
            .increment("k", 2, None)
            .increment("k", 1, Some(10))
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
        let item = MetaItem {
            value: Bytes::from_static(b"VA\r\n"),
            number: 18_446_744_073_709_551_615,
            client_flags: 16,
            ..MetaItem::default()
        };
        let stub = MetaItem {
            number: 2,
            won: true,
            ..MetaItem::default()
        };
        let stale = MetaItem {
            value: Bytes::from_static(b"x"),
            taken: true,
            stale: true,
            ..MetaItem::default()
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
            MetaResponse::Done(MetaItem::default()),
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
        assert_eq!(end, Some(Err(ProtocolError::Closed.to_string())));
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
                // In "HD é", the flag was not requested and has an invalid value.
                [Err(error)] => {
                    assert!(error.contains("unexpected response"), "{foreign}: {error}");
                }
                other => panic!("{foreign}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_cut_answer_is_none() {
        let whole = b"VA 5 c1 f0\r\nhello\r\n";
        for length in 0..whole.len() {
            let end = Err(ProtocolError::Closed.to_string());
            assert_eq!(read_all(&whole[..length]), [end], "{length}");
        }
        let promised = format!("VA {} c1 f0\r\nhello\r\n", u64::MAX);
        assert_eq!(
            read_all(promised.as_bytes()),
            [Err(ProtocolError::Closed.to_string())]
        );
    }
}
