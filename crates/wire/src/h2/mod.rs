//! HTTP/2 (RFC 9113): frames, field blocks and sections, windows. Sizes and indices from the peer are validated
//! before use.

pub mod extended_connect;
pub mod flow;
pub mod frame;
pub mod hpack;
pub mod priority;
pub mod reason;
pub mod section;
mod section_lines;
pub mod settings;
pub mod write;
