//! A request during a lookup.

use microcache_policy::{OriginView, RequestFacts};

use crate::message::Request;

/// A request during a lookup, with the facts read so far.
pub(crate) struct LookupContext<'a> {
    pub(crate) route: usize,
    pub(crate) key: &'a [u8],
    pub(crate) request: &'a Request<'a>,
    pub(crate) view: &'a OriginView<'a>,
    pub(crate) facts: &'a RequestFacts,
}
