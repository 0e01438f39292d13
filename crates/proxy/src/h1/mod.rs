//! HTTP/1 as bytes: heads, bodies, and what is refused. There is no I/O in here.
//!
//! Both sides of the proxy read with this code, and it is strict: what two parsers could read in
//! two ways is refused, because that difference is what request smuggling is made of.

pub mod body;
pub mod encode;
mod extension;
pub mod head;
mod lines;
pub(crate) mod syntax;
pub mod target;

pub use body::{Decoded, Decoder};
pub use head::{
    BadRequest, Framing, Limits, RequestHead, ResponseHead, parse_request, parse_response,
};
pub use target::{Target, split_target};
