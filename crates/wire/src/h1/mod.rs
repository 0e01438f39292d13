//! HTTP/1 codec: heads and bodies, towards clients and origins.
//!
//! It is strict: input that two parsers could interpret differently is refused, because such differences enable
//! request smuggling.

pub(crate) mod bad_request;
pub(crate) mod body;
pub mod encode;
mod extension;
mod head;
pub(crate) mod lines;
pub(crate) mod syntax;
pub(crate) mod target;

pub use bad_request::BadRequest;
pub use body::{BodyDecoder, DecodedBody, IncompleteBody, read_trailers};
pub use head::{Framing, HeadLimits, RequestHead, ResponseHead, parse_request, parse_response};
pub use target::{RequestTarget, split_target};
