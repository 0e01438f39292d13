//! Where operators connect, and what they have to show.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::mistake::{Mistake, Mistakes};
use super::options::ADMIN;
use super::push::read_secret;
use super::raw;
use super::settings::Settings;

/// Where operators connect, and what they have to show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admin {
    /// The address; `None` if nobody is listened to.
    pub address: Option<SocketAddr>,
    /// It was chosen, and did not come about by itself: the server does not run without it.
    pub is_chosen: bool,
    /// The file with the secret that requests have to carry.
    pub token_file: Option<PathBuf>,
}

impl Admin {
    /// Where operators of a server with this configuration file connect. Mistakes elsewhere in it make no
    /// difference: somebody may be about to change it.
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

    /// Notes it if the file with the secret has none.
    pub(super) fn check_files(&self, settings: &Settings, mistakes: &mut Mistakes) {
        const OPTION: &str = "admin_token_file";
        if let (Some(file), Some(_)) = (&self.token_file, self.address) {
            let file = (file.clone(), settings.place(OPTION));
            read_secret(Some(&file), OPTION, mistakes);
        }
    }

    /// Notes it if others than operators could get in.
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
            let what = format!("{address} is where clients connect");
            mistakes.note(Mistake::new(&value.place, what).remedy("choose another port"));
        }
        if !address.ip().is_loopback() && self.token_file.is_none() {
            let what = format!("other machines reach {address}, and anybody there could purge");
            mistakes.note(Mistake::new(&value.place, what).remedy(
                "name a file with a secret as `admin_token_file`, or choose an address such as 127.0.0.1:8081",
            ));
        }
    }
}
