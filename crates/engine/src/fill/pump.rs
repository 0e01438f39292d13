//! The task that receives a body: frame by frame from its source into the fill, from which clients
//! read, and into a tier once it is too large for memory.

use std::future::{Future, poll_fn};
use std::mem;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use microcache_policy::{Detail, FieldsBuf, FormTokenScan, Time, withheld_names};
use microcache_store::{BodySpool, ClaimGuard, Stored};
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::{Fill, PushResult, Unwanted};
use crate::body::{Body, BodyError, Frame};
use crate::cache::fetch_outcome::{FetchOutcome, Filling};
use crate::cache::flight::Leader;
use crate::cache::{Cache, ChangeKind};
use crate::request::divide::divided;
use crate::request::encoded::with_encodings_of;
use crate::request::engine::Engine;
use crate::request::route::{Clients, Route};

/// The time a program's fetch waits for a tier that takes no more of a large body, before it
/// continues without storing.
const STALLED_TIER: Duration = Duration::from_secs(2);

/// A body on its way from its source to its readers and to where it is stored.
pub(crate) struct FillPump<'a> {
    engine: &'a Engine,
    route: &'a Route,
    leader: Leader,
    filling: &'a Filling,
    /// The claim of the fetch in a shared tier.
    claimed: Option<ClaimGuard>,
    destination: BodyDestination,
    received: u64,
    /// The largest body that memory stores, in bytes.
    largest_in_memory: u64,
    /// The largest body that is stored at all, in bytes: in a tier, if there is one.
    largest: u64,
    /// The time until which it may be stored.
    deadline: Time,
    /// Further requests may wait for it.
    is_joinable: bool,
    /// The timer that ends that, once the source has made it wait.
    closing: Option<Pin<Box<Sleep>>>,
    /// The time for which slow readers have held it up.
    waited: Duration,
    /// The scan for a token, of a response that others wait for until it is over.
    scan: Option<Box<FormTokenScan>>,
}

impl<'a> FillPump<'a> {
    pub(crate) fn new(
        engine: &'a Engine,
        route: &'a Route,
        leader: Leader,
        filling: &'a Filling,
        claimed: Option<ClaimGuard>,
    ) -> Self {
        let most = engine.settings.fill_timeout;
        Self {
            engine,
            route,
            leader,
            filling,
            claimed,
            destination: BodyDestination::InMemory,
            received: 0,
            largest_in_memory: engine.largest_in_memory(route),
            largest: engine.largest(route),
            deadline: engine.clock.now().plus(most),
            is_joinable: true,
            closing: None,
            waited: Duration::ZERO,
            scan: filling.lifetime.is_anonymous().then(Box::default),
        }
    }

    /// Receives the body to its end, then commits the complete response.
    pub(crate) async fn run(mut self, mut body: Body) {
        let _ending = EndOfBody(&self.filling.fill);
        let end = self.receive(&mut body).await;
        if body.forbids_storing() {
            self.destination = BodyDestination::Nothing;
        }
        if self.scan.as_mut().is_some_and(|scan| scan.finish()) {
            self.found_token();
        }
        match end.and_then(|trailers| self.verified(trailers)) {
            Ok(trailers) => self.commit(trailers).await,
            Err(error) => self.filling.fill.finish(Err(error)),
        }
    }

    /// Receives the body. Returns its trailers.
    async fn receive(&mut self, body: &mut Body) -> Result<Option<FieldsBuf>, BodyError> {
        loop {
            let is_read = self.wait_for_readers(body).await.is_ok();
            self.wait_for_tier(is_read).await;
            if !is_read && !matches!(self.destination, BodyDestination::Spool(_)) {
                return Err(BodyError::Disconnected);
            }
            match self.next_frame(body).await.transpose()? {
                None => return Ok(None),
                Some(Frame::Data(chunk)) => self.on_data(chunk),
                Some(Frame::Trailers(trailers)) => return Ok(Some(trailers)),
            }
        }
    }

    /// Waits until the readers can take more. A reader that keeps others waiting for too long, over
    /// all waits together, is dropped.
    async fn wait_for_readers(&mut self, body: &mut Body) -> Result<(), Unwanted> {
        let fill = &self.filling.fill;
        let most = Duration::from_millis(self.engine.settings.slow_reader_timeout);
        let mut ready = pin!(poll_fn(|cx| fill.poll_ready(cx)));
        if let Poll::Ready(ready) = poll_fn(|cx| Poll::Ready(ready.as_mut().poll(cx))).await {
            return ready;
        }
        loop {
            if self.waited.is_zero() {
                fill.mark();
            }
            let began = Instant::now();
            let readiness = timeout(most.saturating_sub(self.waited), &mut ready).await;
            self.waited += began.elapsed();
            if self.waited >= most {
                self.waited = Duration::ZERO;
                body.notify_slow_reader();
                fill.release_slow_readers();
            }
            if let Ok(ready) = readiness {
                return ready;
            }
        }
    }

    /// Applies the tier's back-pressure. Without readers the body comes no faster than the tier
    /// takes it. Readers are not slowed down for a tier, except in a program's cache, which prefers
    /// a stored response to a fast one.
    async fn wait_for_tier(&mut self, is_read: bool) {
        let BodyDestination::Spool(spool) = &self.destination else {
            return;
        };
        if !is_read {
            spool.ready().await;
        } else if self.engine.settings.clients == Clients::Program
            && !spool.makes_progress(STALLED_TIER).await
        {
            self.destination = BodyDestination::Nothing;
        }
    }

    /// The next frame. If it is late, the fetch closes to further waiters.
    async fn next_frame(&mut self, body: &mut Body) -> Option<Result<Frame, BodyError>> {
        poll_fn(|cx| {
            let frame = body.poll_frame(cx);
            if frame.is_pending() && self.is_joinable && self.poll_closing(cx).is_ready() {
                self.is_joinable = false;
                self.leader.close();
                self.release_waiters();
            }
            frame
        })
        .await
    }

    fn poll_closing(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let left = || self.deadline.since(self.engine.clock.now());
        let closing = self
            .closing
            .get_or_insert_with(|| Box::pin(sleep(Duration::from_millis(left()))));
        closing.as_mut().poll(cx)
    }

    /// Passes a chunk to the readers, and to memory or a tier.
    fn on_data(&mut self, chunk: Bytes) {
        let is_in_time = self.engine.clock.now() < self.deadline;
        let fitted_before = self.received <= self.largest;
        self.received += chunk.len() as u64;
        let fits = self.received <= self.largest;
        if fitted_before && !fits {
            self.note_too_large();
        }
        if self.scan.as_mut().is_some_and(|scan| scan.push(&chunk)) {
            self.found_token();
        }
        let is_stored = !matches!(self.destination, BodyDestination::Nothing);
        let limit = if is_in_time && is_stored {
            self.largest_in_memory
        } else {
            0
        };
        let pushed = self.filling.fill.push(chunk.clone(), limit);
        let is_outgrown = matches!(pushed, PushResult::Outgrown(_));
        if is_outgrown {
            self.leader.close();
            self.release_waiters();
        }
        let destination = mem::replace(&mut self.destination, BodyDestination::Nothing);
        let (cache, fits) = (&self.engine.cache, is_in_time && fits);
        self.destination = destination.go_on(cache, pushed, chunk, fits, &mut self.claimed);
        if is_outgrown {
            // It will be stored in no other shared tier.
            self.claimed = None;
        }
    }

    /// Stops storing a body with a token. Such requests are not coalesced for a while.
    fn found_token(&mut self) {
        let (engine, key) = (self.engine, self.leader.key());
        let now = engine.clock.now();
        let request = self.filling.leader_request.origin_view(&self.route.rules);
        let why = (self.filling.vary.clone(), Detail::FormToken);
        let until = now.plus(engine.settings.hit_for_miss);
        engine
            .cache
            .mark_uncacheable(&self.leader, why, &request, until);
        let withheld = withheld_names(&request, &engine.cache.known_vary(key, now));
        if !withheld.is_empty() {
            engine.cache.note_whole(key, &withheld, now);
        }
        self.release_waiters();
    }

    /// Has those that wait for the scan of the body fetch for themselves. A purge does not find the fetch any more, so
    /// its response is not stored.
    fn release_waiters(&mut self) {
        if self.scan.take().is_some() {
            self.destination = BodyDestination::Nothing;
            self.leader.publish(FetchOutcome::Released);
        }
    }

    fn note_too_large(&self) {
        let engine = self.engine;
        let until = engine.clock.now().plus(engine.settings.remember_too_large);
        let request = self.filling.leader_request.origin_view(&self.route.rules);
        let key = self.leader.key();
        engine.cache.note_too_large(key, &request, until);
    }

    /// Checks the length once more. The source has verified it; this is the last place to notice a
    /// mistake.
    fn verified(&self, trailers: Option<FieldsBuf>) -> Result<Option<FieldsBuf>, BodyError> {
        match self.filling.length {
            Some(length) if length != self.received => Err(BodyError::Incomplete),
            _ => Ok(trailers),
        }
    }

    /// Commits the complete body and ends it for its readers: after it is in memory, where later
    /// requests find it, but without waiting for a tier.
    async fn commit(self, trailers: Option<FieldsBuf>) {
        let (leader, filling, end) = (self.leader, self.filling, Ok(trailers));
        let is_awaited = self.scan.is_some();
        let (cache, rules) = (&self.engine.cache, &self.route.rules);
        let key = leader.key();
        let with_body = |body: Bytes| {
            Stored::new(
                key,
                filling.status,
                filling.fields.fields(),
                body.into(),
                filling.lifetime,
                filling.began,
            )
            .with_vary(filling.vary.clone(), &filling.selection)
            .with_tags(filling.tags.clone())
            .with_cost(filling.cost)
        };
        let request = filling.leader_request.origin_view(rules);
        if !matches!(self.destination, BodyDestination::Nothing) {
            cache.forget_too_large(key, &request);
        }
        match self.destination {
            BodyDestination::Nothing => filling.fill.finish(end),
            BodyDestination::InMemory => {
                let before = cache.to_be_replaced(rules, key, &request);
                let stored = divided(with_body(filling.fill.collect()), rules);
                let room = cache.largest_in_memory();
                let stored = with_encodings_of(rules, stored, before.as_ref(), room);
                let kind = ChangeKind::Stored;
                cache.commit(&leader, stored, &request, self.claimed, kind);
                if is_awaited {
                    leader.publish(FetchOutcome::LookAgain);
                }
                filling.fill.finish(end);
                self.engine
                    .make_again(rules, key, before.as_ref(), &request);
            }
            BodyDestination::Spool(spool) => {
                // Requests from now on wait for the entry. Its head is written before it is
                // committed.
                let stored = with_body(Bytes::new()).with_purges_known(leader.purges_known());
                let kept = spool.finish(key, stored, self.engine.clock.now());
                filling.fill.finish_in_tier(end);
                if let Some(stored) = kept.await {
                    cache.commit_spooled(&leader, stored, &request);
                }
            }
        }
    }
}

/// The destination of a body.
enum BodyDestination {
    /// Memory, as it is small enough so far.
    InMemory,
    /// A tier, while it arrives: it is too large for memory.
    Spool(BodySpool),
    /// None: it is no longer stored.
    Nothing,
}

impl BodyDestination {
    fn go_on(
        self,
        cache: &Cache,
        pushed: PushResult,
        chunk: Bytes,
        fits: bool,
        claimed: &mut Option<ClaimGuard>,
    ) -> Self {
        let (spool, chunks) = match (self, pushed) {
            (Self::InMemory, PushResult::Kept) => return Self::InMemory,
            (Self::InMemory, PushResult::Outgrown(chunks)) if fits => {
                (cache.spool(claimed), chunks)
            }
            (Self::Spool(spool), _) if fits => (Some(spool), vec![chunk]),
            _ => return Self::Nothing,
        };
        let taken = spool.filter(|spool| chunks.into_iter().all(|chunk| spool.push(chunk)));
        taken.map_or(Self::Nothing, Self::Spool)
    }
}

/// Ends the body for its readers even if the task that receives it panics.
struct EndOfBody<'a>(&'a Arc<Fill>);

impl Drop for EndOfBody<'_> {
    fn drop(&mut self) {
        self.0.finish(Err(BodyError::Disconnected));
    }
}
