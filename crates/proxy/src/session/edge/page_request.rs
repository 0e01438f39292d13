//! The request of a page, as its fragments repeat it.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::{Method, Version};
use microcache_engine::{Body, Frame, Request, RequestHead, Response, RouteId};
use microcache_policy::compression::may_be_user_specific;
use microcache_policy::edge::{EdgeMode, Include, PagePieces, fragment_request};
use microcache_policy::key::split_query;
use microcache_policy::{FieldsBuf, Time};
use tokio::time::timeout;

use super::super::nesting::Nesting;
use super::super::{Reply, RequestEvent, Session};
use super::fragment::{Fragment, FragmentTask, PendingFragment};
use super::fragment_failure::FragmentFailure;
use crate::admission::PinGuard;
use crate::config::EdgeSettings;
use crate::metrics::FragmentOutcome;
use crate::observe::Kind;

/// The request of a page.
pub(super) struct PageRequest {
    /// Session of its fragments.
    session: Session,
    nesting: Nesting,
    route: usize,
    head: RequestHead,
    fields: FieldsBuf,
}

/// A fragment that was asked for.
pub(super) struct FragmentReply {
    reply: Reply,
    route: RouteId,
    target: Bytes,
    /// Its key may be that of one visitor.
    is_for_one: bool,
}

/// Returns true for a response whose tags are to be replaced. Parts of a page, and confirmations of a client's own copy,
/// are none.
pub(super) fn is_page(mode: EdgeMode, response: &Response) -> bool {
    response.tunnel.is_none()
        && !matches!(response.status, ..200 | 204 | 205 | 206 | 304)
        && mode.covers(response.fields())
}

impl PageRequest {
    pub(super) fn new(page: &Session, route: usize, head: RequestHead) -> Self {
        let nesting = Nesting::below(page.nesting.as_deref());
        Self {
            session: Session {
                nesting: Some(Box::new(nesting.clone())),
                ..page.detached()
            },
            nesting,
            route,
            fields: fragment_request(head.fields.fields()),
            head,
        }
    }

    pub(super) fn is_page(&self, response: &Response) -> bool {
        is_page(self.session.shared.engine.rules(self.route).edge, response)
    }

    pub(super) fn is_head(&self) -> bool {
        self.head.method == Method::HEAD
    }

    pub(super) const fn head(&self) -> &RequestHead {
        &self.head
    }

    pub(super) const fn session(&self) -> &Session {
        &self.session
    }

    pub(super) const fn route(&self) -> usize {
        self.route
    }

    /// Returns true if a page that is still arriving is read before its head is sent, for the fragments that belong there.
    pub(super) fn collects(&self) -> bool {
        let route = &self.session.shared.config.routes[self.route];
        route.edge.is_strict || route.page_edits.waits_for_tokens()
    }

    pub(super) fn settings(&self) -> &EdgeSettings {
        &self.session.shared.config.routes[self.route].edge
    }

    pub(super) fn now(&self) -> Time {
        self.session.shared.engine.clock.now()
    }

    fn count(&self, outcome: FragmentOutcome) {
        self.session.shared.metrics.fragments.count(outcome, 1);
    }

    /// Counts a fragment that is there, and the cookies that its page does not set.
    fn arrived(&self, outcome: FragmentOutcome, include: &Include, fragment: &Fragment) {
        self.count(outcome);
        if !include.is_waited_for() && fragment.cookies().next().is_some() {
            self.count(FragmentOutcome::CookieDropped);
        }
    }

    /// Counts tags that are left out.
    pub(super) fn count_left_out(&self, tags: usize) {
        let counters = &self.session.shared.metrics.fragments;
        counters.count(FragmentOutcome::LeftOut, tags as u64);
    }

    /// Asks for a fragment. One that is in memory is there at once.
    pub(super) fn begin(self: &Arc<Self>, include: &Include) -> PendingFragment {
        match self.serve(include.source()) {
            Ok(reply) => match self.complete_at_once(reply, include) {
                Ok(fragment) => PendingFragment::ready(include, fragment),
                Err(reply) => {
                    let fetched = Arc::clone(self).fetch(Some(reply), include.clone());
                    PendingFragment::asked(include, FragmentTask::spawn(fetched))
                }
            },
            Err(why) => {
                self.report(include.source(), &why);
                if include.alternative().is_none() {
                    return PendingFragment::ready(include, self.fallback(include));
                }
                let fetched = Arc::clone(self).fetch(None, include.clone());
                PendingFragment::asked(include, FragmentTask::spawn(fetched))
            }
        }
    }

    /// Waits for a fragment, or for its alternative. `begun`: the source has been asked; without it, it has failed.
    async fn fetch(
        self: Arc<Self>,
        begun: Option<Box<FragmentReply>>,
        include: Include,
    ) -> Fragment {
        let limit = self.settings().timeout;
        let mut outcome = FragmentOutcome::Fetched;
        let mut next = begun.map(|reply| (include.source(), Ok(reply)));
        let mut alternative = include.alternative();
        loop {
            if next.is_none() {
                let Some(url) = alternative.take() else { break };
                outcome = FragmentOutcome::Alternative;
                next = Some((url, self.serve(url)));
            }
            let Some((url, served)) = next.take() else {
                break;
            };
            let fragment = match served {
                Ok(reply) => {
                    let late = |_| Err(FragmentFailure::Timeout);
                    let complete = timeout(limit, self.complete(reply)).await;
                    complete.unwrap_or_else(late)
                }
                Err(why) => Err(why),
            };
            match fragment {
                Ok(fragment) => {
                    self.arrived(outcome, &include, &fragment);
                    return fragment;
                }
                Err(why) => self.report(url, &why),
            }
        }
        self.fallback(&include)
    }

    /// Returns the request for the fragment at this target.
    fn request<'a>(&'a self, target: &'a [u8]) -> Request<'a> {
        let (host, fields) = (&self.head.host, self.fields.fields());
        self.session.request(&Method::GET, host, target, fields)
    }

    /// Asks for the fragment at a URL of a tag.
    fn serve(&self, url: &[u8]) -> Result<Box<FragmentReply>, FragmentFailure> {
        let target = self
            .settings()
            .paths
            .target(url, &self.head.host, &self.head.target)
            .map_err(FragmentFailure::Refused)?;
        if !self.nesting.takes_fragment() {
            return Err(FragmentFailure::Bound);
        }
        let session = &self.session;
        let request = self.request(&target);
        let now = self.now();
        let engine = &session.shared.engine;
        let rules = engine.rules(engine.find(&request).route);
        let mut reply = None;
        let route = session.serve(&request, now, &mut reply);
        let reply = reply.ok_or(FragmentFailure::Panic)?;
        Ok(Box::new(FragmentReply {
            reply,
            route,
            target: target.into(),
            is_for_one: rules.user_context || may_be_user_specific(&rules.key),
        }))
    }

    /// Returns a fragment that is in memory.
    fn complete_at_once(
        &self,
        asked: Box<FragmentReply>,
        include: &Include,
    ) -> Result<Fragment, Box<FragmentReply>> {
        match asked.reply {
            Reply::Now(mut response)
                if unsuitable(&response).is_none()
                    && matches!(response.body, Body::Stored(_) | Body::Full(_) | Body::Empty) =>
            {
                let request = self.request(&asked.target);
                let now = self.now();
                let session = &self.session;
                session.finished(asked.route, &request, Version::HTTP_11, &response, now);
                let body = match &response.body {
                    Body::Stored(hit) => hit.shared_body().unwrap_or_default(),
                    Body::Full(body) => body.clone(),
                    _ => Bytes::new(),
                };
                if !matches!(response.body, Body::Stored(_)) {
                    response.body = Body::Empty;
                }
                let fragment = Fragment::of(response, body, asked.is_for_one);
                self.arrived(FragmentOutcome::Memory, include, &fragment);
                Ok(fragment)
            }
            _ => Err(asked),
        }
    }

    /// Waits for the whole response of a fragment.
    async fn complete(&self, asked: Box<FragmentReply>) -> Result<Fragment, FragmentFailure> {
        let (mut response, mut account, _held) = match asked.reply {
            Reply::Now(response) => {
                let request = self.request(&asked.target);
                let (version, now) = (Version::HTTP_11, self.now());
                let session = &self.session;
                let account = session.account_of(asked.route, &request, version, &response, now);
                (response, account, None)
            }
            Reply::Deferred(deferred) => {
                let mut session = self.session.detached();
                let (mut ongoing, _) = session.ask(deferred, Version::HTTP_11, None);
                let answer = loop {
                    match ongoing.next().await {
                        RequestEvent::Answer(answer) => break answer,
                        RequestEvent::Interim(_) => {}
                        RequestEvent::Continue(go) => {
                            let _ = go.send(());
                        }
                    }
                };
                if answer.is_endless {
                    return Err(FragmentFailure::TooLarge);
                }
                (answer.response, answer.account, Some(answer.held))
            }
        };
        if let Some(why) = unsuitable(&response) {
            return Err(why);
        }
        let stored = match &response.body {
            Body::Stored(hit) => Some(hit.shared_body().unwrap_or_default()),
            _ => None,
        };
        if let Some(body) = stored {
            account.sent(body.len() as u64);
            let pin = self.pin(body.len());
            return Ok(Fragment::of(response, body, asked.is_for_one).pinned_by(pin));
        }
        let body = self.read(&mut response.body).await?;
        let length = body.len() as u64;
        account.sent(length);
        let pin = self.session.shared.pinned.pin_all(length);
        Ok(Fragment::of(response, body, asked.is_for_one).pinned_by(pin))
    }

    /// Reads a body to its end.
    async fn read(&self, body: &mut Body) -> Result<Bytes, FragmentFailure> {
        let mut all = BytesMut::new();
        let mut first = Bytes::new();
        loop {
            match body.frame().await {
                Some(Ok(Frame::Data(data))) => {
                    if !self.nesting.takes_bytes(data.len()) {
                        return Err(FragmentFailure::TooLarge);
                    }
                    // Most have a single piece, which is not copied.
                    if first.is_empty() {
                        first = data;
                    } else {
                        if all.is_empty() {
                            all.extend_from_slice(&first);
                        }
                        all.extend_from_slice(&data);
                    }
                }
                Some(Err(why)) => return Err(FragmentFailure::Body(why)),
                Some(Ok(Frame::Trailers(_))) | None => break,
            }
        }
        *body = Body::Empty;
        Ok(if all.is_empty() { first } else { all.freeze() })
    }

    /// Counts bytes that a slow client may pin, beyond the allowance of each client.
    pub(super) fn pin(&self, bytes: usize) -> PinGuard {
        self.session.shared.pinned.pin(bytes)
    }

    /// Returns the text in place of a fragment that failed.
    fn fallback(&self, include: &Include) -> Fragment {
        self.count(FragmentOutcome::Failed);
        Fragment::fallback(without_tags(include.fallback()))
    }

    /// Logs the failure of a fragment.
    fn report(&self, url: &[u8], why: &FragmentFailure) {
        let target = microcache_push::redacted_target(&self.head.target);
        let (path, page) = (split_query(url).0.escape_ascii(), target.escape_ascii());
        let line = format!(
            "the fragment {} of {page} is left out: {why}",
            url.escape_ascii()
        );
        let notices = &self.session.shared.notices;
        notices.say(Kind::Fragment, &path.to_string(), line);
    }
}

/// Returns the reason that a response is no fragment.
fn unsuitable(response: &Response) -> Option<FragmentFailure> {
    if response.tunnel.is_some() || !(200..300).contains(&response.status) || response.status == 206
    {
        Some(FragmentFailure::Status(response.status))
    } else if response.fields().contains("content-encoding") {
        Some(FragmentFailure::Encoded)
    } else {
        None
    }
}

/// Returns a text without the tags in it.
fn without_tags(text: &[u8]) -> Bytes {
    let Some(pieces) = PagePieces::of(text) else {
        return Bytes::copy_from_slice(text);
    };
    pieces.texts(text).collect::<Vec<_>>().concat().into()
}
