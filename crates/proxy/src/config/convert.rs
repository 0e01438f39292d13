//! From what was written to a configuration: the one conversion, which reports every mistake.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use microcache_policy::Rules;
use microcache_policy::rules::Query;

use super::itself::note_itself;
use super::mistake::{Mistake, Mistakes, Place, Report};
use super::options::{
    ACME, ADMIN, ASKING, COMPRESSION, FILES, GROUP, LIMITS, LOGS, MERCURE, ORIGIN, PUSH, ROUTE,
    RULES, RouteDraft, SERVER, SERVERS, TIERS, TLS, abouts, check_compression, set_defaults,
};
use super::raw::{self, Table, Value};
use super::route::{GoesTo, Route};
use super::settings::{Settings, Written};
use super::{
    AcmeConfig, Admin, ClientTimeouts, Config, Limits, LogConfig, PushConfig, TierConfig, TlsConfig,
};
use crate::files::Root;
use crate::upstream::settings::GroupSettings;

/// What a configuration is made from.
#[derive(Clone, Copy, Debug, Default)]
pub struct Input<'a> {
    /// A file's name and text.
    pub file: Option<(&'a str, &'a str)>,
    /// The urls of the command line.
    pub urls: &'a [String],
    /// The flags that were given: an option's name and its values. A flag overrides the file.
    pub flags: &'a [(&'static str, Vec<String>)],
}

impl Config {
    /// Makes a configuration, or reports everything that is wrong with it.
    pub fn read(input: Input<'_>) -> Result<Self, Report> {
        let (name, text) = input.file.unwrap_or_default();
        let mut mistakes = Mistakes::default();
        let file = raw::document(text, &mut mistakes);
        let command_line = raw::command_line(input.urls, input.flags);
        let mut draft = Draft::new();
        let tables: Vec<_> = [&file, &command_line]
            .into_iter()
            .filter_map(|source| mistakes.ok(source.table()))
            .collect();
        for table in &tables {
            draft.read(table, &mut mistakes);
        }
        let says = |name: &'static str| tables.iter().any(|table| table.get(name).is_some());
        let Config {
            listen, tls, acme, ..
        } = &mut draft.config;
        acme.settle(listen, tls, says);
        // The last one who names the origin is obeyed.
        if let Some(origin) = tables.iter().rev().find_map(|table| table.get("origin")) {
            let listen = draft.everywhere();
            note_itself(&listen, &draft.origin.servers, &origin.place, &mut mistakes);
        }
        let written = Written {
            name: input.file.map(|(name, _)| name),
            text,
            file: &file,
            command_line: &command_line,
        };
        for table in &tables {
            let Config {
                listen,
                tls,
                acme,
                push,
                ..
            } = &mut draft.config;
            tls.settle(listen, acme, table, &mut mistakes);
            acme.check(table, &mut mistakes);
            push.check(table, &mut mistakes);
        }
        for table in tables {
            draft.check_sizes(&table, &mut mistakes);
            draft.check_tiers(&table, &mut mistakes);
            let clients = draft.everywhere();
            draft.config.admin.check(&table, &clients, &mut mistakes);
            table.refuse_rest(&mut mistakes);
        }
        let config = draft.finish(input.file.is_some(), &mut mistakes);
        let warnings = mistakes.report(name, text)?;
        Ok(Self {
            warnings,
            settings: written.settings(&config),
            written: (name.to_owned(), text.to_owned()),
            ..config
        })
    }
}

/// Where clients connect when nothing is said.
const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
/// Where operators connect when nothing is said, if it is free.
const ADMIN_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8081);

/// One object may take a quarter of the memory: it must not push everything else out.
const LARGEST_SHARE: u64 = 4;

/// A configuration on its way.
struct Draft<'a> {
    config: Config,
    origin: GroupSettings,
    /// What holds for every route and every group that does not say otherwise.
    route: RouteDraft,
    group: GroupSettings,
    /// The tables of the file, read once all that they inherit is known.
    upstreams: Option<&'a Value>,
    routes: Option<&'a Value>,
    names_an_origin: bool,
}

impl<'a> Draft<'a> {
    fn new() -> Self {
        let mut draft = Self {
            config: Config {
                listen: vec![ADDRESS],
                tls: TlsConfig::default(),
                acme: AcmeConfig::default(),
                admin: Admin {
                    address: Some(ADMIN_ADDRESS),
                    ..Admin::default()
                },
                threads: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
                memory: 0,
                upstreams: Vec::new(),
                routes: Vec::new(),
                hit_for_miss: 0,
                remember_too_large: 0,
                stale_wait: 0,
                limits: Limits::default(),
                timeouts: ClientTimeouts::default(),
                trusted_proxies: Vec::new(),
                proxy_protocol: Vec::new(),
                purge_from: Vec::new(),
                tiers: TierConfig::default(),
                push: PushConfig::default(),
                logs: LogConfig::default(),
                warnings: Report::default(),
                reload_on_change: false,
                settings: Settings::default(),
                written: Default::default(),
            },
            origin: GroupSettings::new("origin", Vec::new()),
            route: RouteDraft::new(),
            group: GroupSettings::new("", Vec::new()),
            upstreams: None,
            routes: None,
            names_an_origin: false,
        };
        set_defaults(SERVER, &mut draft.config);
        set_defaults(LIMITS, &mut draft.config);
        set_defaults(TLS, &mut draft.config.tls);
        set_defaults(ACME, &mut draft.config.acme);
        set_defaults(LOGS, &mut draft.config.logs);
        set_defaults(TIERS, &mut draft.config);
        set_defaults(PUSH, &mut draft.config.push);
        set_defaults(MERCURE, &mut draft.config.push.mercure);
        set_defaults(RULES, &mut draft.route);
        set_defaults(ASKING, &mut draft.route);
        set_defaults(COMPRESSION, &mut draft.route);
        set_defaults(FILES, &mut draft.route);
        set_defaults(GROUP, &mut draft.group);
        draft
    }

    /// Reads the top of one source.
    fn read(&mut self, table: &Table<'a>, mistakes: &mut Mistakes) {
        table.apply(SERVER, &mut self.config, mistakes);
        table.apply(LIMITS, &mut self.config, mistakes);
        table.apply(TLS, &mut self.config.tls, mistakes);
        table.apply(ACME, &mut self.config.acme, mistakes);
        table.apply(LOGS, &mut self.config.logs, mistakes);
        table.apply(ADMIN, &mut self.config.admin, mistakes);
        table.apply(TIERS, &mut self.config, mistakes);
        table.apply(PUSH, &mut self.config.push, mistakes);
        table.apply(MERCURE, &mut self.config.push.mercure, mistakes);
        table.apply(RULES, &mut self.route, mistakes);
        table.apply(ASKING, &mut self.route, mistakes);
        table.apply(COMPRESSION, &mut self.route, mistakes);
        table.apply(GROUP, &mut self.group, mistakes);
        table.apply(ORIGIN, &mut self.origin.servers, mistakes);
        self.names_an_origin |= table.get("origin").is_some();
        self.upstreams = table.get("upstreams").or(self.upstreams);
        self.routes = table.get("routes").or(self.routes);
    }

    /// Everywhere clients connect.
    fn everywhere(&self) -> Vec<SocketAddr> {
        [&self.config.listen[..], &self.config.tls.listen].concat()
    }

    fn check_sizes(&mut self, table: &Table<'_>, mistakes: &mut Mistakes) {
        let limits = &self.config.limits;
        if limits.target_bytes > limits.head_bytes {
            let value = table.get("max_target_size").or(table.get("max_head_size"));
            if let Some(value) = value {
                let what = "`max_target_size` is more than `max_head_size`";
                mistakes
                    .note(Mistake::new(&value.place, what).remedy("a target is part of its head"));
            }
        }
        self.check_max_object(&self.route, table, mistakes);
        check_removed(&self.route, table, mistakes);
        check_compression(&mut self.route, table, mistakes);
    }

    /// One tier decides who of all processes asks the origin, and only that one could be filled.
    fn check_tiers(&self, table: &Table<'_>, mistakes: &mut Mistakes) {
        let tiers = &self.config.tiers;
        if !tiers.memcached.is_empty()
            && !tiers.redis.is_empty()
            && let Some(value) = table.get("redis").or(table.get("memcached"))
        {
            let what = "`memcached` and `redis` cannot be used together";
            mistakes.note(Mistake::new(&value.place, what).remedy("choose one of them"));
        }
    }

    fn check_max_object(&self, draft: &RouteDraft, table: &Table<'_>, mistakes: &mut Mistakes) {
        if let Some(value) = table.get("max_object")
            && draft.route.max_object > Some(self.config.memory / LARGEST_SHARE)
        {
            mistakes.note(
                Mistake::new(
                    &value.place,
                    "`max_object` is more than a quarter of `memory`",
                )
                .remedy("give it more memory, or keep smaller objects only"),
            );
        }
    }

    fn finish(mut self, has_file: bool, mistakes: &mut Mistakes) -> Config {
        if self.names_an_origin {
            let origin = GroupSettings {
                name: "origin".to_owned(),
                servers: std::mem::take(&mut self.origin.servers),
                ..self.group.clone()
            };
            self.config.upstreams.push(origin);
        }
        self.read_upstreams(mistakes);
        self.read_routes(mistakes);
        let routes = &self.config.routes;
        let has_files = |route: &Route| matches!(route.goes_to, GoesTo::Files(_));
        if self.config.upstreams.is_empty() && !routes.iter().any(has_files) {
            mistakes.note(no_origin(has_file));
        }
        self.config
    }

    fn read_upstreams(&mut self, mistakes: &mut Mistakes) {
        let Some(table) = self.upstreams.and_then(|value| mistakes.ok(value.table())) else {
            return;
        };
        for (key, value) in table.entries() {
            if self.group_named(&key.name).is_some() {
                let what = format!("there is a group named `{}` already", key.name);
                mistakes.note(
                    Mistake::new(&key.place, what)
                        .remedy("that is what the urls of `origin` are called"),
                );
            }
            let mut group = self.group.clone();
            group.name.clone_from(&key.name);
            if let Some(table) = mistakes.ok(value.table()) {
                table.apply(SERVERS, &mut group, mistakes);
                table.apply(GROUP, &mut group, mistakes);
                if let Some(servers) = table.get("servers") {
                    let listen = self.everywhere();
                    note_itself(&listen, &group.servers, &servers.place, mistakes);
                } else {
                    let what = format!("the group `{}` has no `servers`", key.name);
                    mistakes.note(
                        Mistake::new(&key.place, what).remedy("servers = [\"http://HOST:PORT\"]"),
                    );
                }
                table.refuse_rest(mistakes);
            }
            self.config.upstreams.push(group);
        }
    }

    fn read_routes(&mut self, mistakes: &mut Mistakes) {
        let mut read: Vec<ReadRoute> = Vec::new();
        for value in self.routes.map_or(&[][..], Value::items) {
            if let Some(route) = self.read_route(value, read.len() + 1, mistakes) {
                route.check_against(&read, mistakes);
                read.push(route);
            }
        }
        let read = read.into_iter().map(|read| read.route.route);
        self.config.routes = read.collect();
        let routes = &self.config.routes;
        if !routes.iter().any(|route| route.matcher.is_everything()) {
            self.add_default_route(mistakes);
        }
        let own = self.config.push.routes(&self.config.routes);
        self.config.routes.splice(0..0, own);
    }

    /// What no route takes goes where requests go when nothing else is said.
    fn add_default_route(&mut self, mistakes: &mut Mistakes) {
        if let Some(upstream) = self.default_group() {
            let mut rest = self.route.route.clone();
            rest.goes_to = GoesTo::Upstream(upstream);
            "default".clone_into(&mut rest.name);
            self.config.routes.push(rest);
        } else if let Some(value) = self.routes.or(self.upstreams) {
            let (what, remedy) = if self.config.upstreams.is_empty() {
                let what = "no route takes the other requests, and there is no origin";
                (what, "end with a [[routes]] without match, or add origin")
            } else {
                let what =
                    "no route takes the other requests, and there are several upstream groups";
                (
                    what,
                    "end with a [[routes]] without match, or name one group `origin`",
                )
            };
            mistakes.note(Mistake::new(&value.place, what).remedy(remedy));
        }
    }

    fn read_route(
        &self,
        value: &Value,
        number: usize,
        mistakes: &mut Mistakes,
    ) -> Option<ReadRoute> {
        let table = mistakes.ok(value.table())?;
        let mut route = self.route.clone();
        route.route.name = format!("route {number}");
        let before = mistakes.count();
        table.apply(ROUTE, &mut route, mistakes);
        table.apply(FILES, &mut route, mistakes);
        let matcher_is_good = mistakes.count() == before;
        table.apply(RULES, &mut route, mistakes);
        table.apply(ASKING, &mut route, mistakes);
        table.apply(COMPRESSION, &mut route, mistakes);
        self.find_destination(&mut route, value, &table, mistakes);
        check_rate(&route, &table, mistakes);
        self.check_max_object(&route, &table, mistakes);
        check_pass(&route, &table, mistakes);
        check_removed(&route, &table, mistakes);
        check_compression(&mut route, &table, mistakes);
        let place_of = |name| table.get(name).map_or(&value.place, |v| &v.place).clone();
        let read = ReadRoute {
            match_place: place_of("match"),
            name_place: place_of("name"),
            matcher_is_good,
            route,
        };
        table.refuse_rest(mistakes);
        Some(read)
    }

    /// A directory, or an upstream group.
    fn find_destination(
        &self,
        route: &mut RouteDraft,
        value: &Value,
        table: &Table<'_>,
        mistakes: &mut Mistakes,
    ) {
        if table.get("root").is_none() {
            for name in ["index", "precompressed"] {
                if let Some(value) = table.get(name) {
                    let what = format!("`{name}` says nothing without `root`");
                    mistakes.note(
                        Mistake::new(&value.place, what)
                            .remedy("name the directory: root = \"/var/www/site\""),
                    );
                }
            }
            if let Some(upstream) = self.upstream_of(route, value, mistakes) {
                route.route.goes_to = GoesTo::Upstream(upstream);
            }
            return;
        }
        if let Some((_, place)) = &route.upstream {
            let what = "`root` and `upstream` exclude each other";
            mistakes.note(Mistake::new(place, what).remedy("keep the one that is to answer"));
        }
        if table.get("key").is_none() {
            // No file depends on a query: nobody can have the same kept many times over.
            route.route.rules.key.query = Query::Only(<_>::default());
        }
        if let Some(folder) = route.root.take() {
            route.route.goes_to = GoesTo::Files(Root {
                folder,
                index: route.index.clone(),
                precompressed: route.precompressed,
            });
        }
    }

    fn upstream_of(
        &self,
        route: &RouteDraft,
        value: &Value,
        mistakes: &mut Mistakes,
    ) -> Option<usize> {
        let names: Vec<_> = self
            .config
            .upstreams
            .iter()
            .map(|g| g.name.as_str())
            .collect();
        if names.is_empty() {
            return None;
        }
        let listed = names.join(", ");
        if let Some((name, place)) = &route.upstream {
            let found = self.group_named(name);
            if found.is_none() {
                let remedy = match super::nearest(name, names) {
                    Some(near) => format!("did you mean \"{near}\"?"),
                    None => format!("there is: {listed}"),
                };
                mistakes.note(
                    Mistake::new(place, format!("no upstream group is named \"{name}\""))
                        .remedy(remedy),
                );
            }
            return found;
        }
        let found = self.default_group();
        if found.is_none() {
            mistakes.note(
                Mistake::new(&value.place, "the route does not say which upstream")
                    .remedy(format!("add upstream = one of: {listed}")),
            );
        }
        found
    }

    fn group_named(&self, name: &str) -> Option<usize> {
        self.config
            .upstreams
            .iter()
            .position(|group| group.name == name)
    }

    /// Where requests go when nothing else is said: to `origin`, or to the only group there is.
    fn default_group(&self) -> Option<usize> {
        self.group_named("origin")
            .or((self.config.upstreams.len() == 1).then_some(0))
    }
}

/// A route, and what is needed to compare it with the ones before.
struct ReadRoute {
    route: RouteDraft,
    match_place: Place,
    name_place: Place,
    matcher_is_good: bool,
}

impl ReadRoute {
    fn check_against(&self, earlier: &[Self], mistakes: &mut Mistakes) {
        let route = &self.route.route;
        if earlier.iter().any(|e| e.route.route.name == route.name) {
            let what = format!("another route is named \"{}\"", route.name);
            mistakes.note(Mistake::new(&self.name_place, what));
        }
        let covering = earlier.iter().find(|e| {
            e.matcher_is_good
                && self.matcher_is_good
                && e.route.route.matcher.covers(&route.matcher)
        });
        if let Some(covering) = covering {
            let what = format!(
                "this route is never reached: \"{}\" above takes all of its requests",
                covering.route.route.name
            );
            mistakes.note(Mistake::new(&self.match_place, what).remedy("move it up"));
        }
    }
}

/// How requests are counted means nothing where they are not.
fn check_rate(draft: &RouteDraft, table: &Table<'_>, mistakes: &mut Mistakes) {
    if draft.route.rate.quota.is_some() {
        return;
    }
    for name in ["burst", "rate_by", "rate_of"] {
        if let Some(value) = table.get(name) {
            let what = format!("`{name}` says nothing without `rate`");
            mistakes.note(Mistake::new(&value.place, what).remedy("add rate = \"10/s\""));
        }
    }
}

/// What a route says about keeping responses means nothing when it keeps none.
fn check_pass(draft: &RouteDraft, table: &Table<'_>, mistakes: &mut Mistakes) {
    if !draft.route.pass {
        return;
    }
    for about in abouts(RULES).into_iter().chain(abouts(COMPRESSION)) {
        if let Some(value) = table.get(about.name).filter(|_| about.name != "pass") {
            let what = format!(
                "`{}` has no effect: the route passes everything",
                about.name
            );
            mistakes.note(Mistake::new(&value.place, what));
        }
    }
}

/// What the origin never sees cannot tell responses apart.
fn check_removed(draft: &RouteDraft, table: &Table<'_>, mistakes: &mut Mistakes) {
    let Rules { key, request, .. } = &draft.route.rules;
    let beginning = |name: &str| name.trim_end_matches('*').as_bytes().to_vec();
    let cookie = key
        .cookies
        .iter()
        .find(|name| request.removed_cookies.matches(&beginning(name)));
    let field = key
        .headers
        .iter()
        .find(|name| request.removed_fields.matches(&beginning(name)));
    for (option, found) in [("remove_cookies", cookie), ("remove_headers", field)] {
        if let Some(name) = found
            && let Some(value) = table.get(option).or(table.get("key"))
        {
            let what = format!("`{name}` is part of the key, and removed by `{option}`");
            mistakes.note(
                Mistake::new(&value.place, what)
                    .remedy("the origin never sees it: take it out of one of them"),
            );
        }
    }
}

fn no_origin(has_file: bool) -> Mistake {
    if has_file {
        Mistake::new(&Place::File(0..0), "no origin: where is the application?")
            .remedy("add origin = \"http://localhost:3000\"")
    } else {
        Mistake::new(&Place::Urls, "none given")
            .remedy("say where the application is: microcache http://localhost:3000")
    }
}
