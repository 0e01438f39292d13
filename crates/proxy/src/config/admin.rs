//! The address and the token of the admin interface.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::mistake::{Mistake, Mistakes};
use super::raw;

/// The configuration of the admin interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admin {
    /// The address; `None` if the interface is off.
    pub address: Option<SocketAddr>,
    /// The address was configured, and is not the default: the server does not start if it is in use.
    pub is_chosen: bool,
    /// The file with the bearer token.
    pub token_file: Option<PathBuf>,
}

impl Admin {
    /// Notes an address that visitors use or that lacks a token.
    pub(super) fn check(
        &self,
        table: &raw::Table<'_>,
        clients: &[SocketAddr],
        mistakes: &mut Mistakes,
    ) {
        let Some((value, address)) = table.get("admin").zip(self.address) else {
            return;
        };
        if address.port() != 0 && clients.contains(&address) {
            let what = format!("{address} is also a client address (`listen`)");
            mistakes.note(Mistake::new(&value.place, what).remedy("choose another port"));
        }
        if !address.ip().is_loopback() && self.token_file.is_none() {
            let what = format!("{address} is reachable from other machines without a token");
            mistakes.note(Mistake::new(&value.place, what).remedy(
                "set `admin_token_file`, or choose a local address such as 127.0.0.1:8081",
            ));
        }
    }
}
