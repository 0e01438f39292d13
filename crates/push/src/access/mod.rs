//! Access control: secrets, tokens and other origins.

pub(crate) mod key;
pub(crate) mod named;
pub(crate) mod presented;
pub(crate) mod readers;
pub(crate) mod sites;
pub(crate) mod token;
