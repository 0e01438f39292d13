//! How the proxy reads what stands on a connection, message after message.

use bytes::BytesMut;
use microcache_policy::{FieldIndex, Fields};
use microcache_wire::h1::{
    BodyDecoder, DecodedBody, Framing, HeadLimits, RequestHead, ResponseHead, parse_request,
    parse_response,
};

/// Names and values in order.
pub type Lines = Vec<(Vec<u8>, Vec<u8>)>;

/// A body, as far as it is there.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Body {
    /// Its bytes.
    pub data: Vec<u8>,
    /// The trailers that go on.
    pub trailers: Lines,
    /// How it ends.
    pub end: BodyEnd,
}

/// Whether a body came to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyEnd {
    /// It did.
    Complete,
    /// The input ended before it.
    #[default]
    Incomplete,
    /// It is malformed.
    Malformed,
}

/// Takes the framing off the body at the front of `input`, fed in pieces of `step` bytes. Also
/// returns how many bytes it took.
pub fn read_body(framing: Framing, input: &[u8], step: usize) -> (Body, usize) {
    let mut decoder = BodyDecoder::new(framing);
    let mut buf = BytesMut::new();
    let mut pieces = input.chunks(step.max(1));
    let mut fed = 0;
    let mut body = Body::default();
    loop {
        match decoder.decode(&mut buf) {
            Ok(DecodedBody::Data(data)) => {
                assert!(!data.is_empty(), "a piece without bytes");
                body.data.extend_from_slice(&data);
            }
            Ok(DecodedBody::Trailers(fields)) => body.trailers = lines(fields.fields()),
            Ok(DecodedBody::NeedMore) => {
                let Some(piece) = pieces.next() else {
                    if decoder.eof().is_ok() {
                        body.end = BodyEnd::Complete;
                    }
                    break;
                };
                fed += piece.len();
                buf.extend_from_slice(piece);
            }
            Ok(DecodedBody::End) => {
                body.end = BodyEnd::Complete;
                break;
            }
            Err(_) => {
                body.end = BodyEnd::Malformed;
                break;
            }
        }
    }
    (body, fed - buf.len())
}

/// Field lines, copied.
pub fn lines(fields: Fields<'_>) -> Lines {
    fields
        .iter()
        .map(|(name, value)| (name.to_vec(), value.to_vec()))
        .collect()
}

/// A request on a connection.
pub struct Request<'a> {
    /// The head.
    pub head: RequestHead<'a>,
    /// The head's bytes.
    pub raw_head: &'a [u8],
    /// The body.
    pub body: Body,
}

/// Why no more requests are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The next head, or the last request's body, is not complete.
    NeedMore,
    /// The next head is refused, or the last request's body is.
    Refused,
    /// The last request was the last one by its own word, or left HTTP.
    Last,
}

/// The indexes for [`read_requests`] of this input.
pub fn indexes(input: &[u8]) -> Vec<FieldIndex> {
    const SHORTEST: usize = b"A / HTTP/1.0\r\n\r\n".len();
    vec![FieldIndex::default(); input.len() / SHORTEST + 1]
}

/// Reads requests one after the other.
pub fn read_requests<'a>(
    input: &'a [u8],
    mut indexes: &'a mut [FieldIndex],
) -> (Vec<Request<'a>>, Stop) {
    let mut requests = Vec::new();
    let mut rest = input;
    loop {
        let index = indexes.split_off_first_mut().expect("one for each request");
        let (head, length) = match parse_request(rest, &HeadLimits::default(), index) {
            Ok(Some(parsed)) => parsed,
            Ok(None) => return (requests, Stop::NeedMore),
            Err(_) => return (requests, Stop::Refused),
        };
        let (raw_head, after) = rest.split_at(length);
        let (body, taken) = read_body(head.framing, after, after.len());
        let end = body.end;
        requests.push(Request {
            head,
            raw_head,
            body,
        });
        match end {
            BodyEnd::Incomplete => return (requests, Stop::NeedMore),
            BodyEnd::Malformed => return (requests, Stop::Refused),
            BodyEnd::Complete if !head.keep_alive || head.method == b"CONNECT" => {
                return (requests, Stop::Last);
            }
            BodyEnd::Complete => rest = &after[taken..],
        }
    }
}

/// A final response.
pub struct Response<'a> {
    /// The head.
    pub head: ResponseHead<'a>,
    /// The head's bytes.
    pub raw_head: &'a [u8],
    /// The body.
    pub body: Body,
}

/// Reads the final response to a GET; 1xx before it are read over.
pub fn read_response<'a>(input: &'a [u8], index: &'a mut FieldIndex) -> Option<Response<'a>> {
    let mut rest = input;
    while let Some(length) = interim_length(rest) {
        rest = &rest[length..];
    }
    let (head, length) = parse_response(rest, false, &HeadLimits::default(), index).ok()??;
    let (raw_head, after) = rest.split_at(length);
    let (body, _) = read_body(head.framing, after, after.len());
    Some(Response {
        head,
        raw_head,
        body,
    })
}

fn interim_length(input: &[u8]) -> Option<usize> {
    let mut index = FieldIndex::default();
    let parsed = parse_response(input, false, &HeadLimits::default(), &mut index);
    let (head, length) = parsed.ok()??;
    matches!(head.status, 100 | 102..=199).then_some(length)
}
