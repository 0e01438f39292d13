//! FastCGI 1.0 codec, towards an application in the role of a responder: records out, records and a CGI response head
//! in.
//!
//! One request is sent at a time on a connection, as php-fpm and most others require. Content is handed on as it
//! arrives, so no record is ever held in memory as a whole.

pub mod encode;
mod head;
mod params;
mod record;

pub use head::parse_head;
pub use params::Params;
pub use record::{AnswerPart, RecordDecoder};

/// Version of the protocol.
const VERSION: u8 = 1;
/// Identifier of the only request on a connection.
const REQUEST_ID: u16 = 1;
/// Length of the header of a record.
const HEADER: usize = 8;
/// Most bytes of content in a record.
pub const MAX_CONTENT: usize = 65_535;

/// Types of records.
mod kind {
    pub(super) const BEGIN_REQUEST: u8 = 1;
    pub(super) const END_REQUEST: u8 = 3;
    pub(super) const PARAMS: u8 = 4;
    pub(super) const STDIN: u8 = 5;
    pub(super) const STDOUT: u8 = 6;
    pub(super) const STDERR: u8 = 7;
}
