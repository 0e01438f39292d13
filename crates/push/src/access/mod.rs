//! Access control: secrets, tokens and other origins.

pub(crate) mod cors;
pub(crate) mod option_file;
pub(crate) mod read_grant;
pub(crate) mod request_token;
pub(crate) mod shared_secret;
pub(crate) mod token_key;
