//! Wire formats, without I/O: HTTP/1, HTTP/2, FastCGI and the PROXY protocol.
//!
//! - **Owns**: parsing and encoding. [`h1`] handles heads and bodies, [`h2`] frames and field blocks, [`fastcgi`]
//!   records and CGI heads, [`proxy_protocol`] the header in which a load balancer names its client. Parsers borrow from
//!   the input, wait until an element is complete, bound its size by constants or by limits of the caller, and name the
//!   rule that malformed input violates.
//! - **Never**: sockets, a clock, a task. Connections, their timeouts and their flood limits are the proxy's.
//! - **Start** at [`h1::parse_request`] and [`h2::frame::read`].

pub mod fastcgi;
pub mod h1;
pub mod h2;
pub mod proxy_protocol;
