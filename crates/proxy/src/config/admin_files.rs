//! Files of the admin interface: its options in a configuration file, and its token.

use std::io;
use std::path::Path;

use super::admin::Admin;
use super::include::Document;
use super::key_files::read_secret;
use super::mistake::Mistakes;
use super::options::ADMIN;
use super::settings::Settings;

impl Admin {
    /// Reads the admin options of a configuration file and those that it includes. Mistakes elsewhere in it are ignored: it may be in the
    /// middle of a change.
    pub fn of_file(path: &Path) -> io::Result<Self> {
        let text = std::fs::read_to_string(path)?;
        let mut mistakes = Mistakes::default();
        let mut admin = Self::default();
        let name = path.display().to_string();
        let document = Document::read(&name, &text, &mut mistakes);
        if let Ok(table) = document.value.table() {
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
}
