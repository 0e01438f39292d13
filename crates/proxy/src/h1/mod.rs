//! HTTP/1 codec: heads and bodies. There is no I/O in here.
//!
//! Used towards clients and origins. It is strict: input that two parsers could interpret differently is
//! refused, because such differences enable request smuggling.

mod bad_request;
pub mod body;
pub mod encode;
mod extension;
pub mod head;
mod lines;
pub(crate) mod syntax;
pub mod target;

pub use bad_request::BadRequest;
pub use body::{BodyDecoder, DecodedBody};
pub use head::{Framing, HeadLimits, RequestHead, ResponseHead, parse_request, parse_response};
pub use target::{RequestTarget, split_target};
