//! The address and the token of the admin interface.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::key_files::read_secret;
use super::mistake::{Mistake, Mistakes};
use super::options::ADMIN;
use super::raw;
use super::settings::Settings;

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
    /// Reads the admin options of a configuration file. Mistakes elsewhere in it are ignored: it may be in the
    /// middle of a change.
    pub fn of_file(path: &Path) -> io::Result<Self> {
        let text = std::fs::read_to_string(path)?;
        let mut mistakes = Mistakes::default();
        let mut admin = Self::default();
        let document = raw::document(&text, &mut mistakes);
        if let Ok(table) = document.table() {
            table.apply(ADMIN, &mut admin, &mut mistakes);
        }
        Ok(admin)
    }

    /// Notes a token file without a token.
    pub(super) fn check_files(&self, settings: &Settings, mistakes: &mut Mistakes) {
        const OPTION: &str = "admin_token_file";
        if let (Some(file), Some(_)) = (&self.token_file, self.address) {
            let file = (file.clone(), settings.place(OPTION));
            read_secret(Some(&file), OPTION, mistakes);
        }
    }

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
