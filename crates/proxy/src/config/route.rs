//! Routes: their destinations and rules.

use std::path::PathBuf;
use std::sync::Arc;

use microcache_policy::browser_cache::BrowserCache;
use microcache_policy::edge::EdgeMode;
use microcache_policy::field_edits::FieldEdits;
use microcache_policy::rules::Query;
use microcache_policy::{Fields, KeyRules, Rules, USER_CONTEXT};
use microcache_push::{READ_FIELD, READ_TTL_FIELD};

use super::access::AddressRules;
use super::basic_auth::BasicAuth;
use super::client_certificate::CertificateRule;
use super::condition::Condition;
use super::edge::EdgeSettings;
use super::error_pages::ErrorPages;
use super::fixed_response::FixedResponse;
use super::forward_auth::ForwardAuth;
use super::matcher::Matcher;
use super::mistake::{Mistake, Mistakes};
use super::page_edits::PageEdits;
use super::pattern::Glob;
use super::place::Place;
use super::rate::Rate;
use super::redirect::Redirect;
use super::redirect_list::RedirectList;
use super::rewrite::Rewrite;
use super::user_context::UserContext;
use crate::files::{NamedDirectory, Root};

/// A route: its conditions, its destination, and its rules.
#[derive(Clone, Debug)]
pub struct Route {
    /// The match conditions.
    pub matcher: Matcher,
    /// The destination of its requests.
    pub goes_to: GoesTo,
    /// The caching rules.
    pub rules: Rules,
    /// Caching is off: everything goes to the origin.
    pub pass: bool,
    /// Simultaneous misses of an entry are coalesced to one fetch.
    pub collapse: bool,
    /// Change notifications for its pages.
    pub watch: Watching,
    /// Redirects of single URLs.
    pub redirects: Option<Arc<RedirectList>>,
    /// The file with them.
    pub(super) redirects_file: Option<(PathBuf, Place)>,
    /// The change of paths on the way to the origin.
    pub rewrite: Rewrite,
    /// Changes of pages before they are stored.
    pub page_edits: PageEdits,
    /// Changes of the fields of responses.
    pub response_headers: Vec<FieldEdits>,
    /// Directories whose files the application may name.
    pub x_accel: Vec<NamedDirectory>,
    /// Pages in place of error responses.
    pub error_pages: ErrorPages,
    /// Navigations that wait get the links of the stored page first.
    pub early_hints: EarlyHints,
    /// Lifetimes for browsers.
    pub browser: BrowserCache,
    /// The composition of pages.
    pub edge: EdgeSettings,
    /// Conditions under which a request bypasses the cache.
    pub bypass: Vec<Condition>,
    /// The maximum size of a stored body in bytes; by default a sixteenth of the memory.
    pub max_object: Option<u64>,
    /// The maximum size of a request body in bytes; no limit by default.
    pub max_body: Option<u64>,
    /// The rate limit.
    pub rate: Rate,
    /// The clients that may use it, by address.
    pub addresses: AddressRules,
    /// The client certificates that it requires.
    pub client_certificate: CertificateRule,
    /// Basic authentication.
    pub basic_auth: Option<BasicAuth>,
    /// Authentication by another server.
    pub forward_auth: Option<ForwardAuth>,
    /// The user context of its requests.
    pub user_context: Option<UserContext>,
    /// The name in logs and metrics.
    pub name: String,
    /// Its requests are in the access log.
    pub access_log: bool,
}

/// The links that a navigation gets while its response is awaited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EarlyHints {
    /// None but those of the origin.
    #[default]
    Off,
    /// Those of the page as stored for visitors without credentials.
    Stored,
}

impl From<bool> for EarlyHints {
    fn from(is_on: bool) -> Self {
        if is_on { Self::Stored } else { Self::Off }
    }
}

/// The change notifications of pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Watching {
    /// None.
    #[default]
    Off,
    /// Watches the stored response for changes.
    Stored,
    /// As above; and the page is revalidated as long as it has subscribers.
    Refresh,
}

/// The destination of requests that the cache does not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GoesTo {
    /// The upstream group with this index in the configuration.
    Upstream(usize),
    /// A directory of static files.
    Files(Root),
    /// A directory of static files, and the upstream group with this index for all else.
    FilesFirst(Root, usize),
    /// Another URL, in the response of the route itself.
    Redirect(Redirect),
    /// Nowhere: the route itself responds.
    Respond(FixedResponse),
    /// Documents of the push cache.
    Push,
    /// Event streams about documents and pages.
    Watch,
    /// The Mercure hub.
    Mercure,
}

impl Route {
    /// Returns a route for all requests, with the defaults beside these rules.
    pub(super) fn new(goes_to: GoesTo, rules: Rules) -> Self {
        Self {
            matcher: Matcher::default(),
            goes_to,
            rules,
            pass: false,
            collapse: true,
            watch: Watching::Off,
            redirects: None,
            redirects_file: None,
            rewrite: Rewrite::default(),
            page_edits: PageEdits::default(),
            response_headers: Vec::new(),
            x_accel: Vec::new(),
            error_pages: ErrorPages::default(),
            early_hints: EarlyHints::default(),
            browser: BrowserCache::default(),
            edge: EdgeSettings::default(),
            bypass: Vec::new(),
            max_object: None,
            max_body: None,
            rate: Rate::default(),
            addresses: AddressRules::default(),
            client_certificate: CertificateRule::Off,
            basic_auth: None,
            forward_auth: None,
            user_context: None,
            name: String::new(),
            access_log: true,
        }
    }

    /// Returns a route of this process, for one pattern of paths.
    pub(super) fn builtin(name: String, path: Glob, goes_to: GoesTo) -> Self {
        let mut rules = Rules {
            key: KeyRules {
                query: Query::Only(<_>::default()),
                ..KeyRules::default()
            },
            ..Rules::default()
        };
        // Documents do not depend on cookies and other fields of browsers.
        rules.cookies_ignored.push("*");
        Self {
            matcher: Matcher {
                paths: vec![path],
                ..Matcher::default()
            },
            collapse: false,
            name,
            ..Self::new(goes_to, rules)
        }
    }

    /// Returns whether some clients may not use it.
    pub(crate) const fn controls_access(&self) -> bool {
        !self.addresses.is_open() || self.authenticates()
    }

    /// Returns whether some of its clients are authenticated.
    pub(crate) const fn authenticates(&self) -> bool {
        self.basic_auth.is_some()
            || self.forward_auth.is_some()
            || !self.client_certificate.is_off()
    }

    /// Returns whether all of its clients are authenticated.
    pub(crate) fn authenticates_all(&self) -> bool {
        self.basic_auth.is_some()
            || self.client_auth().is_some()
            || !self.client_certificate.is_off()
    }

    /// Returns whether the clients that may use it are those of another route.
    pub(crate) fn has_access_of(&self, other: &Self) -> bool {
        self.addresses == other.addresses && self.has_authentication_of(other)
    }

    /// Returns whether its clients are authenticated as those of another route.
    pub(crate) fn has_authentication_of(&self, other: &Self) -> bool {
        let is_same_file = match (&self.basic_auth, &other.basic_auth) {
            (None, None) => true,
            (Some(own), Some(other)) => own.has_users_of(other),
            _ => false,
        };
        is_same_file
            && self.client_certificate == other.client_certificate
            && match (self.client_auth(), other.client_auth()) {
                (None, None) => true,
                (Some(own), Some(other)) => own.has_url_of(other),
                _ => false,
            }
    }

    /// Returns the server that decides whether clients are admitted.
    fn client_auth(&self) -> Option<&ForwardAuth> {
        self.forward_auth.as_ref().filter(|it| !it.is_for_readers())
    }

    /// Keeps what authenticates clients from the application and out of caching decisions, and its pages apart from
    /// those of routes that would give them to everyone.
    pub(super) fn settle_authentication(&mut self) {
        let request = &mut self.rules.request;
        if self.basic_auth.is_some() {
            request.removed_fields.push("authorization");
        }
        if matches!(self.goes_to, GoesTo::Push | GoesTo::Watch) {
            // Only a server may name what a client may read.
            request.removed_fields.push(READ_FIELD);
            request.removed_fields.push(READ_TTL_FIELD);
        }
        if let Some(auth) = &self.forward_auth {
            for name in auth.copied() {
                request.removed_fields.push(name);
                request.grant(name);
            }
            for name in &auth.session_cookies {
                request.removed_cookies.push(name);
            }
        }
        // A field about one client's certificate is for that client.
        for at in 0..request.set_fields.len() {
            if request.set_fields[at].value.has_certificate() {
                let name = request.set_fields[at].name.clone();
                request.grant(&name);
            }
        }
        if self.authenticates() {
            self.rules.key.route = Some(self.name.clone());
        }
    }

    /// Returns whether pages are composed here, by the options that were read.
    pub(super) fn composes_pages(&self) -> bool {
        let edits = PageEdits {
            tags: self.rules.edge,
            ..self.page_edits.clone()
        };
        edits.tags_left() != EdgeMode::Off
    }

    /// Gives the origin's tags to the edits of pages, and to the cache those that are left. Requests for a visitor's own
    /// tokens pass, with all cookies.
    pub(super) fn settle_page_edits(&mut self, token_paths: &[Vec<u8>]) {
        let paths = token_paths.iter().map(|path| Condition::of_path(path));
        self.bypass.extend(paths);
        let edits = &mut self.page_edits;
        edits.tags = self.rules.edge;
        edits.fragments = self.edge.paths.clone();
        if edits.adds_tags() {
            edits.included().for_each(|url| self.edge.paths.allow(url));
        }
        if !edits.is_off() {
            self.rules.edge = edits.tags_left();
            self.rules.page_edits = edits.written();
        }
    }

    /// Makes the user context a part of the key. A route that authenticates its clients has none.
    pub(super) fn settle_user_context(&mut self, mistakes: &mut Mistakes) {
        let Some(context) = &self.user_context else {
            return;
        };
        if self.authenticates() {
            let what = "`user_context` has no effect with `basic_auth` and `forward_auth`";
            let remedy = "set user_context = \"off\" on the routes that authenticate";
            mistakes.warn(Mistake::new(&context.place, what).remedy(remedy));
            self.user_context = None;
            return;
        }
        self.rules.user_context = true;
        self.rules.key.headers.push(USER_CONTEXT.to_owned());
    }

    /// Returns whether the route itself answers every request.
    pub(crate) const fn answers_itself(&self) -> bool {
        matches!(self.goes_to, GoesTo::Redirect(_) | GoesTo::Respond(_))
    }

    /// Returns whether the route answers some requests.
    pub(crate) const fn may_answer(&self) -> bool {
        self.answers_itself() || self.redirects.is_some()
    }

    /// Returns whether the route redirects.
    pub(super) const fn redirects(&self) -> bool {
        matches!(self.goes_to, GoesTo::Redirect(_))
    }

    /// Returns whether a bypass condition holds for a request.
    pub fn bypasses(&self, fields: Fields<'_>, path_and_query: &[u8]) -> bool {
        self.bypass
            .iter()
            .any(|condition| condition.holds(fields, path_and_query))
    }
}
