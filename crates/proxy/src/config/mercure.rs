//! The Mercure hub: keys, history and routes.

use std::path::PathBuf;

use microcache_policy::Rules;
use microcache_push::{
    FleetSettings, MERCURE_PATH, MercureSettings, PushSettings, SUBSCRIPTIONS_PATH, SyncPolicy,
    TokenKey,
};

use super::key_files::read_key;
use super::mistake::{Mistake, Mistakes};
use super::option::About;
use super::pattern::Glob;
use super::place::Place;
use super::raw::Table;
use super::route::{GoesTo, Route};
use super::secrets::without_login;

/// The configuration of the Mercure hub.
#[derive(Clone, Debug, Default)]
pub struct MercureConfig {
    /// The keys of publishers' and of subscribers' tokens.
    pub keys: Option<(TokenKey, TokenKey)>,
    /// The required audience of tokens.
    pub audience: Option<String>,
    /// Subscribers without a token receive public updates.
    pub anonymous: bool,
    /// Subscription events and API are enabled.
    pub subscriptions: bool,
    /// Memory for history, in bytes.
    pub history: u64,
    /// The store of the history, if it outlives the process.
    pub kept: Option<UpdateStore>,
    pub(super) publisher_key_file: Option<(PathBuf, Place)>,
    pub(super) subscriber_key_file: Option<(PathBuf, Place)>,
}

/// A store of the hub's history outside the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateStore {
    /// A directory, and the durability of updates in it.
    Directory(PathBuf, SyncPolicy),
    /// Redis, which several nodes share.
    Redis(FleetSettings),
}

impl UpdateStore {
    /// Returns the store that nodes share.
    pub(super) const fn shared(&self) -> Option<&FleetSettings> {
        match self {
            Self::Directory(..) => None,
            Self::Redis(fleet) => Some(fleet),
        }
    }

    /// Returns the store without users and passwords, which a reload applies.
    fn without_login(&self) -> Self {
        match self {
            Self::Directory(..) => self.clone(),
            Self::Redis(fleet) => Self::Redis(without_login(fleet)),
        }
    }
}

impl MercureConfig {
    /// Returns whether a change of the store needs a restart.
    pub(super) fn needs_restart_for(&self, new: &Self) -> bool {
        let stable = |it: &Self| it.kept.as_ref().map(UpdateStore::without_login);
        stable(self) != stable(new)
    }

    /// Returns whether the hub is enabled.
    pub const fn is_on(&self) -> bool {
        self.publisher_key_file.is_some()
    }

    /// Returns the settings of the hub, if it is enabled.
    pub(crate) fn settings(&self, push: &PushSettings) -> Option<MercureSettings> {
        let (publishers, subscribers) = self.keys.clone()?;
        Some(MercureSettings {
            publishers,
            subscribers,
            audience: self.audience.clone(),
            anonymous: self.anonymous,
            subscriptions: self.subscriptions,
            allow_origins: push.allow_origins.clone(),
            history: self.history,
            max_update: push.max_document,
            max_subscribers: push.max_subscribers,
        })
    }

    /// Notes which of the options of the hub have no effect.
    pub(super) fn check(&self, options: &[About], table: &Table<'_>, mistakes: &mut Mistakes) {
        if self.is_on() {
            return;
        }
        for about in options {
            if let Some(value) = table.get(about.name) {
                let what = format!("`{}` has no effect without a Mercure hub", about.name);
                mistakes.note(Mistake::new(&value.place, what).remedy(
                    "set `mercure_publisher_key_file` to a file with a secret or a public key",
                ));
            }
        }
    }

    /// Reads the key files.
    pub(super) fn read_files(&mut self, mistakes: &mut Mistakes) {
        let mut read = |file: &Option<_>, option| read_key(file.as_ref(), option, mistakes);
        let publishers = read(&self.publisher_key_file, "mercure_publisher_key_file");
        let subscribers = match &self.subscriber_key_file {
            Some(_) => read(&self.subscriber_key_file, "mercure_subscriber_key_file"),
            None => publishers.clone(),
        };
        self.keys = publishers.zip(subscribers);
    }

    /// Returns the route of the hub, which comes before all others. Requests reach the hub unchanged.
    pub(super) fn route(&self) -> Option<Route> {
        if !self.is_on() {
            return None;
        }
        let hub = Glob::exactly(MERCURE_PATH);
        let mut route = Route {
            pass: true,
            rules: Rules::default(),
            ..Route::builtin("mercure".to_owned(), hub, GoesTo::Mercure)
        };
        if self.subscriptions {
            let all = Glob::exactly(SUBSCRIPTIONS_PATH);
            let some = Glob::beginning_with(&format!("{SUBSCRIPTIONS_PATH}/"));
            route.matcher.paths.extend([all, some]);
        }
        Some(route)
    }
}
