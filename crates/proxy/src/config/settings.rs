//! The effective value of every option and its source, to show them and to compare configurations.

use super::mistake::{Mistake, Mistakes, Report};
use super::option::About;
use super::options::{
    ACCESS, ADMIN, ANSWERS, ASKING, COMPRESSION, EDGE, ERROR_PAGES, FILES, GROUP, HEADERS, INCLUDE,
    LOGS, ORIGIN, PAGES, PUSH, REDIRECTS, REWRITING, ROUTE, RULES, SERVERS, TIERS, abouts,
    top_level,
};
use super::place::Place;
use super::raw::{Plain, Value};
use super::texts::Texts;
use super::{Config, units};

/// Every option with its effective value.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The file, if there is one.
    pub file: Option<String>,
    /// The options at the top of the file, which are flags as well.
    pub options: Vec<Setting>,
    /// The options of each upstream group, by name.
    pub upstreams: Vec<(String, Vec<Setting>)>,
    /// The options of each route, by name.
    pub routes: Vec<(String, Vec<Setting>)>,
}

/// An option with its value.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The name in the file.
    pub name: &'static str,
    /// The value, without secrets. `None` if it is not set and the default is not a single value.
    pub value: Option<Plain>,
    /// The default, in words.
    pub default: String,
    /// The source of the value.
    pub source: OptionSource,
    /// The value with secrets, and its place.
    written: Option<Plain>,
    place: Place,
}

/// The source of an option's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionSource {
    /// The default.
    Default,
    /// A file.
    File {
        /// The name of the file.
        name: String,
        /// The line in it.
        line: usize,
    },
    /// The command line.
    CommandLine,
}

/// The tables of one configuration, as read.
pub(super) struct Tables<'a> {
    pub(super) name: Option<&'a str>,
    pub(super) texts: &'a Texts,
    pub(super) file: &'a Value,
    pub(super) command_line: &'a Value,
}

impl Tables<'_> {
    /// Returns the effective settings.
    pub(super) fn settings(&self, config: &Config) -> Settings {
        let top = [self.command_line, self.file];
        let mut options = abouts(ORIGIN);
        options.extend(abouts(INCLUDE));
        options.extend(top_level());
        let none = Vec::new();
        let groups = self.file.entry("upstreams").map_or(&none[..], Value::named);
        let group = |name: &str| {
            let own = groups.iter().find(|(key, _)| key.name == name);
            let own = own.map(|(_, table)| table);
            let servers = own.map_or_else(|| abouts(ORIGIN), |_| abouts(SERVERS));
            self.all(&servers, &own.map_or(top.to_vec(), |own| vec![own]))
                .chain(self.all(&abouts(GROUP), &with(own, top)))
                .collect()
        };
        let tables = self.file.entry("routes").map_or(&[][..], Value::items);
        let route = |number: usize| {
            let own = tables.get(number);
            let mine: Vec<_> = own.into_iter().collect();
            self.all(&abouts(ROUTE), &mine)
                .chain(self.all(&abouts(FILES), &mine))
                .chain(self.all(&abouts(ANSWERS), &mine))
                .chain(self.all(&abouts(REWRITING), &mine))
                .chain(self.all(&abouts(RULES), &with(own, top)))
                .chain(self.all(&abouts(ASKING), &with(own, top)))
                .chain(self.all(&abouts(ACCESS), &with(own, top)))
                .chain(self.all(&abouts(COMPRESSION), &with(own, top)))
                .chain(self.all(&abouts(EDGE), &with(own, top)))
                .chain(self.all(&abouts(PAGES), &with(own, top)))
                .chain(self.all(&abouts(HEADERS), &with(own, top)))
                .chain(self.all(&abouts(REDIRECTS), &with(own, top)))
                .chain(self.all(&abouts(ERROR_PAGES), &with(own, top)))
                .collect()
        };
        // The groups of authentication servers have no options of their own.
        let is_for_authentication = |index: &usize| {
            let mut auths = config
                .routes
                .iter()
                .filter_map(|it| it.forward_auth.as_ref());
            auths.any(|auth| auth.group() == *index)
        };
        let indices = (0..config.upstreams.len()).filter(|index| !is_for_authentication(index));
        let names = indices.map(|index| &config.upstreams[index].name);
        let routes = config.routes.iter().enumerate();
        Settings {
            file: self.name.map(str::to_owned),
            options: self.all(&options, &top).collect(),
            upstreams: names.map(|name| (name.clone(), group(name))).collect(),
            routes: routes
                .map(|(number, one)| (one.name.clone(), route(number)))
                .collect(),
        }
    }

    /// Returns these options, each from the first table that sets it.
    fn all(&self, abouts: &[About], tables: &[&Value]) -> impl Iterator<Item = Setting> {
        let settings: Vec<_> = abouts
            .iter()
            .map(|about| self.setting(about, tables))
            .collect();
        settings.into_iter()
    }

    fn setting(&self, about: &About, tables: &[&Value]) -> Setting {
        let written = tables.iter().find_map(|table| table.entry(about.name));
        let (source, place) = match written.map(|value| &value.place) {
            None => (OptionSource::Default, Place::File(0..0)),
            Some(place @ Place::File(span)) => {
                let spot = self.texts.spot(span);
                let source = OptionSource::File {
                    name: spot.file.to_owned(),
                    line: spot.line,
                };
                (source, place.clone())
            }
            Some(place) => (OptionSource::CommandLine, place.clone()),
        };
        let default = about.default_value();
        let written = written.or(default.as_ref());
        Setting {
            name: about.name,
            value: written.map(Value::shown),
            default: about.default_in_file(),
            source,
            written: written.map(Value::plain),
            place,
        }
    }
}

/// Returns a route's or group's table, if any, before those at the top.
fn with<'a>(own: Option<&'a Value>, top: [&'a Value; 2]) -> Vec<&'a Value> {
    own.into_iter().chain(top).collect()
}

impl Setting {
    fn is_as(&self, other: &Self) -> bool {
        self.name == other.name && self.written == other.written
    }

    fn shown(&self) -> String {
        let value = self.value.as_ref().map(ToString::to_string);
        value.unwrap_or_else(|| self.default.clone())
    }
}

impl Settings {
    /// Returns the place of an option.
    pub(super) fn place(&self, option: &str) -> Place {
        let set = self.options.iter().find(|one| one.name == option);
        set.map_or(Place::Urls, |set| set.place.clone())
    }

    /// Returns the place of an option of a group, or of the group's servers.
    pub(super) fn place_of(&self, group: &str, option: &str) -> Place {
        let own = self.upstreams.iter().find(|(name, _)| name == group);
        let set = own.and_then(|(_, options)| {
            let mut set = options
                .iter()
                .filter(|one| one.source != OptionSource::Default);
            set.clone()
                .find(|one| one.name == option)
                .or_else(|| set.find(|one| ["servers", "origin"].contains(&one.name)))
        });
        set.map_or(Place::Urls, |set| set.place.clone())
    }

    /// Returns the names of the options that differ.
    pub fn changed_by(&self, new: &Self) -> Vec<String> {
        let mut changed: Vec<String> = changed(&self.options, &new.options)
            .map(|(_, new)| new.name.to_owned())
            .collect();
        for (name, options) in &new.upstreams {
            let before = self.upstreams.iter().find(|(before, _)| before == name);
            if before.is_none_or(|(_, before)| !same(before, options)) {
                changed.push(format!("upstreams.{name}"));
            }
        }
        for (name, _) in &self.upstreams {
            if new.upstreams.iter().all(|(new, _)| new != name) {
                changed.push(format!("upstreams.{name}"));
            }
        }
        let alike = |((a, before), (b, new)): (&(String, Vec<_>), &(String, Vec<_>))| {
            a == b && same(before, new)
        };
        if self.routes.len() != new.routes.len() || !self.routes.iter().zip(&new.routes).all(alike)
        {
            changed.push("routes".to_owned());
        }
        changed
    }
}

fn same(before: &[Setting], new: &[Setting]) -> bool {
    before.len() == new.len() && before.iter().zip(new).all(|(a, b)| a.is_as(b))
}

/// Returns the pairs of options that differ between two lists.
fn changed<'a>(
    before: &'a [Setting],
    new: &'a [Setting],
) -> impl Iterator<Item = (&'a Setting, &'a Setting)> {
    let pairs = before.iter().zip(new);
    pairs.filter(|(before, new)| !before.is_as(new))
}

impl Config {
    /// Reports the options of a new configuration that need a restart. If there are any, the reload is refused
    /// as a whole.
    pub fn needs_restart_for(&self, new: &Self) -> Option<Report> {
        let mut mistakes = Mistakes::default();
        // Options that change the default client addresses.
        let follows: &[&str] = if self.acme.is_on() == new.acme.is_on() {
            &["tls_listen"]
        } else {
            &["tls_listen", "acme"]
        };
        let fixed: [(bool, Vec<&str>); 9] = [
            (self.listen != new.listen, [&["listen"], follows].concat()),
            (
                self.tls.listen != new.tls.listen,
                [&["tls"], follows].concat(),
            ),
            (self.threads != new.threads, vec!["threads"]),
            (self.memory != new.memory, vec!["memory"]),
            (self.admin != new.admin, names(&abouts(ADMIN))),
            (self.logs != new.logs, names(&abouts(LOGS))),
            (
                self.tiers.needs_restart_for(&new.tiers),
                names(&abouts(TIERS)),
            ),
            (
                self.push.needs_restart_for(&new.push),
                super::push::PushConfig::fixed(&abouts(PUSH)),
            ),
            (
                self.push.mercure.needs_restart_for(&new.push.mercure),
                vec![
                    "mercure_publisher_key_file",
                    "push",
                    "push_directory",
                    "push_redis",
                    "push_redis_ca",
                    "push_redis_cluster",
                    "push_sync",
                ],
            ),
        ];
        let named = |name: &str| {
            let mut differing = fixed.iter().filter(|(differs, _)| *differs);
            differing.any(|(_, names)| names.contains(&name))
        };
        let (before, after) = (&self.settings.options, &new.settings.options);
        for (before, after) in changed(before, after).filter(|(_, new)| named(new.name)) {
            let what = format!(
                "`{}` cannot be changed by a reload: it is {}, and would be {}",
                after.name,
                before.shown(),
                after.shown()
            );
            mistakes.note(Mistake::new(&after.place, what).remedy(REMEDY));
        }
        self.note_larger_objects(new, &mut mistakes);
        (mistakes.count() > 0).then(|| mistakes.refused(&new.texts))
    }

    /// Notes a larger `max_object`: memory is laid out for the largest one at start.
    fn note_larger_objects(&self, new: &Self, mistakes: &mut Mistakes) {
        let largest = self.largest_in_memory();
        if new.largest_in_memory() <= largest {
            return;
        }
        let too_large = new.routes.iter().zip(&new.settings.routes);
        for (route, (_, options)) in too_large {
            let option = options.iter().find(|option| option.name == "max_object");
            if let Some(option) = option
                && route.max_object > Some(largest)
            {
                let what = format!(
                    "`max_object` cannot be raised above {} by a reload",
                    units::show_size(largest)
                );
                mistakes.note(Mistake::new(&option.place, what).remedy(REMEDY));
            }
        }
    }
}

const REMEDY: &str = "run `microcache upgrade`, which loses no request, or undo the change";

fn names(abouts: &[About]) -> Vec<&'static str> {
    abouts.iter().map(|about| about.name).collect()
}
