//! Wire formats, without I/O: HTTP/1, HTTP/2 and the PROXY protocol.
//!
//! - **Owns**: what bytes mean. [`h1`] reads heads and bodies, [`h2`] frames and field blocks, [`proxy_protocol`] the
//!   header of a load balancer. Input is read in place, completely or not at all, within limits that do not depend
//!   on it; what violates a rule is refused with the reason.
//! - **Never**: sockets, a clock, a task. Connections, their timeouts and their flood limits are the proxy's.
//! - **Start** at [`h1::parse_request`] and [`h2::frame::read`].

pub mod h1;
pub mod h2;
pub mod proxy_protocol;
