//! Routes: their tables, their destinations, and what contradicts itself in them.

use microcache_policy::rules::{Prefetch, Query};
use microcache_policy::url_template::UrlTemplate;

use super::super::access::AddressRules;
use super::super::fixed_response::FixedResponse;
use super::super::mistake::{Mistake, Mistakes};
use super::super::options::{
    ACCESS, ANSWERS, ASKING, COMPRESSION, EDGE, ERROR_PAGES, FILES, HEADERS, Otherwise, PAGES,
    REDIRECTS, REWRITING, ROUTE, RULES, RouteDraft, abouts, check_authentication,
    check_client_certificate, check_compression, check_edge, check_page_edits, exclusive,
};
use super::super::page_edits::{INCLUDE_PATH, INCLUDE_SCRIPT, PageEdits};
use super::super::pattern::Glob;
use super::super::place::Place;
use super::super::raw::{Table, Value};
use super::super::redirect_loops::looping_url;
use super::super::route::{GoesTo, Route};
use super::super::route_order::{ReadRoute, check_order};
use super::super::{Config, nearest};
use super::{Draft, check_removed};
use crate::files::Root;

impl Draft<'_> {
    pub(super) fn read_routes(&mut self, mistakes: &mut Mistakes) {
        let mut read: Vec<ReadRoute> = Vec::new();
        for value in self.routes.map_or(&[][..], Value::items) {
            read.extend(self.read_route(value, read.len() + 1, mistakes));
        }
        check_order(&read, mistakes);
        let (places, read): (Vec<_>, Vec<_>) = read
            .into_iter()
            .map(|read| (read.match_place, read.route.route))
            .unzip();
        self.config.routes = read;
        let routes = &self.config.routes;
        if !routes.iter().any(|route| route.matcher.is_everything()) {
            self.add_default_route(mistakes);
        }
        self.note_loops(&places, mistakes);
        let edits = self.config.routes.iter().map(|route| &route.page_edits);
        let mut token_paths: Vec<_> = edits.flat_map(PageEdits::token_paths).collect();
        token_paths.sort_unstable();
        token_paths.dedup();
        for route in &mut self.config.routes {
            route.settle_page_edits(&token_paths);
        }
        let of_all = &self.route.route;
        let authenticates = of_all.basic_auth.is_some() || of_all.forward_auth.is_some();
        self.config.push.check_readers(authenticates, mistakes);
        let mut own = self.config.push.routes(&self.config.routes);
        own.extend(include_route(&self.config.routes));
        for route in &mut own {
            route.addresses.clone_from(&self.route.route.addresses);
            let certificate = &self.route.route.client_certificate;
            route.client_certificate.clone_from(certificate);
            route.basic_auth.clone_from(&self.route.route.basic_auth);
            // Nothing else authenticates clients if a server names what they may read.
            if route.forward_auth.is_none() {
                route
                    .forward_auth
                    .clone_from(&self.route.route.forward_auth);
            }
        }
        self.config.routes.splice(0..0, own);
        let Config {
            routes,
            trusted_headers,
            ..
        } = &mut self.config;
        for route in routes {
            let rules = &mut route.rules.request;
            rules.trusted_fields.clone_from(trusted_headers);
            route.settle_authentication();
            route.settle_user_context(mistakes);
        }
    }

    /// Notes redirects that lead back to themselves.
    fn note_loops(&self, places: &[Place], mistakes: &mut Mistakes) {
        let Config { routes, tls, .. } = &self.config;
        let has_tls = !tls.listen.is_empty();
        for (route, place) in places
            .iter()
            .enumerate()
            .filter(|(it, _)| routes[*it].redirects())
        {
            if let Some(url) = looping_url(routes, route, has_tls) {
                let what = format!("`{url}` is redirected over and over");
                mistakes.note(
                    Mistake::new(place, what)
                        .remedy("exclude the target, as match = { not = { path = \"/new\" } }"),
                );
            }
        }
    }

    /// Adds the route for all other requests, which go to the default group.
    fn add_default_route(&mut self, mistakes: &mut Mistakes) {
        if let Some(upstream) = self.default_group() {
            let mut rest = self.route.route.clone();
            rest.goes_to = GoesTo::Upstream(upstream);
            "default".clone_into(&mut rest.name);
            self.config.routes.push(rest);
        } else if let Some(value) = self.routes.or(self.upstreams) {
            let (what, remedy) = if self.config.upstreams.is_empty() {
                let what = "no route matches all other requests, and there is no origin";
                (what, "add a last [[routes]] without match, or add origin")
            } else {
                let what =
                    "no route matches all other requests, and there are several upstream groups";
                (
                    what,
                    "add a last [[routes]] without match, or name one group `origin`",
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
        table.apply(ANSWERS, &mut route, mistakes);
        table.apply(REWRITING, &mut route, mistakes);
        let matcher_is_good = mistakes.count() == before;
        table.apply(RULES, &mut route, mistakes);
        table.apply(ASKING, &mut route, mistakes);
        if ["allow", "deny"]
            .iter()
            .any(|name| table.get(name).is_some())
        {
            route.route.addresses = AddressRules::default();
        }
        table.apply(ACCESS, &mut route, mistakes);
        check_authentication(&table, mistakes);
        let has_authorities = self.config.tls.client_ca.is_some();
        check_client_certificate(&route, has_authorities, &table, mistakes);
        table.apply(COMPRESSION, &mut route, mistakes);
        table.apply(EDGE, &mut route, mistakes);
        table.apply(PAGES, &mut route, mistakes);
        check_page_edits(&route, &table, mistakes);
        table.apply(HEADERS, &mut route, mistakes);
        table.apply(REDIRECTS, &mut route, mistakes);
        table.apply(ERROR_PAGES, &mut route, mistakes);
        self.find_destination(&mut route, value, &table, mistakes);
        check_rate(&route, &table, mistakes);
        self.check_max_object(&route, &table, mistakes);
        check_pass(&route, &table, mistakes);
        check_removed(&route, &table, mistakes);
        check_compression(&mut route, &table, mistakes);
        check_edge(&route, &table, mistakes);
        if route.route.matcher.goes_by_more_than_url() {
            route.route.rules.key.route = Some(route.route.name.clone());
        }
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

    /// Sets the destination of a route: a directory, or an upstream group.
    fn find_destination(
        &self,
        route: &mut RouteDraft,
        value: &Value,
        table: &Table<'_>,
        mistakes: &mut Mistakes,
    ) {
        if let Some((name, answer)) = route.answer.take() {
            let rewriting = REWRITING.iter().map(|option| option.about.name);
            for other in ["upstream", "root", "index", "precompressed"]
                .into_iter()
                .chain(rewriting)
            {
                if let Some(value) = table.get(other) {
                    mistakes.note(exclusive(&value.place, other, name));
                }
            }
            if let GoesTo::Redirect(redirect) = &answer {
                check_captures(&redirect.to, name, &route.route, table, mistakes);
            }
            route.route.goes_to = answer;
            return;
        }
        if let Some(to) = &route.route.rewrite.to {
            check_captures(to, "rewrite", &route.route, table, mistakes);
        }
        if table.get("root").is_none() {
            for name in ["index", "precompressed", "otherwise"] {
                if let Some(value) = table.get(name) {
                    let what = format!("`{name}` has no effect without `root`");
                    mistakes.note(
                        Mistake::new(&value.place, what)
                            .remedy("add root = \"/var/www/site\", or remove it"),
                    );
                }
            }
            if let Some(upstream) = self.upstream_of(route, value, mistakes) {
                route.route.goes_to = GoesTo::Upstream(upstream);
            }
            return;
        }
        let application = match route.otherwise {
            Otherwise::Application => self.upstream_of(route, value, mistakes),
            Otherwise::NotFound => None,
        };
        if let Some((_, place)) = &route.upstream
            && route.otherwise == Otherwise::NotFound
        {
            let what = "`root` and `upstream` exclude each other";
            mistakes.note(
                Mistake::new(place, what)
                    .remedy("remove one of them, or add otherwise = \"application\""),
            );
        }
        if table.get("key").is_none() && application.is_none() {
            // Files do not depend on the query; with it in the key, one file could fill the cache.
            route.route.rules.key.query = Query::Only(<_>::default());
        }
        if let Some(folder) = route.root.take() {
            let root = Root {
                folder,
                index: route.index.clone(),
                precompressed: route.precompressed,
            };
            route.route.goes_to = if let Some(upstream) = application {
                GoesTo::FilesFirst(root, upstream)
            } else {
                // No application is asked for them.
                route.route.rules.prefetch = Prefetch::All;
                GoesTo::Files(root)
            };
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
                let remedy = match nearest(name, names) {
                    Some(near) => format!("did you mean \"{near}\"?"),
                    None => format!("existing groups: {listed}"),
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
                Mistake::new(
                    &value.place,
                    "the route has no `upstream`, and there are several groups",
                )
                .remedy(format!("add upstream = one of: {listed}")),
            );
        }
        found
    }
}

/// Notes options of the rate limit without a rate.
fn check_rate(draft: &RouteDraft, table: &Table<'_>, mistakes: &mut Mistakes) {
    if draft.route.rate.quota.is_some() {
        return;
    }
    for name in ["burst", "rate_by", "rate_of"] {
        if let Some(value) = table.get(name) {
            let what = format!("`{name}` has no effect without `rate`");
            mistakes.note(Mistake::new(&value.place, what).remedy("add rate = \"10/s\""));
        }
    }
}

/// Notes caching options of a route that caches nothing.
fn check_pass(draft: &RouteDraft, table: &Table<'_>, mistakes: &mut Mistakes) {
    let by = match draft.route.goes_to {
        GoesTo::Redirect(_) => "redirect",
        GoesTo::Respond(_) => "respond",
        _ if draft.route.pass => "pass = true",
        _ => return,
    };
    for about in abouts(RULES).into_iter().chain(abouts(COMPRESSION)) {
        if let Some(value) = table.get(about.name).filter(|_| about.name != "pass") {
            let what = format!("`{}` has no effect with `{by}`", about.name);
            mistakes.note(Mistake::new(&value.place, what));
        }
    }
}

/// Notes a `{1}` without a star of the path that it could stand for.
fn check_captures(
    to: &UrlTemplate,
    option: &'static str,
    route: &Route,
    table: &Table<'_>,
    mistakes: &mut Mistakes,
) {
    if let Some(value) = table.get(option)
        && to.captures() > route.matcher.stars()
    {
        let what = format!("`{{{}}}` stands for no star", to.captures());
        mistakes
            .note(Mistake::new(&value.place, what).remedy(
                "every path in `match` needs so many stars, as path = \"/blog/*\" for {1}",
            ));
    }
}

/// Returns the route of the script that completes pages in the browser, if there are such pages.
fn include_route(routes: &[Route]) -> Option<Route> {
    let is_needed = routes.iter().any(|route| route.page_edits.has_script());
    let script = FixedResponse {
        status: 200,
        body: INCLUDE_SCRIPT.into(),
        file: None,
        content_type: "text/javascript; charset=utf-8".to_owned(),
        cache_control: "max-age=3600".to_owned(),
    };
    let (path, goes_to) = (Glob::exactly(INCLUDE_PATH), GoesTo::Respond(script));
    is_needed.then(|| Route::builtin("include".to_owned(), path, goes_to))
}
