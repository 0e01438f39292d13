//! From the origin's answer to the store: may it be kept, and then body and head into both the
//! clients and memory.

use std::future::poll_fn;
use std::sync::Arc;

use bytes::Bytes;
use microcache_policy::vary::{self, Selection, Vary, VaryNames};
use microcache_policy::{
    CacheStatus, Fields, FieldsBuf, Lifetime, RequestFacts, Storable, Time, date, fields_to_store,
    storable,
};
use microcache_store::Stored;

use crate::body::{Body, BodyError, Frame};
use crate::fill::{Fill, FillReader};
use crate::flight::{Filling, Leader};
use crate::message::Response;
use crate::origin::OriginResponse;
use crate::outcome::Outcome;
use crate::respond::Reusable;
use crate::serve::{Engine, Route};

/// A response that may be kept, as the one gets it who asked for it. Others do not see the fields
/// that must not be replayed.
pub(crate) struct First {
    pub(crate) filling: Arc<Filling>,
    reader: FillReader,
    fields: Bytes,
}

impl First {
    /// The answer for the one who asked.
    pub(crate) fn respond(
        self,
        request: Fields<'_>,
        facts: &RequestFacts<'_>,
        now: Time,
        mut cache_status: CacheStatus,
    ) -> Response {
        cache_status.fwd_status = Some(self.filling.status);
        cache_status.stored = true;
        let reusable = Reusable::first(&self.filling, &self.fields, self.reader);
        let mut response = reusable.respond(request, facts, now, cache_status, Outcome::Miss);
        // It comes from the origin: its age is only worth a word if it was in another cache.
        response.age = response.age.filter(|&age| age > 0);
        response
    }
}

impl Engine {
    pub(crate) fn object_limit(&self, route: &Route) -> u64 {
        route.max_object.min(self.memory.limits().object)
    }

    /// The beginning of a response that everyone may read, and the first reader.
    pub(crate) fn begin_fill(
        &self,
        route: &Route,
        mut response: OriginResponse,
        lifetime: Lifetime,
        request: Fields<'_>,
        began: Time,
    ) -> (First, Body) {
        let vary = match vary::of_response(response.fields.fields()) {
            Vary::Names(names) => names,
            Vary::None | Vary::Any => VaryNames::default(),
        };
        let mut selection = Selection::new();
        vary::select(&vary, request, &mut selection);
        let fields = fields_to_store(response.fields.fields(), &route.rules);
        let fill = Fill::new(&self.fill_budget);
        let reader = fill.reader().expect("nothing has been let go of yet");
        let filling = Filling {
            status: response.status,
            fields: fields.into_block().into(),
            length: response.length,
            lifetime,
            vary,
            selection: Bytes::copy_from_slice(&selection),
            began,
            fill,
        };
        response.fields.remove("age");
        let first = First {
            filling: Arc::new(filling),
            reader,
            fields: response.fields.into_block().into(),
        };
        (first, response.body)
    }

    /// Pumps the body into the fill, and the whole into the store.
    pub(crate) async fn fill(&self, leader: Leader, filling: &Filling, mut body: Body, limit: u64) {
        let fill = &filling.fill;
        let _told = Told(fill);
        let deadline = self.clock.now().plus(self.settings.fill_timeout);
        let mut keep = true;
        let end = loop {
            if poll_fn(|cx| fill.poll_ready(cx)).await.is_err() {
                break Err(BodyError::Disconnected);
            }
            match body.frame().await {
                None => break Ok(None),
                Some(Ok(Frame::Data(chunk))) => {
                    // Silence has a time-out of its own, so a body that comes too slowly is
                    // noticed when more of it comes.
                    let limit = if self.clock.now() < deadline {
                        limit
                    } else {
                        0
                    };
                    let still = fill.push(chunk, limit);
                    if keep && !still {
                        leader.close();
                    }
                    keep = still;
                }
                Some(Ok(Frame::Trailers(trailers))) => break Ok(Some(trailers)),
                Some(Err(error)) => break Err(error),
            }
        };
        // The length was verified by whoever read the body; this is the last place to notice.
        let whole = filling
            .length
            .is_none_or(|length| length == fill.received());
        let end = if whole {
            end
        } else {
            end.and(Err(BodyError::Incomplete))
        };
        if keep && end.is_ok() {
            let stored = Stored::new(
                filling.status,
                &filling.fields,
                fill.collect().into(),
                filling.lifetime,
                filling.vary.clone(),
                &filling.selection,
                filling.began,
            );
            let key: Box<[u8]> = leader.key().into();
            leader.finish(|| self.memory.put(&key, stored, self.clock.now()));
        }
        fill.finish(end);
    }
}

/// Readers of a body are told of its end, even if whoever fetches it ends by a panic.
struct Told<'a>(&'a Fill);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        self.0.finish(Err(BodyError::Disconnected));
    }
}

/// Whether an answer may be kept; if not, why not.
pub(crate) fn judge(
    engine: &Engine,
    route: &Route,
    facts: &RequestFacts<'_>,
    response: &OriginResponse,
    request_time: Time,
    now: Time,
) -> Result<Lifetime, &'static str> {
    if response
        .length
        .is_some_and(|length| length > engine.object_limit(route))
    {
        return Err("too-large");
    }
    let fields = response.fields.fields();
    match storable(
        facts,
        response.status,
        fields,
        request_time,
        now,
        &route.rules,
    ) {
        Storable::Yes(lifetime) => Ok(lifetime),
        Storable::No(why) => Err(why.as_str()),
    }
}

/// A stored response with what the origin has confirmed of it.
pub(crate) fn renewed(
    stored: &Stored,
    fields: &FieldsBuf,
    lifetime: Lifetime,
    began: Time,
) -> Stored {
    Stored::new(
        stored.status,
        fields.fields().as_block(),
        stored.body.clone(),
        lifetime,
        stored.vary.clone(),
        &stored.selection,
        began,
    )
}

/// What a recipient adds to a response (RFC 9110 §6.6.1, §7.6.3).
pub(crate) fn complete(fields: &mut FieldsBuf, now: Time) {
    if !fields.fields().contains("date") {
        fields.push("Date", date::format(now));
    }
    fields.push("Via", "1.1 microcache");
}
