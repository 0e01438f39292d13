//! Basic authentication of routes, with users from a file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Config;
use super::mistake::{Mistake, Mistakes};
use super::place::Place;
use super::tls::at;
use crate::passwords::Users;
use crate::tls::exposed;

/// Basic authentication of a route.
#[derive(Clone, Debug)]
pub struct BasicAuth {
    /// The file of users, and its place in the configuration.
    pub(super) file: Option<(PathBuf, Place)>,
    pub(super) realm: Arc<str>,
    users: Arc<Users>,
}

impl BasicAuth {
    pub(super) fn new() -> Self {
        Self {
            file: None,
            realm: "Restricted".into(),
            users: Arc::default(),
        }
    }

    /// The name of the protected space, as browsers show it.
    pub(crate) fn realm(&self) -> &str {
        &self.realm
    }

    /// The users.
    pub(crate) fn users(&self) -> &Users {
        &self.users
    }

    /// Returns whether its users are those of another one.
    pub(super) fn has_users_of(&self, other: &Self) -> bool {
        let path = |it: &Self| it.file.as_ref().map(|(path, _)| path.clone());
        path(self) == path(other)
    }
}

impl Config {
    /// Reads the files of users. A reload reads them again.
    pub(super) fn read_users(&mut self, mistakes: &mut Mistakes) {
        let mut read: Vec<(PathBuf, Arc<Users>)> = Vec::new();
        let routes = self.routes.iter_mut();
        for basic in routes.filter_map(|route| route.basic_auth.as_mut()) {
            let Some((path, place)) = &basic.file else {
                continue;
            };
            let known = read.iter().find(|(known, _)| known == path);
            basic.users = if let Some((_, users)) = known {
                Arc::clone(users)
            } else {
                let users = Arc::new(read_file(path, place, mistakes));
                read.push((path.clone(), Arc::clone(&users)));
                users
            };
        }
    }
}

/// Reads one file. A mistake in it leaves no users, and refuses the configuration.
fn read_file(path: &Path, place: &Place, mistakes: &mut Mistakes) -> Users {
    let name = path.display();
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            let remedy = format!("htpasswd -B -c {name} USER");
            mistakes
                .note(Mistake::new(place, format!("cannot read {name}: {error}")).remedy(remedy));
            return Users::default();
        }
    };
    if let Some(fault) = exposed(path) {
        mistakes.warn(at(place, fault));
    }
    Users::parse(&text).unwrap_or_else(|error| {
        let what = format!("{name}, line {}: {}", error.line, error.what);
        mistakes.note(Mistake::new(place, what).remedy(error.remedy));
        Users::default()
    })
}
