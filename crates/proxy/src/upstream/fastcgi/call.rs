//! A script to run, and the facts about its request that the head does not have.

use std::net::IpAddr;

use microcache_policy::{Fields, Scheme, says_https};

use crate::upstream::php::script::Script;

/// A script to run for a request.
#[derive(Debug)]
pub(in crate::upstream) struct ScriptCall {
    pub(in crate::upstream) script: Script,
    /// Scheme of the visitor's request.
    pub(in crate::upstream) scheme: Scheme,
    /// Address of the visitor, if it is known.
    pub(in crate::upstream) client: Option<IpAddr>,
    /// Address of this server.
    pub(in crate::upstream) server: IpAddr,
}

impl ScriptCall {
    /// Returns `true` if the visitor used TLS, to this server or to a trusted proxy: others cannot set the field.
    pub(super) fn is_secure(&self, request: Fields<'_>) -> bool {
        self.scheme == Scheme::Https || says_https(request)
    }
}
