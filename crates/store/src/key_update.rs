//! Properties of a response that concern all responses of its key.

use microcache_policy::vary::VaryNames;
use microcache_policy::{Fields, Rules, Time};

/// Properties of a response that update the notes of its key.
#[derive(Clone, Copy, Debug)]
pub struct KeyUpdate<'a> {
    /// Header fields.
    pub fields: Fields<'a>,
    /// Rules of the route.
    pub rules: &'a Rules,
    /// Vary names.
    pub vary: &'a VaryNames,
    /// Values of these request fields.
    pub selection: &'a [u8],
    /// End of the time in which the response may be used, including stale use.
    pub usable_until: Time,
}
