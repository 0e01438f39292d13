//! The Mercure hub: with which keys tokens are checked, and what is remembered.

use std::path::PathBuf;

use microcache_policy::Rules;
use microcache_push::{Key, MERCURE_PATH, MercureSettings, PushSettings, SUBSCRIPTIONS_PATH, Sync};

use super::mistake::{Mistake, Mistakes, Place};
use super::options::{MERCURE, abouts};
use super::pattern::Glob;
use super::push::{read_key, route};
use super::raw::Table;
use super::route::{GoesTo, Route};

/// The Mercure hub.
#[derive(Clone, Debug, Default)]
pub struct MercureConfig {
    /// With what tokens are checked of those who publish, and of those who subscribe.
    pub keys: Option<(Key, Key)>,
    /// Whom tokens have to be for, where that counts.
    pub audience: Option<String>,
    /// Who has no token may subscribe to what is not private.
    pub anonymous: bool,
    /// Those who may know it are told who subscribes.
    pub subscriptions: bool,
    /// What updates may take that are remembered, in bytes.
    pub history: u64,
    /// Where they are written down, if they are, and when they count as written.
    pub kept: Option<(PathBuf, Sync)>,
    pub(super) publisher_key_file: Option<(PathBuf, Place)>,
    pub(super) subscriber_key_file: Option<(PathBuf, Place)>,
}

impl MercureConfig {
    /// Whether there is a hub.
    pub const fn is_on(&self) -> bool {
        self.publisher_key_file.is_some()
    }

    /// What the hub is to be, if there is one.
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

    /// Notes what means nothing.
    pub(super) fn check(&self, table: &Table<'_>, mistakes: &mut Mistakes) {
        if self.is_on() {
            return;
        }
        for about in abouts(MERCURE) {
            if let Some(value) = table.get(about.name) {
                let what = format!("`{}` has no effect without a Mercure hub", about.name);
                mistakes.note(Mistake::new(&value.place, what).remedy(
                    "name a file with a secret or a public key as `mercure_publisher_key_file`",
                ));
            }
        }
    }

    /// Reads the keys.
    pub(super) fn read_files(&mut self, mistakes: &mut Mistakes) {
        let mut read = |file: &Option<_>, option| read_key(file.as_ref(), option, mistakes);
        let publishers = read(&self.publisher_key_file, "mercure_publisher_key_file");
        let subscribers = match &self.subscriber_key_file {
            Some(_) => read(&self.subscriber_key_file, "mercure_subscriber_key_file"),
            None => publishers.clone(),
        };
        self.keys = publishers.zip(subscribers);
    }

    /// The route of the hub, which comes before all others. What a request says goes to the hub as it is.
    pub(super) fn route(&self) -> Option<Route> {
        if !self.is_on() {
            return None;
        }
        let hub = Glob::exactly(MERCURE_PATH);
        let mut route = Route {
            pass: true,
            rules: Rules::default(),
            ..route("mercure".to_owned(), hub, GoesTo::Mercure)
        };
        if self.subscriptions {
            let all = Glob::exactly(SUBSCRIPTIONS_PATH);
            let some = Glob::beginning_with(&format!("{SUBSCRIPTIONS_PATH}/"));
            route.matcher.paths.extend([all, some]);
        }
        Some(route)
    }
}
