//! Storing a response while it streams: decides whether it is storable, then passes head and body
//! to the clients and to memory or a tier.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use microcache_policy::compression;
use microcache_policy::vary::{self, Selection, VaryNames};
use microcache_policy::{
    CacheKind, CacheStatus, Detail, FieldBlock, Fields, FieldsBuf, Lifetime, OriginView,
    RequestFacts, ResponseFacts, Rules, Storable, Time, TooManyTags, date, fields_to_store,
    storable,
};
use microcache_store::{BodySpool, ClaimGuard, Stored, TagNumbers, clock};
use tokio::time::{Instant, Sleep, sleep, timeout};

use crate::body::{Body, BodyError, Frame};
use crate::cache::flight::{Filling, Leader};
use crate::cache::{Cache, ChangeKind, tag_numbers};
use crate::fill::{Fill, FillReader, PushResult, Unwanted};
use crate::message::{Incoming, Response};
use crate::origin::{ExchangeTimes, OriginResponse};
use crate::outcome::Outcome;
use crate::request::encoded::{confirmed, named_by_origin, note_compression, with_encodings_of};
use crate::request::respond::{Reusable, usable_for};
use crate::request::serve::{Clients, Engine, Route};

/// The time a program's fetch waits for a tier that takes no more of a large body, before it
/// continues without storing.
const STALLED_TIER: Duration = Duration::from_secs(2);

/// A storable response as the leader gets it, with the fields that must not be replayed to other
/// clients.
pub(crate) struct LeaderResponse {
    pub(crate) filling: Arc<Filling>,
    reader: FillReader,
    fields: FieldBlock,
    /// The response is to be stored; false if a purge came first.
    is_kept: bool,
}

impl LeaderResponse {
    /// The response to the leader.
    pub(crate) fn respond(
        self,
        request: Fields<'_>,
        facts: &RequestFacts,
        now: Time,
        mut cache_status: CacheStatus,
    ) -> Response {
        cache_status.fwd_status = Some(self.filling.status);
        cache_status.stored = self.is_kept;
        cache_status.ttl = Some(usable_for(&self.filling.lifetime, now));
        let reusable = Reusable::first(&self.filling, &self.fields, self.reader);
        let mut response = reusable.respond(request, facts, now, cache_status, Outcome::Miss);
        // It comes from the origin: `Age` is sent only if it came through another cache.
        response.age = response.age.filter(|&age| age > 0);
        response
    }
}

impl Engine {
    /// The largest body stored in memory, in bytes.
    fn object_limit(&self, route: &Route) -> u64 {
        route.max_object.min(self.cache.largest_in_memory())
    }

    /// The largest body stored at all, in bytes: on disk, if there is one.
    fn largest(&self, route: &Route) -> u64 {
        route.max_object.min(self.cache.largest())
    }

    /// Creates the shared response and its first reader.
    pub(crate) fn begin_fill(
        &self,
        leader: &Leader,
        route: &Route,
        mut response: OriginResponse,
        keepable: StorableHead,
        incoming: &Incoming,
        began: Time,
    ) -> (LeaderResponse, Body) {
        let is_kept = self.cache.may_keep(leader, &keepable.tags);
        let vary = self.cache.vary_of(leader.key(), &keepable.named);
        let mut selection = Selection::new();
        vary::select(&vary, &incoming.origin_view(&route.rules), &mut selection);
        let fill = Fill::new(&self.fill_budget);
        let reader = fill.reader().expect("no chunk has been released yet");
        let filling = Filling {
            status: response.status,
            fields: keepable.fields.into(),
            length: response.length,
            lifetime: keepable.lifetime,
            vary,
            selection: Bytes::copy_from_slice(&selection),
            leader_request: incoming.leader_request(),
            began,
            tags: keepable.tags,
            fill,
        };
        response.fields.remove("age");
        let noted = filling.fields.fields();
        if let Some(dictionary) = noted.get("use-as-dictionary") {
            response.fields.set("Use-As-Dictionary", dictionary);
        }
        if compression::varies_on_codings(noted) {
            compression::note_vary(&mut response.fields, route.rules.compress.dictionaries);
        }
        let copy = LeaderResponse {
            filling: Arc::new(filling),
            reader,
            fields: response.fields.into(),
            is_kept,
        };
        (copy, response.body)
    }

    /// Receives the body into the fill, then commits the complete response.
    pub(crate) async fn fill(
        &self,
        leader: Leader,
        filling: &Filling,
        mut body: Body,
        route: usize,
        mut claimed: Option<ClaimGuard>,
    ) {
        let (fill, route) = (&filling.fill, &self.routes[route]);
        let _ending = EndOfBody(fill);
        let limit = self.object_limit(route);
        let most = Duration::from_millis(self.settings.fill_timeout);
        let deadline = self.clock.now().plus(self.settings.fill_timeout);
        let mut waiting = FrameWait::new(most);
        let mut keeping = BodyDestination::InMemory;
        let mut received = 0;
        let largest = self.largest(route);
        let mut waited = Duration::ZERO;
        let end = loop {
            let is_read = self
                .wait_for_readers(fill, &mut body, &mut waited)
                .await
                .is_ok();
            keeping = self.wait_for_tier(keeping, is_read).await;
            if !is_read && !matches!(keeping, BodyDestination::Spool(_)) {
                break Err(BodyError::Disconnected);
            }
            match waiting.for_frame(&mut body, &leader).await {
                None => break Ok(None),
                Some(Ok(Frame::Data(chunk))) => {
                    let in_time = self.clock.now() < deadline;
                    let fitted = received <= largest;
                    received += chunk.len() as u64;
                    if fitted && received > largest {
                        let until = self.clock.now().plus(self.settings.remember_too_large);
                        let request = filling.leader_request.origin_view(&route.rules);
                        self.cache.note_too_large(leader.key(), &request, until);
                    }
                    let pushed = fill.push(chunk.clone(), if in_time { limit } else { 0 });
                    let is_outgrown = matches!(pushed, PushResult::Outgrown(_));
                    if is_outgrown {
                        leader.close();
                    }
                    let fits = in_time && received <= largest;
                    keeping = keeping.go_on(&self.cache, pushed, chunk, fits, &mut claimed);
                    if is_outgrown {
                        // It will be stored in no other shared tier.
                        drop(claimed.take());
                    }
                }
                Some(Ok(Frame::Trailers(trailers))) => break Ok(Some(trailers)),
                Some(Err(error)) => break Err(error),
            }
        };
        // The body's source has verified the length; this is the last place to notice a mistake.
        let whole = filling.length.is_none_or(|length| length == received);
        let end = if whole {
            end
        } else {
            end.and(Err(BodyError::Incomplete))
        };
        match end {
            Ok(trailers) => {
                let whole = CompleteBody {
                    filling,
                    keeping,
                    trailers,
                };
                self.commit_complete(leader, route, whole, claimed).await;
            }
            Err(error) => fill.finish(Err(error)),
        }
    }

    /// Applies the tier's back-pressure. Without readers the body comes no faster than the tier
    /// takes it. Readers are not slowed down for a tier, except in a program's cache, which prefers
    /// a stored response to a fast one.
    async fn wait_for_tier(&self, keeping: BodyDestination, is_read: bool) -> BodyDestination {
        if let BodyDestination::Spool(spool) = &keeping {
            if !is_read {
                spool.ready().await;
            } else if self.settings.clients == Clients::Program
                && !spool.makes_progress(STALLED_TIER).await
            {
                return BodyDestination::Nothing;
            }
        }
        keeping
    }

    /// Waits until the readers can take more. A reader that keeps others waiting for too long, over
    /// all waits together, is dropped.
    async fn wait_for_readers(
        &self,
        fill: &Arc<Fill>,
        body: &mut Body,
        waited: &mut Duration,
    ) -> Result<(), Unwanted> {
        let most = Duration::from_millis(self.settings.slow_reader_timeout);
        let mut ready = pin!(poll_fn(|cx| fill.poll_ready(cx)));
        if let Poll::Ready(ready) = poll_fn(|cx| Poll::Ready(ready.as_mut().poll(cx))).await {
            return ready;
        }
        loop {
            if waited.is_zero() {
                fill.mark();
            }
            let began = Instant::now();
            let readiness = timeout(most.saturating_sub(*waited), &mut ready).await;
            *waited += began.elapsed();
            if *waited >= most {
                *waited = Duration::ZERO;
                body.is_held_up();
                fill.let_go_of_slow();
            }
            if let Ok(ready) = readiness {
                return ready;
            }
        }
    }

    /// Commits a complete body and ends it for its readers: after it is in memory, where later
    /// requests find it, but without waiting for a tier.
    async fn commit_complete(
        &self,
        leader: Leader,
        route: &Route,
        whole: CompleteBody<'_>,
        claimed: Option<ClaimGuard>,
    ) {
        let (filling, end) = (whole.filling, Ok(whole.trailers));
        let with_body = |body: Bytes| {
            Stored::new(
                filling.status,
                filling.fields.fields(),
                body.into(),
                filling.lifetime,
                filling.vary.clone(),
                &filling.selection,
                filling.began,
            )
            .with_tags(filling.tags.clone())
        };
        let key = leader.key();
        let request = filling.leader_request.origin_view(&route.rules);
        if !matches!(whole.keeping, BodyDestination::Nothing) {
            self.cache.forget_too_large(key, &request);
        }
        match whole.keeping {
            BodyDestination::Nothing => filling.fill.finish(end),
            BodyDestination::InMemory => {
                let before = self.cache.to_be_replaced(&route.rules, key, &request);
                let stored = with_body(filling.fill.collect());
                let room = self.cache.largest_in_memory();
                let stored = with_encodings_of(&route.rules, stored, before.as_ref(), room);
                let kind = ChangeKind::Stored;
                self.cache.commit(&leader, stored, &request, claimed, kind);
                filling.fill.finish(end);
                self.make_again(&route.rules, key, before.as_ref(), &request);
            }
            BodyDestination::Spool(spool) => {
                // Requests from now on wait for the entry. Its head is written before it is
                // committed.
                let stored = with_body(Bytes::new()).with_purges_known(leader.purges_known());
                let kept = spool.finish(key, stored, self.clock.now());
                filling.fill.finish_in_tier(end);
                if let Some(stored) = kept.await {
                    self.cache.commit_spooled(&leader, stored, &request);
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

/// A complete body.
struct CompleteBody<'a> {
    filling: &'a Filling,
    keeping: BodyDestination,
    trailers: Option<FieldsBuf>,
}

/// The wait for body frames, with the time after which the fetch closes to further waiters.
struct FrameWait {
    late: Pin<Box<Sleep>>,
    is_late: bool,
}

impl FrameWait {
    fn new(most: Duration) -> Self {
        Self {
            late: Box::pin(sleep(most)),
            is_late: false,
        }
    }

    /// The next frame. If it is late, the fetch closes to further waiters.
    async fn for_frame(
        &mut self,
        body: &mut Body,
        leader: &Leader,
    ) -> Option<Result<Frame, BodyError>> {
        poll_fn(|cx| {
            let frame = body.poll_frame(cx);
            if frame.is_pending() && !self.is_late && self.late.as_mut().poll(cx).is_ready() {
                self.is_late = true;
                leader.close();
            }
            frame
        })
        .await
    }
}

/// Ends the body for its readers even if the task that receives it panics.
struct EndOfBody<'a>(&'a Arc<Fill>);

impl Drop for EndOfBody<'_> {
    fn drop(&mut self) {
        self.0.finish(Err(BodyError::Disconnected));
    }
}

/// The storable part of a response besides its body.
pub(crate) struct StorableHead {
    pub(crate) fields: FieldsBuf,
    pub(crate) lifetime: Lifetime,
    /// The fields in its `Vary`.
    named: VaryNames,
    tags: TagNumbers,
}

/// Decides whether a response to a fetch of `key` is storable; if not, returns the reason.
pub(crate) fn judge(
    engine: &Engine,
    route: &Route,
    key: &[u8],
    facts: &RequestFacts,
    response: &OriginResponse,
    times: &ExchangeTimes,
) -> Result<StorableHead, Detail> {
    if response
        .length
        .is_some_and(|length| length > engine.largest(route))
    {
        return Err(Detail::TooLarge);
    }
    let read = ResponseFacts::read(response.fields.fields(), &route.rules);
    match storable(facts, response.status, &read, times.judged()) {
        Storable::Yes(lifetime) => {
            let mut fields = fields_to_store(&read);
            note_compression(
                &route.rules,
                key,
                response.status,
                &mut fields,
                response.length,
            );
            Ok(StorableHead {
                fields,
                lifetime,
                tags: tags_of(key, &read),
                named: read.into_vary().names(),
            })
        }
        Storable::No(why) => Err(why.detail()),
    }
}

impl Engine {
    /// The stored response, updated by the origin's confirmation. From now on it is selected by the
    /// confirmation's `Vary`, with the values of the request that it answered.
    pub(crate) fn renewed(
        &self,
        key: &[u8],
        stored: &Stored,
        fields: &FieldsBuf,
        lifetime: Lifetime,
        request: &OriginView<'_>,
        began: Time,
    ) -> Stored {
        let rules = request.rules;
        let read = ResponseFacts::read(fields.fields(), rules);
        let tags = tags_of(key, &read);
        let named = named_by_origin(rules, read.into_vary().names(), stored.vary());
        let vary = self.cache.vary_of(key, &named);
        let mut selection = Selection::new();
        vary::select(&vary, request, &mut selection);
        let mut fields = fields.clone();
        note_compression(
            rules,
            key,
            stored.status,
            &mut fields,
            Some(stored.body.len()),
        );
        let renewed = Stored::new(
            stored.status,
            fields.fields(),
            stored.body.clone(),
            lifetime,
            vary,
            &selection,
            began,
        );
        confirmed(rules, renewed.with_tags(tags), stored)
    }
}

/// The purge tags of a response. One with too many tags is not stored.
fn tags_of(key: &[u8], response: &ResponseFacts<'_>) -> TagNumbers {
    match response.tags() {
        Ok(tags) => tag_numbers(key, tags.iter()),
        Err(TooManyTags) => TagNumbers::default(),
    }
}

/// Adds the fields that a recipient adds (RFC 9110 §6.6.1, §7.6.3).
pub(crate) fn complete(fields: &mut FieldsBuf, rules: &Rules, now: Time) {
    if !fields.fields().contains("date") {
        fields.push("Date", date::format(clock::date(now)));
    }
    // A private cache is not an intermediary.
    if rules.kind == CacheKind::Shared {
        fields.push("Via", "1.1 microcache");
    }
}
