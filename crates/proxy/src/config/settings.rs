//! What every option is in the end, and who said so: for those who ask, and to tell what another
//! configuration would change.

use super::mistake::{Mistake, Mistakes, Place, Report};
use super::option::{About, Unset};
use super::options::{
    ADMIN, ASKING, COMPRESSION, FILES, GROUP, LOGS, ORIGIN, ROUTE, RULES, SERVERS, TIERS, abouts,
    top_level,
};
use super::raw::{Plain, Value};
use super::{Config, units};

/// Every option there is, with the value that holds.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The file, if there is one.
    pub file: Option<String>,
    /// Those at the top of the file, which are flags as well.
    pub options: Vec<Setting>,
    /// Those of each upstream group, by its name.
    pub upstreams: Vec<(String, Vec<Setting>)>,
    /// Those of each route, by its name.
    pub routes: Vec<(String, Vec<Setting>)>,
}

/// What one option is.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Its name in the file.
    pub name: &'static str,
    /// The value, without secrets. `None`: nobody has said anything, and there is no one value that
    /// holds then.
    pub value: Option<Plain>,
    /// What holds when nobody says anything, in words.
    pub default: &'static str,
    /// Who said so.
    pub said: Said,
    /// The value with secrets, and where it stands.
    written: Option<Plain>,
    place: Place,
}

/// Who said what an option is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// Nobody.
    Default,
    /// This line of the file.
    File(usize),
    /// The command line.
    CommandLine,
}

/// The tables of one configuration, as they were written.
pub(super) struct Written<'a> {
    pub(super) name: Option<&'a str>,
    pub(super) text: &'a str,
    pub(super) file: &'a Value,
    pub(super) command_line: &'a Value,
}

impl Written<'_> {
    /// What it comes to.
    pub(super) fn settings(&self, config: &Config) -> Settings {
        let top = [self.command_line, self.file];
        let mut options = abouts(ORIGIN);
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
                .chain(self.all(&abouts(RULES), &with(own, top)))
                .chain(self.all(&abouts(ASKING), &with(own, top)))
                .chain(self.all(&abouts(COMPRESSION), &with(own, top)))
                .collect()
        };
        let names = config.upstreams.iter().map(|group| &group.name);
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

    /// These options as the first of the tables has them that says something.
    fn all(&self, abouts: &[About], tables: &[&Value]) -> impl Iterator<Item = Setting> {
        let settings: Vec<_> = abouts
            .iter()
            .map(|about| self.setting(about, tables))
            .collect();
        settings.into_iter()
    }

    fn setting(&self, about: &About, tables: &[&Value]) -> Setting {
        let written = tables.iter().find_map(|table| table.entry(about.name));
        let (said, place) = match written.map(|value| &value.place) {
            None => (Said::Default, Place::File(0..0)),
            Some(place @ Place::File(span)) => {
                let before = self.text.get(..span.start).unwrap_or_default();
                (Said::File(before.matches('\n').count() + 1), place.clone())
            }
            Some(place) => (Said::CommandLine, place.clone()),
        };
        let default = match about.unset {
            Unset::Is(text) => Some(Value::of_default(text)),
            Unset::Says(_) => None,
        };
        let written = written.or(default.as_ref()).map(Value::plain);
        Setting {
            name: about.name,
            value: written.as_ref().map(Plain::masked),
            default: about.unset.words(),
            said,
            written,
            place,
        }
    }
}

/// A table of its own, before those at the top.
fn with<'a>(own: Option<&'a Value>, top: [&'a Value; 2]) -> Vec<&'a Value> {
    own.into_iter().chain(top).collect()
}

impl Setting {
    fn is_as(&self, other: &Self) -> bool {
        self.name == other.name && self.written == other.written
    }

    fn shown(&self) -> String {
        let value = self.value.as_ref().map(ToString::to_string);
        value.unwrap_or_else(|| self.default.to_owned())
    }
}

impl Settings {
    /// Where an option was said.
    pub(super) fn place(&self, option: &str) -> Place {
        let said = self.options.iter().find(|one| one.name == option);
        said.map_or(Place::Urls, |said| said.place.clone())
    }

    /// Where an option of a group was said, or the group itself.
    pub(super) fn place_of(&self, group: &str, option: &str) -> Place {
        let own = self.upstreams.iter().find(|(name, _)| name == group);
        let said = own.and_then(|(_, options)| {
            let mut said = options.iter().filter(|one| one.said != Said::Default);
            said.clone()
                .find(|one| one.name == option)
                .or_else(|| said.find(|one| ["servers", "origin"].contains(&one.name)))
        });
        said.map_or(Place::Urls, |said| said.place.clone())
    }

    /// The names of what another one has differently.
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

/// The options of one list that are others in another.
fn changed<'a>(
    before: &'a [Setting],
    new: &'a [Setting],
) -> impl Iterator<Item = (&'a Setting, &'a Setting)> {
    let pairs = before.iter().zip(new);
    pairs.filter(|(before, new)| !before.is_as(new))
}

impl Config {
    /// What of a configuration cannot come into force without a restart, where this one is: if there is
    /// something, nothing of it may.
    pub fn needs_restart_for(&self, new: &Self) -> Option<Report> {
        let mut mistakes = Mistakes::default();
        // Where clients connect when nothing is said of that.
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
            (self.tiers != new.tiers, names(&abouts(TIERS))),
            (
                self.push.needs_restart_for(&new.push),
                super::push::PushConfig::fixed(),
            ),
            (
                self.push.mercure.kept != new.push.mercure.kept,
                vec![
                    "mercure_publisher_key_file",
                    "push",
                    "push_directory",
                    "push_redis",
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
                "`{}` cannot change while the server runs: it is {}, and would be {}",
                after.name,
                before.shown(),
                after.shown()
            );
            mistakes.note(Mistake::new(&after.place, what).remedy(REMEDY));
        }
        self.note_larger_objects(new, &mut mistakes);
        (mistakes.count() > 0).then(|| {
            let (name, text) = &new.written;
            mistakes.refused(name, text)
        })
    }

    /// Memory is laid out for the largest object that there may be.
    fn note_larger_objects(&self, new: &Self, mistakes: &mut Mistakes) {
        let largest = crate::shared::largest_in_memory(self);
        if crate::shared::largest_in_memory(new) <= largest {
            return;
        }
        let too_large = new.routes.iter().zip(&new.settings.routes);
        for (route, (_, options)) in too_large {
            let option = options.iter().find(|option| option.name == "max_object");
            if let Some(option) = option
                && route.max_object > Some(largest)
            {
                let what = format!(
                    "`max_object` cannot become more than {} while the server runs: memory is laid out for that",
                    units::show_size(largest)
                );
                mistakes.note(Mistake::new(&option.place, what).remedy(REMEDY));
            }
        }
    }
}

const REMEDY: &str =
    "`microcache upgrade` starts a server that has it, and loses no request; or leave it as it was";

fn names(abouts: &[About]) -> Vec<&'static str> {
    abouts.iter().map(|about| about.name).collect()
}
