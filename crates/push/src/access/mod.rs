//! Who may: secrets, tokens, and other sites.

pub(crate) mod key;
pub(crate) mod named;
pub(crate) mod presented;
pub(crate) mod readers;
pub(crate) mod sites;
pub(crate) mod token;
