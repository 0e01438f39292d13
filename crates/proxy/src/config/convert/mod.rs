//! The conversion of tables to a configuration, which reports every mistake.

mod routes;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use microcache_policy::Rules;
use microcache_policy::patterns::FieldPatterns;

use super::include::Document;
use super::itself::note_itself;
use super::mistake::{Mistake, Mistakes, Report};
use super::options::{
    ACCESS, ACME, ADMIN, ASKING, COMPRESSION, EDGE, ERROR_PAGES, FILES, GROUP, HEADERS, INCLUDE,
    LIMITS, LOGS, MERCURE, ORIGIN, PAGES, PUSH, REDIRECTS, RULES, RouteDraft, SERVER, SERVERS,
    TIERS, TLS, abouts, check_authentication, check_client_certificate, check_compression,
    check_edge, check_page_edits, flags, set_defaults,
};
use super::place::Place;
use super::raw::{self, Table, Value};
use super::route::{GoesTo, Route};
use super::scripts::check_scripts;
use super::settings::{Settings, Tables};
use super::texts::Texts;
use super::{
    AcmeConfig, Admin, ClientTimeouts, Config, Limits, LogConfig, PushConfig, TierConfig, TlsConfig,
};
use crate::upstream::settings::GroupSettings;

/// The sources of a configuration.
#[derive(Clone, Copy, Debug, Default)]
pub struct Input<'a> {
    /// A file's path and text. `include` is relative to its directory.
    pub file: Option<(&'a str, &'a str)>,
    /// The URLs of the command line.
    pub urls: &'a [String],
    /// The flags that were given: an option's name and its values. A flag overrides the file.
    pub flags: &'a [(&'static str, Vec<String>)],
}

impl Config {
    /// Reads a configuration, or reports every mistake in it.
    pub fn read(input: Input<'_>) -> Result<Self, Report> {
        let (name, text) = input.file.unwrap_or_default();
        let mut mistakes = Mistakes::default();
        let Document {
            value: file,
            texts,
            include,
        } = Document::read(name, text, &mut mistakes);
        let command_line = raw::command_line(input.urls, input.flags, flags());
        let mut draft = Draft::new();
        let tables: Vec<_> = [&file, &command_line]
            .into_iter()
            .filter_map(|source| mistakes.ok(source.table()))
            .collect();
        for table in &tables {
            draft.read(table, &mut mistakes);
        }
        let is_set = |name: &'static str| tables.iter().any(|table| table.get(name).is_some());
        let Config {
            listen, tls, acme, ..
        } = &mut draft.config;
        acme.settle(listen, tls, is_set);
        // The last source that has `origin` wins.
        if let Some(origin) = tables.iter().rev().find_map(|table| table.get("origin")) {
            let listen = draft.client_addresses();
            note_itself(&listen, &draft.origin.servers, &origin.place, &mut mistakes);
        }
        let written = Tables {
            name: input.file.map(|(name, _)| name),
            texts: &texts,
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
            tls.settle(listen, acme.is_on(), table, &mut mistakes);
            acme.check(table, &mut mistakes);
            push.mercure.check(&abouts(MERCURE), table, &mut mistakes);
            push.check(&abouts(PUSH), table, &mut mistakes);
        }
        for table in tables {
            draft.check_sizes(&table, &mut mistakes);
            draft.check_tiers(&table, &mut mistakes);
            let clients = draft.client_addresses();
            draft.config.admin.check(&table, &clients, &mut mistakes);
            table.refuse_rest(&mut mistakes);
        }
        let config = draft.finish(input.file.is_some(), &mut mistakes);
        let warnings = mistakes.report(&texts)?;
        Ok(Self {
            warnings,
            settings: written.settings(&config),
            include,
            texts,
            ..config
        })
    }
}

/// The default client address.
const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
/// The default admin address, used if it is free.
const ADMIN_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8081);

/// A body may take a quarter of the memory, so that it does not evict everything else.
const LARGEST_SHARE: u64 = 4;

/// A configuration under construction.
struct Draft<'a> {
    config: Config,
    origin: GroupSettings,
    /// The defaults of all routes and groups.
    route: RouteDraft,
    group: GroupSettings,
    origin_urls: Option<&'a Value>,
    /// The tables of the file, read once all that they inherit is known.
    upstreams: Option<&'a Value>,
    routes: Option<&'a Value>,
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
                trusted_headers: FieldPatterns::default(),
                proxy_protocol: Vec::new(),
                purge_from: Vec::new(),
                purge_path: None,
                maintenance_allow: Vec::new(),
                maintenance_page: None,
                warm_start_file: None,
                tiers: TierConfig::default(),
                push: PushConfig::default(),
                logs: LogConfig::default(),
                warnings: Report::default(),
                reload_on_change: false,
                settings: Settings::default(),
                include: Vec::new(),
                texts: Texts::default(),
            },
            origin: GroupSettings::new("origin", Vec::new()),
            route: RouteDraft::new(),
            group: GroupSettings::new("", Vec::new()),
            upstreams: None,
            routes: None,
            origin_urls: None,
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
        set_defaults(ACCESS, &mut draft.route);
        set_defaults(COMPRESSION, &mut draft.route);
        set_defaults(EDGE, &mut draft.route);
        set_defaults(PAGES, &mut draft.route);
        set_defaults(HEADERS, &mut draft.route);
        set_defaults(ERROR_PAGES, &mut draft.route);
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
        table.apply(ACCESS, &mut self.route, mistakes);
        table.apply(COMPRESSION, &mut self.route, mistakes);
        table.apply(EDGE, &mut self.route, mistakes);
        table.apply(PAGES, &mut self.route, mistakes);
        table.apply(HEADERS, &mut self.route, mistakes);
        table.apply(REDIRECTS, &mut self.route, mistakes);
        table.apply(ERROR_PAGES, &mut self.route, mistakes);
        table.apply(GROUP, &mut self.group, mistakes);
        table.apply(ORIGIN, &mut self.origin.servers, mistakes);
        self.origin_urls = table.get("origin").or(self.origin_urls);
        table.apply(INCLUDE, &mut (), mistakes);
        self.upstreams = table.get("upstreams").or(self.upstreams);
        self.routes = table.get("routes").or(self.routes);
    }

    /// Returns all client addresses.
    fn client_addresses(&self) -> Vec<SocketAddr> {
        [&self.config.listen[..], &self.config.tls.listen].concat()
    }

    fn check_sizes(&mut self, table: &Table<'_>, mistakes: &mut Mistakes) {
        let limits = &self.config.limits;
        if limits.target_bytes > limits.head_bytes {
            let value = table.get("max_target_size").or(table.get("max_head_size"));
            if let Some(value) = value {
                let what = "`max_target_size` is larger than `max_head_size`";
                mistakes.note(
                    Mistake::new(&value.place, what)
                        .remedy("the target is a part of the head: make it smaller"),
                );
            }
        }
        self.check_max_object(&self.route, table, mistakes);
        self.check_purge_path(table, mistakes);
        self.check_trusted_headers(table, mistakes);
        check_removed(&self.route, table, mistakes);
        check_authentication(table, mistakes);
        let has_authorities = self.config.tls.client_ca.is_some();
        check_client_certificate(&self.route, has_authorities, table, mistakes);
        check_compression(&mut self.route, table, mistakes);
        check_edge(&self.route, table, mistakes);
        check_page_edits(&self.route, table, mistakes);
    }

    /// Notes that no client may use the path.
    fn check_purge_path(&self, table: &Table<'_>, mistakes: &mut Mistakes) {
        if let Some(value) = table.get("purge_path")
            && self.config.purge_from.is_empty()
        {
            let what = "`purge_path` has no effect without `purge_from`";
            let remedy = "add purge_from = [\"127.0.0.1\"], the address of the application";
            mistakes.note(Mistake::new(&value.place, what).remedy(remedy));
        }
    }

    /// Notes that no peer is trusted.
    fn check_trusted_headers(&self, table: &Table<'_>, mistakes: &mut Mistakes) {
        if let Some(value) = table.get("trusted_headers")
            && self.config.trusted_proxies.is_empty()
        {
            let what = "`trusted_headers` has no effect without `trusted_proxies`";
            let remedy = "add trusted_proxies = [\"127.0.0.1\"], the address of your proxy";
            mistakes.note(Mistake::new(&value.place, what).remedy(remedy));
        }
    }

    /// Notes two shared tiers: only one can coordinate the fetches of several processes.
    fn check_tiers(&self, table: &Table<'_>, mistakes: &mut Mistakes) {
        let tiers = &self.config.tiers;
        if !tiers.memcached.is_empty()
            && !tiers.redis.is_empty()
            && let Some(value) = table.get("redis").or(table.get("memcached"))
        {
            let what = "`memcached` and `redis` cannot be used together";
            mistakes.note(Mistake::new(&value.place, what).remedy("remove one of them"));
        }
    }

    fn check_max_object(&self, draft: &RouteDraft, table: &Table<'_>, mistakes: &mut Mistakes) {
        if let Some(value) = table.get("max_object")
            && draft.route.max_object > Some(self.config.memory / LARGEST_SHARE)
        {
            mistakes.note(
                Mistake::new(
                    &value.place,
                    "`max_object` is larger than a quarter of `memory`",
                )
                .remedy("increase `memory`, or lower `max_object`"),
            );
        }
    }

    fn finish(mut self, has_file: bool, mistakes: &mut Mistakes) -> Config {
        if let Some(urls) = self.origin_urls {
            let origin = GroupSettings {
                name: "origin".to_owned(),
                servers: std::mem::take(&mut self.origin.servers),
                ..self.group.clone()
            };
            check_scripts(&origin, &urls.place, mistakes);
            self.config.upstreams.push(origin);
        }
        self.read_upstreams(mistakes);
        self.read_routes(mistakes);
        let routes = &self.config.routes;
        let needs_no_origin =
            |route: &Route| matches!(route.goes_to, GoesTo::Files(_)) || route.answers_itself();
        if self.config.upstreams.is_empty() && !routes.iter().any(needs_no_origin) {
            mistakes.note(no_origin(has_file));
        }
        self.add_authentication_servers(mistakes);
        self.config
    }

    /// Adds the upstream groups of authentication servers, behind all others.
    fn add_authentication_servers(&mut self, mistakes: &mut Mistakes) {
        let listen = self.client_addresses();
        let Config {
            routes, upstreams, ..
        } = &mut self.config;
        for route in routes {
            let Some(auth) = &mut route.forward_auth else {
                continue;
            };
            let rules = &route.rules.request;
            let mut copied = auth.copied().iter();
            if let Some(name) = copied.find(|name| rules.sets(name.as_bytes())) {
                let what = format!("`{name}` is set by `request_headers` and by `forward_auth`");
                mistakes.note(Mistake::new(&auth.place, what).remedy("remove it from one of them"));
            }
            let Some(url) = auth.url.clone() else {
                continue;
            };
            note_itself(&listen, &[url.server().clone()], &auth.place, mistakes);
            let mut settings = auth.settings(&url, &self.group);
            let name = settings.name.clone();
            for number in 2.. {
                let known = upstreams.iter().position(|it| it.name == settings.name);
                auth.group = known.unwrap_or(upstreams.len());
                match known {
                    Some(index) if upstreams[index] == settings => break,
                    Some(_) => settings.name = format!("{name} {number}"),
                    None => {
                        upstreams.push(settings);
                        break;
                    }
                }
            }
        }
    }

    fn read_upstreams(&mut self, mistakes: &mut Mistakes) {
        let Some(table) = self.upstreams.and_then(|value| mistakes.ok(value.table())) else {
            return;
        };
        for (key, value) in table.entries() {
            if self.group_named(&key.name).is_some() {
                let what = format!("the group `{}` is defined twice", key.name);
                mistakes.note(
                    Mistake::new(&key.place, what)
                        .remedy("`origin` defines a group of that name: rename this one"),
                );
            }
            let mut group = self.group.clone();
            group.name.clone_from(&key.name);
            if let Some(table) = mistakes.ok(value.table()) {
                table.apply(SERVERS, &mut group, mistakes);
                table.apply(GROUP, &mut group, mistakes);
                if let Some(servers) = table.get("servers") {
                    let listen = self.client_addresses();
                    note_itself(&listen, &group.servers, &servers.place, mistakes);
                    check_scripts(&group, &servers.place, mistakes);
                } else {
                    let what = format!("the group `{}` has no `servers`", key.name);
                    mistakes.note(
                        Mistake::new(&key.place, what)
                            .remedy("add servers = [\"http://HOST:PORT\"]"),
                    );
                }
                table.refuse_rest(mistakes);
            }
            self.config.upstreams.push(group);
        }
    }

    fn group_named(&self, name: &str) -> Option<usize> {
        self.config
            .upstreams
            .iter()
            .position(|group| group.name == name)
    }

    /// Returns the default group: `origin`, or the only one.
    fn default_group(&self) -> Option<usize> {
        self.group_named("origin")
            .or((self.config.upstreams.len() == 1).then_some(0))
    }
}

/// Notes parts of the key that the origin never receives.
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
                    .remedy("the origin never receives it: remove it from one of the two"),
            );
        }
    }
}

fn no_origin(has_file: bool) -> Mistake {
    if has_file {
        Mistake::new(&Place::File(0..0), "no origin")
            .remedy("add origin = \"http://localhost:3000\"")
    } else {
        Mistake::new(&Place::Urls, "missing")
            .remedy("type the URL of the application: microcache http://localhost:3000")
    }
}
