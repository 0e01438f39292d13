//! A request that outlives the buffer it was read from.

use bytes::{Bytes, BytesMut};
use http::Method;
use microcache_engine::Request;
use microcache_policy::key::normal_host;

use super::head::Asked;
use super::send::Output;
use crate::h1::{Framing, RequestHead};

/// A request head, copied out of the shared buffer.
pub(super) struct Head {
    pub(super) method: Method,
    pub(super) host: Bytes,
    pub(super) target: Bytes,
    pub(super) fields: Bytes,
    pub(super) upgrade: bool,
}

/// A request that is under way.
pub(super) struct Pending {
    pub(super) head: Head,
    pub(super) framing: Framing,
    pub(super) expects_continue: bool,
    pub(super) asked: Asked,
    /// Answers to earlier requests that the socket has not taken yet.
    pub(super) unsent: Output,
}

impl Head {
    /// One allocation for all of it but the host, which goes on as it is keyed.
    pub(super) fn copied(request: &Request<'_>) -> Self {
        let fields = request.fields.as_block();
        let mut all = BytesMut::with_capacity(fields.len() + request.target.len());
        all.extend_from_slice(fields);
        all.extend_from_slice(request.target);
        let mut all = all.freeze();
        Self {
            method: request.method.clone(),
            fields: all.split_to(fields.len()),
            host: normal_host(request.scheme, request.host).into(),
            target: all,
            upgrade: request.upgrade,
        }
    }
}

impl Pending {
    pub(super) fn new(request: &Request<'_>, head: &RequestHead<'_>, asked: Asked) -> Self {
        Self {
            head: Head::copied(request),
            framing: if request.has_body {
                head.framing
            } else {
                Framing::None
            },
            expects_continue: head.expect_continue && request.has_body,
            asked,
            unsent: Output::default(),
        }
    }
}
