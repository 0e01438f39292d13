//! Passwords of Basic authentication (RFC 7617), verified apart from the threads that serve requests.

mod credentials;
mod users;
mod verifier;

pub(crate) use credentials::Credentials;
pub(crate) use users::Users;
pub(crate) use verifier::{PasswordCheck, PasswordVerifier, PendingVerification};
