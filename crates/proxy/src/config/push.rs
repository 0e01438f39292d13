//! The push cache: paths, storage, and tokens of publishers and readers.

use std::iter;
use std::path::PathBuf;

use microcache_push::{FleetSettings, Prefix, PushKeys, PushSettings, SCRIPT_PATHS, WATCH_PATH};

use super::acme::usual_state;
use super::forward_auth::ForwardAuth;
use super::key_files::{read_key, read_secret};
use super::mercure::{MercureConfig, UpdateStore};
use super::mistake::{Mistake, Mistakes};
use super::option::About;
use super::pattern::Glob;
use super::place::Place;
use super::raw::Table;
use super::route::{GoesTo, Route, Watching};
use super::secrets::without_login;

/// The configuration of the push cache.
#[derive(Clone, Debug, Default)]
pub struct PushConfig {
    /// The path prefixes of documents; none if the push cache is off.
    pub prefixes: Vec<Prefix>,
    /// The tokens of publishers, and of readers of private documents.
    pub keys: PushKeys,
    /// The settings of the push cache.
    pub settings: PushSettings,
    /// The maximum number of different pages watched at a time.
    pub max_pages: usize,
    /// The Mercure hub.
    pub mercure: MercureConfig,
    /// The server that names the private documents that a client may read.
    pub(super) read_auth: Option<ForwardAuth>,
    pub(super) place: Option<Place>,
    /// The places of the private prefixes.
    pub(super) private_places: Vec<Place>,
    pub(super) token_file: Option<(PathBuf, Place)>,
    pub(super) reader_token_file: Option<(PathBuf, Place)>,
    pub(super) reader_key_file: Option<(PathBuf, Place)>,
    pub(super) chosen_directory: Option<DirectoryChoice>,
    pub(super) redis: FleetSettings,
    pub(super) redis_ca: Option<(PathBuf, Place)>,
}

/// The maximum history of documents shared by several nodes.
const MAX_SHARED_HISTORY: usize = 1000;
/// Options of documents that apply to a Mercure hub without documents too.
const OF_THE_HUB: &[&str] = &[
    "push_max_document",
    "push_directory",
    "push_sync",
    "push_redis",
    "push_redis_cluster",
    "push_redis_ca",
];

/// The value of `push_directory`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DirectoryChoice {
    Off,
    At(PathBuf),
}

/// Returns the settings without users and passwords of Redis.
fn settings_without_login(settings: &PushSettings) -> PushSettings {
    PushSettings {
        fleet: settings.fleet.as_ref().map(without_login),
        ..settings.clone()
    }
}

impl PushConfig {
    /// Returns whether the push cache is enabled.
    pub const fn is_on(&self) -> bool {
        !self.prefixes.is_empty()
    }

    /// Returns the store that nodes share, for documents, the Mercure hub, or both.
    pub(crate) fn fleet(&self) -> Option<&FleetSettings> {
        let of_hub = self.mercure.kept.as_ref().and_then(UpdateStore::shared);
        self.settings.fleet.as_ref().or(of_hub)
    }

    /// Returns whether a change needs a restart.
    pub(super) fn needs_restart_for(&self, new: &Self) -> bool {
        self.prefixes != new.prefixes
            || settings_without_login(&self.settings) != settings_without_login(&new.settings)
    }

    /// Returns the options that need a restart: all but those that a reload applies.
    pub(super) fn fixed(options: &[About]) -> Vec<&'static str> {
        let names = options.iter().map(|about| about.name);
        let read_anew = |name: &&str| {
            name.ends_with("_file") || ["watch_max_pages", "push_forward_auth"].contains(name)
        };
        names.filter(|name| !read_anew(name)).collect()
    }

    /// Notes which of the options of documents have no effect.
    pub(super) fn check(&self, options: &[About], table: &Table<'_>, mistakes: &mut Mistakes) {
        if self.is_on() {
            self.check_private(mistakes);
        }
        let is_on = self.is_on() || table.get("push").is_some();
        if is_on || self.mercure.is_on() {
            self.check_keeper(table, mistakes);
        }
        if is_on {
            return;
        }
        let of_all = [
            "push_allow_origins",
            "push_max_subscribers",
            "watch_max_pages",
        ];
        let is_hub_s = |name| self.mercure.is_on() && OF_THE_HUB.contains(&name);
        let of_documents = |name| !of_all.contains(&name) && !is_hub_s(name);
        for about in options.iter().filter(|about| of_documents(about.name)) {
            if let Some(value) = table.get(about.name) {
                let what = format!("`{}` has no effect without documents", about.name);
                mistakes.note(
                    Mistake::new(&value.place, what)
                        .remedy("add push = [\"/live/\"], or remove it"),
                );
            }
        }
    }

    /// Notes options of a local store with Redis, and the reverse.
    fn check_keeper(&self, table: &Table<'_>, mistakes: &mut Mistakes) {
        const OF_THIS_PROCESS: &[&str] = &["push_directory", "push_sync"];
        const OF_REDIS: &[&str] = &["push_redis_cluster", "push_redis_ca"];
        let is_shared = !self.redis.urls.is_empty();
        let (without_meaning, remedy) = if is_shared {
            (
                OF_THIS_PROCESS,
                "remove it: Redis stores documents and updates",
            )
        } else {
            (
                OF_REDIS,
                "add push_redis = \"redis://documents:6379\", or remove it",
            )
        };
        let word = if is_shared { "with" } else { "without" };
        for name in without_meaning {
            if let Some(value) = table.get(name) {
                let what = format!("`{name}` has no effect {word} `push_redis`");
                mistakes.note(Mistake::new(&value.place, what).remedy(remedy));
            }
        }
        if let Some(value) = table.get("push_history").filter(|_| is_shared)
            && self.settings.history > MAX_SHARED_HISTORY
        {
            let what = format!("`push_history` is at most {MAX_SHARED_HISTORY} with `push_redis`");
            let remedy = "Redis deletes the whole history of a document in one step: lower it";
            mistakes.note(Mistake::new(&value.place, what).remedy(remedy));
        }
    }

    /// Returns the shared store of several nodes, if there is one.
    fn read_fleet(&mut self, mistakes: &mut Mistakes) -> Option<FleetSettings> {
        if self.redis.urls.is_empty() {
            return None;
        }
        self.redis.authorities = self.redis_ca.as_ref().and_then(|(file, place)| {
            let read = std::fs::read(file);
            let unreadable = |error| format!("{}: {error}", file.display());
            read.map_err(|error| mistakes.note(Mistake::new(place, unreadable(error))))
                .ok()
        });
        Some(self.redis.clone())
    }

    /// Finds the directory of documents and of the hub's updates, and reads the tokens.
    pub(super) fn read_files(&mut self, mistakes: &mut Mistakes) {
        self.mercure.read_files(mistakes);
        let fleet = self.read_fleet(mistakes);
        self.settings.fleet = fleet.clone().filter(|_| self.is_on());
        self.read_files_of_documents(mistakes);
        let directory = match &self.chosen_directory {
            Some(DirectoryChoice::At(directory)) => Some(directory),
            // A hub has no default directory: two hubs of one user would conflict.
            _ => self.settings.directory.as_ref(),
        };
        let directory = directory.map(|it| UpdateStore::Directory(it.clone(), self.settings.sync));
        let kept = fleet.map(UpdateStore::Redis).or(directory);
        self.mercure.kept = kept.filter(|_| self.mercure.is_on());
    }

    fn read_files_of_documents(&mut self, mistakes: &mut Mistakes) {
        let Some(place) = self.place.clone().filter(|_| self.is_on()) else {
            return;
        };
        let is_shared = self.settings.fleet.is_some();
        self.settings.directory = match &self.chosen_directory {
            _ if is_shared => None,
            Some(DirectoryChoice::At(directory)) => Some(directory.clone()),
            Some(DirectoryChoice::Off) => None,
            None => usual_state("push"),
        };
        let has_place = self.chosen_directory.is_some() || self.settings.directory.is_some();
        if !has_place && !is_shared {
            mistakes.note(
                Mistake::new(&place, "no directory for documents")
                    .remedy("set `push_directory` to a directory, or to \"none\""),
            );
        }
        self.keys = PushKeys {
            publisher_secret: read_secret(self.token_file.as_ref(), "push_token_file", mistakes),
            reader_secret: read_secret(
                self.reader_token_file.as_ref(),
                "push_reader_token_file",
                mistakes,
            ),
            token_key: read_key(
                self.reader_key_file.as_ref(),
                "push_reader_key_file",
                mistakes,
            ),
        };
    }

    /// Notes private prefixes outside the paths of documents.
    fn check_private(&self, mistakes: &mut Mistakes) {
        for (private, place) in self.settings.private.iter().zip(&self.private_places) {
            let mut prefixes = self.prefixes.iter();
            if !prefixes.any(|prefix| private.as_str().starts_with(prefix.as_str())) {
                let what = format!("there are no documents under {}", private.as_str());
                let remedy = "use one of the paths of `push`, or a path below one";
                mistakes.note(Mistake::new(place, what).remedy(remedy));
            }
        }
    }

    /// Notes a server for readers where all clients are authenticated otherwise, and one without private documents.
    pub(super) fn check_readers(&self, authenticates_all: bool, mistakes: &mut Mistakes) {
        let Some(auth) = &self.read_auth else {
            return;
        };
        if authenticates_all {
            let what = "`push_forward_auth` and authentication for all routes exclude each other";
            let remedy = "set `basic_auth` or `forward_auth` on routes, or let `forward_auth` copy Microcache-Read";
            mistakes.note(Mistake::new(&auth.place, what).remedy(remedy));
        }
        if self.is_on() && self.settings.private.is_empty() {
            let what = "`push_forward_auth` has no effect without private documents";
            let remedy = "add push_private = [\"/live/users/\"], or remove it";
            mistakes.note(Mistake::new(&auth.place, what).remedy(remedy));
        }
    }

    /// Returns the routes of the Mercure hub, of documents, and of watching if it is enabled. They come before all
    /// others.
    pub(super) fn routes(&self, others: &[Route]) -> Vec<Route> {
        let has_pages = others.iter().any(|route| route.watch != Watching::Off);
        let watch = Route {
            pass: true,
            forward_auth: self.read_auth.clone(),
            ..Route::builtin("watch".to_owned(), Glob::exactly(WATCH_PATH), GoesTo::Watch)
        };
        let scripts = SCRIPT_PATHS.into_iter().map(|path| {
            let name = path.rsplit('/').next().unwrap_or(path);
            Route::builtin(name.to_owned(), Glob::exactly(path), GoesTo::Watch)
        });
        let documents = self.prefixes.iter().map(|prefix| {
            let prefix = prefix.as_str();
            let name = format!("push {prefix}");
            Route {
                forward_auth: self.read_auth.clone(),
                ..Route::builtin(name, Glob::beginning_with(prefix), GoesTo::Push)
            }
        });
        let watch = iter::once(watch).chain(scripts);
        let watch = watch.filter(|_| self.is_on() || has_pages);
        let hub = self.mercure.route().into_iter();
        hub.chain(watch).chain(documents).collect()
    }
}
