//! Visits of a plain visitor, without cookies and credentials, by which pages are warmed.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use microcache_engine::{AheadResult, Body, Frame, RouteMatch, Served};
use microcache_policy::key::normal_host;
use microcache_policy::{Detail, Scheme, Time};

use super::Session;
use super::explaining::{ParsedRequest, SimulatedRequest};
use super::watching::{CODINGS, TYPES};
use crate::config::GoesTo;
use crate::shared::Shared;
use crate::upstream::settings::GroupSettings;

/// Address of the visitor. It is one for documentation (RFC 5737), so that no application takes it for a developer's, as
/// the loopback address often is.
const VISITOR: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// The visit of a page.
pub(crate) struct PlainVisit {
    session: Session,
    request: ParsedRequest,
}

impl PlainVisit {
    /// A visit of this URL with these fields; `None` if it is no URL.
    pub(crate) fn of(shared: &Arc<Shared>, url: &str, fields: &[(String, String)]) -> Option<Self> {
        let (scheme, host, target) = parts(url)?;
        let is_secure = scheme == Scheme::Https;
        // Behind a proxy that terminates TLS, https is what that says.
        let is_terminated = is_secure && shared.tls.is_none() && !shared.trusted_proxies.is_empty();
        let slash = if target.starts_with('/') { "" } else { "/" };
        let mut head = format!("GET {slash}{target} HTTP/1.1\r\nHost: {host}\r\n");
        let usual = [("accept", TYPES), ("accept-encoding", CODINGS)];
        let is_chosen = |name: &str| fields.iter().any(|(chosen, _)| chosen == name);
        let usual = usual.into_iter().filter(|(name, _)| !is_chosen(name));
        let chosen = fields.iter().map(|(name, value)| (&**name, &**value));
        for (name, value) in usual.chain(chosen) {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        if is_terminated {
            let _ = write!(
                head,
                "X-Forwarded-Proto: https\r\nX-Forwarded-For: {VISITOR}\r\n"
            );
        }
        head.push_str("\r\n");
        let request = SimulatedRequest {
            head: head.into_bytes(),
            address: (!is_terminated).then_some(VISITOR),
            is_secure,
        };
        let (session, request) = request.read(shared).ok()?;
        Some(Self { session, request })
    }

    /// The upstream group that the page comes from, if any.
    pub(crate) fn group(&self) -> Option<&GroupSettings> {
        let shared = &self.session.shared;
        let found = shared.engine.find(&self.request.on(&self.session));
        match shared.config.routes[found.route].goes_to {
            GoesTo::Upstream(number) | GoesTo::FilesFirst(_, number) => {
                shared.config.upstreams.get(number)
            }
            _ => None,
        }
    }

    /// Returns whether a fresh response is in memory.
    pub(crate) fn is_fresh(&self) -> bool {
        let engine = &self.session.shared.engine;
        let peek = engine.peek(&self.request.on(&self.session), engine.clock.now());
        peek.is_some_and(|peek| peek.fresh_for > 0)
    }

    /// Fetches the page behind all clients, unless a fresh response is stored.
    pub(crate) async fn fetch(&self) -> AheadResult {
        let (session, engine) = (&self.session, &self.session.shared.engine);
        let request = self.request.on(session);
        let now = engine.clock.now();
        let found = engine.find(&request);
        if let Some(why) = self.obstacle(found, now) {
            return AheadResult::NotStored(Some(why));
        }
        let refresh = match engine.serve_on(found, &request, now) {
            Served::Now(_) => return AheadResult::Fresh,
            Served::NowAndRefresh(_, refresh) => refresh,
            Served::Fetch(plan) => match plan.without_client() {
                Ok(refresh) => refresh,
                Err(why) => return AheadResult::NotStored(why),
            },
            Served::Failed(failed) => return AheadResult::Failed(failed.cause),
        };
        let rules = engine.rules(refresh.route_index());
        let incoming = session.incoming(session.copied(&request), rules, Body::Empty);
        Arc::clone(engine).fetch_ahead(refresh, incoming).await
    }

    /// Returns the content of the page, from the cache or the origin, or why there is none.
    pub(crate) async fn read(&self, most: usize) -> Result<Vec<u8>, String> {
        let (session, engine) = (&self.session, &self.session.shared.engine);
        let request = self.request.on(session);
        let now = engine.clock.now();
        let found = engine.find(&request);
        if let Some(why) = self.obstacle(found, now) {
            return Err(format!("visitors do not get it ({})", why.as_str()));
        }
        let answer = match engine.serve_on(found, &request, now) {
            Served::Now(response) | Served::NowAndRefresh(response, _) => Ok(response),
            Served::Fetch(plan) => {
                let rules = engine.rules(plan.route_index());
                let incoming = session.incoming(session.copied(&request), rules, Body::Empty);
                Arc::clone(engine).ask(plan, incoming).await
            }
            Served::Failed(failed) => Err(failed),
        };
        let mut response = answer.map_err(|failed| failed.cause.to_string())?;
        if response.status != 200 {
            let to = response.fields().get("location").unwrap_or_default();
            let to = String::from_utf8_lossy(to);
            let status = response.status;
            return Err(format!("the response has status {status} {to}")
                .trim_end()
                .to_owned());
        }
        let mut content = Vec::new();
        while let Some(frame) = response.body.frame().await {
            if let Frame::Data(data) = frame.map_err(|error| error.to_string())? {
                content.extend_from_slice(&data);
            }
            if content.len() > most {
                return Err(format!("it has more than {most} bytes"));
            }
        }
        Ok(content)
    }

    /// Returns the reason why a plain visitor does not get the page of a route.
    fn obstacle(&self, found: RouteMatch, now: Time) -> Option<Detail> {
        let (session, request) = (&self.session, self.request.on(&self.session));
        if !session.admits_address(found.route, &request) {
            return Some(Detail::AccessDenied);
        }
        if session.shared.config.routes[found.route].authenticates() {
            return Some(Detail::AuthenticationRequired);
        }
        let redirect = session.before_routing(&request, now);
        let own = redirect.or_else(|| session.route_response(found.route, &request, now));
        own.map(|own| own.cache_status.detail.unwrap_or(Detail::Redirect))
    }
}

/// The host of a URL, in the form of keys.
pub(crate) fn host_of(url: &str) -> Option<Vec<u8>> {
    parts(url).map(|(scheme, host, _)| normal_host(scheme, host.as_bytes()))
}

/// Splits a URL into scheme, host and target, without its fragment.
fn parts(url: &str) -> Option<(Scheme, &str, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let scheme = match scheme.to_ascii_lowercase().as_str() {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        _ => return None,
    };
    let rest = rest.split('#').next()?;
    let (host, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let is_url =
        !host.is_empty() && !host.contains('@') && rest.bytes().all(|byte| byte.is_ascii_graphic());
    is_url.then_some((scheme, host, target))
}
