//! Responses on a route that compresses: in an accepted coding if it has been made; otherwise as
//! stored, and the coding is queued for later requests.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use microcache_policy::compression::{
    note_vary, ranges_by_date, varies_by_credentials, varies_on_codings, without_noted,
};
use microcache_policy::dictionaries::{self, note_dictionary};
use microcache_policy::{
    Coding, Compress, DictionaryCoding, FieldsBuf, Handling, NotCompressed, OriginView, Rules,
    Scheme, SentCoding, Time, VaryNames, visitor_used_tls,
};
use microcache_store::{
    BodyEncodings, EncodingMethod, EncodingTask, Hit, ResponseEncodings, Stored,
};

use crate::body::Body;
use crate::cache::Cache;
use crate::compress::CompressionJob;
use crate::message::{Request, Response};
use crate::request::engine::Engine;
use crate::request::lookup_context::LookupContext;
use crate::request::respond::{CacheStatusInputs, Reusable};

/// The largest body compressed thoroughly, in bytes: a larger one would hold up the thread for too
/// long.
const THOROUGH: u64 = 128 * 1024;
/// The number of responses between two checks whether thorough compression pays.
const ASK_AGAIN: u32 = 64;
/// The bytes that a thoroughly compressed byte has to save while its response is usable.
const PAYS: u64 = 32;
/// The divisor of the quick encoding's length that thorough compression saves, roughly.
const SAVING: u64 = 8;

/// Earlier versions of a url kept as dictionaries.
const VERSIONS: usize = 8;
/// The largest dictionary in bytes: each version is compared with all that are kept.
const LARGEST_DICTIONARY: u64 = 256 * 1024;

/// The encoding chosen for a request, and the background tasks for later ones.
pub(crate) struct CodingChoice<'h> {
    pub(crate) sent: Result<(SentCoding, &'h Bytes), NotCompressed>,
    /// A range request gets the complete response.
    is_whole: bool,
    /// The client has a dictionary.
    compares: Option<DictionaryCoding>,
    tasks: [Option<EncodingTask>; 2],
}

impl Engine {
    /// The response to a request on a route that compresses, from a stored response.
    #[inline(never)]
    pub(crate) fn answer_encoded(
        &self,
        look: &LookupContext<'_>,
        hit: Hit,
        now: Time,
        inputs: CacheStatusInputs,
    ) -> Response {
        let rules = self.rules(look.route);
        let request = look.request.fields;
        let CacheStatusInputs {
            cache_status,
            outcome,
        } = inputs;
        let Some(encoded) = self.cache.encoded_by(rules, &hit) else {
            return Reusable::stored(hit).respond(request, look.facts, now, cache_status, outcome);
        };
        let choice = self.choice(look, &hit, encoded);
        if let Some(coding) = choice.compares {
            encoded.bodies().expect(coding);
        }
        for task in choice.tasks.into_iter().flatten() {
            self.queue_task(look.key, encoded, task, hit.uses());
        }
        let facts = if choice.is_whole {
            look.facts.without_range()
        } else {
            *look.facts
        };
        let Ok((coding, body)) = choice.sent else {
            return Reusable::stored(hit).respond(request, &facts, now, cache_status, outcome);
        };
        if coding == SentCoding::Plain(Coding::Brotli) && hit.uses().is_multiple_of(ASK_AGAIN) {
            self.queue_thorough(look.key, &hit, encoded, now);
        }
        let saved = hit.body_len() - body.len() as u64;
        if hit.pieces().is_some() {
            let stored = Reusable::stored(hit);
            let mut response = stored.respond(request, &facts, now, cache_status, outcome);
            if matches!(response.body, Body::Stored(_)) {
                response.cache_status.coding = Some(coding);
                self.cache.compressor.saved(coding, saved);
            }
            return response;
        }
        let head = encoded.head(coding, hit.fields());
        let reusable = Reusable::encoded(&hit, head, body.clone());
        let mut response = reusable.respond(request, &facts, now, cache_status, outcome);
        if response.status == hit.status() {
            response.cache_status.coding = Some(coding);
        }
        if !matches!(response.body, Body::Empty) {
            self.cache.compressor.saved(coding, saved);
        }
        response
    }

    /// Chooses among the encodings already made. Has no side effects.
    pub(crate) fn choice<'h>(
        &self,
        look: &LookupContext<'_>,
        hit: &Hit,
        encoded: &'h ResponseEncodings,
    ) -> CodingChoice<'h> {
        let compress = &self.rules(look.route).compress;
        let request = look.request.fields;
        let wanted = compress.wanted(request);
        let bodies = encoded.bodies();
        let mut choice = CodingChoice {
            sent: Err(NotCompressed::NotAccepted),
            is_whole: false,
            compares: None,
            tasks: [None; 2],
        };
        if self.is_personal(look, hit) {
            choice.sent = Err(NotCompressed::ClientSpecific);
            return choice;
        }
        if hit.pieces().is_some() {
            // Other codings cannot be put together from pieces.
            choice.sent = Err(NotCompressed::Composed);
            if wanted.codings().any(|coding| coding == Coding::Gzip) {
                choice.tasks[0] = Some(EncodingTask::Encode(EncodingMethod::Pieces));
                choice.sent = match bodies.pieces() {
                    None => Err(NotCompressed::NotReady),
                    Some(none) if none.is_empty() => Err(NotCompressed::NoGain),
                    Some(pieces) => Ok((SentCoding::Plain(Coding::Gzip), pieces)),
                };
            }
            return choice;
        }
        if let Some(best) = wanted.codings().next() {
            if look.facts.range().is_some() {
                // Ranges are served from the stored body only.
                if !wanted.refuses_identity() && !ranges_by_date(request) {
                    choice.sent = Err(NotCompressed::Part);
                    return choice;
                }
                choice.is_whole = true;
            }
            choice.tasks[0] = Some(EncodingTask::Encode(EncodingMethod::Fast(best)));
            let made = |coding| Some((SentCoding::Plain(coding), bodies.body(coding)?));
            choice.sent = wanted.codings().find_map(made).ok_or_else(|| {
                if bodies.is_useless(best) {
                    NotCompressed::NoGain
                } else {
                    NotCompressed::NotReady
                }
            });
        }
        self.compare(look, hit, bodies, &mut choice);
        choice
    }

    /// Prefers a delta against the client's version, if that version is kept and the delta is
    /// smaller.
    fn compare<'h>(
        &self,
        look: &LookupContext<'_>,
        hit: &Hit,
        bodies: &'h BodyEncodings,
        choice: &mut CodingChoice<'h>,
    ) {
        let compress = &self.rules(look.route).compress;
        let is_for = hit.body_len() <= LARGEST_DICTIONARY && look.facts.range().is_none();
        if !compress.dictionaries || !is_for {
            return;
        }
        let preferred = compress.dictionary_coding();
        let available = dictionaries::available(look.request.fields, preferred);
        let Some((wanted, coding)) =
            available.filter(|_| is_secure(look.request, self.rules(look.route)))
        else {
            return;
        };
        choice.compares = Some(coding);
        let mut bases = bodies.bases();
        let base = bases.find(|base| base.version().hash() == Some(&wanted));
        let Some(difference) = base.and_then(|base| base.difference(coding)) else {
            choice.tasks[1] = Some(EncodingTask::Compare(coding));
            if choice.sent == Err(NotCompressed::NotAccepted) {
                choice.sent = Err(NotCompressed::NotReady);
            }
            return;
        };
        if !choice
            .sent
            .is_ok_and(|(_, body)| body.len() <= difference.len())
        {
            choice.sent = Ok((SentCoding::Difference(coding), difference));
            choice.tasks = [None; 2];
        }
    }

    /// Checks whether a response may be personal, on a route that does not compress personal
    /// responses.
    fn is_personal(&self, look: &LookupContext<'_>, hit: &Hit) -> bool {
        look.facts.handling() == Handling::Credentialed
            && !self.rules(look.route).compress.personal
            && varies_by_credentials(hit.fields())
    }

    /// Queues a background task, unless it is queued already or the queue is full.
    fn queue_task(&self, key: &[u8], encoded: &ResponseEncodings, task: EncodingTask, demand: u32) {
        let (encodings, compressor) = (encoded.bodies(), &self.cache.compressor);
        if !encodings.is_claimed(task) && compressor.has_place(demand) && encodings.claim(task) {
            let job = CompressionJob {
                key: key.into(),
                encodings: Arc::downgrade(encodings),
                task,
                demand,
            };
            let bound = self.settings.compress_queue;
            compressor.ask(&self.cache, job, bound);
        }
    }

    /// Queues thorough compression if it pays for the rest of the response's life at the present
    /// request rate. The job runs when the threads are idle.
    fn queue_thorough(&self, key: &[u8], hit: &Hit, encoded: &ResponseEncodings, now: Time) {
        let quick = encoded.bodies().body(Coding::Brotli);
        let quick = quick.map_or(0, Bytes::len) as u64;
        let left = hit.lifetime().usable_until().since(now);
        let age = now.since(hit.began()).max(1);
        let expected = u64::from(hit.uses()).saturating_mul(left) / age;
        if pays(hit.body_len(), quick, expected) {
            self.queue_task(key, encoded, EncodingTask::Encode(EncodingMethod::Best), 0);
        }
    }

    /// Makes the encodings and deltas of the replaced response for the new one too, before they are
    /// requested: otherwise a page that changes every second would never be served compressed.
    pub(crate) fn make_again(
        &self,
        rules: &Rules,
        key: &[u8],
        before: Option<&Hit>,
        request: &OriginView<'_>,
    ) {
        let Some((before, old)) = before.and_then(|hit| Some((hit, hit.known_encoded()?))) else {
            return;
        };
        let Some(hit) = self.cache.response(key, request, self.clock.now()) else {
            return;
        };
        let Some(encoded) = self.cache.encoded_by(rules, &hit) else {
            return;
        };
        let again = |task| self.queue_task(key, encoded, task, before.uses().max(1));
        let codings = rules.compress.codings.iter().copied();
        let methods = codings
            .map(EncodingMethod::Fast)
            .chain([EncodingMethod::Pieces]);
        let is_divided = hit.pieces().is_some();
        for method in methods.filter(|&method| (method == EncodingMethod::Pieces) == is_divided) {
            let task = EncodingTask::Encode(method);
            if old.bodies().is_claimed(task) {
                again(task);
            }
        }
        for coding in DictionaryCoding::ALL {
            if rules.compress.dictionaries && encoded.bodies().is_expected(coding) {
                again(EncodingTask::Compare(coding));
            }
        }
    }
}

impl Cache {
    /// The variant about to be replaced, if its encodings are reusable.
    pub(crate) fn to_be_replaced(
        &self,
        rules: &Rules,
        key: &[u8],
        request: &OriginView<'_>,
    ) -> Option<Hit> {
        if rules.compress.is_on() {
            self.response(key, request, self.clock.now())
        } else {
            None
        }
    }

    /// The encodings of a stored response, if these rules allow compression.
    #[inline]
    fn encoded_by<'h>(&self, rules: &Rules, hit: &'h Hit) -> Option<&'h ResponseEncodings> {
        let may_be = |stored: &Stored| unsuited(rules, stored).is_none();
        self.memory.encoded(hit, rules.compress.number, may_be)
    }
}

/// The replacement of a response: with the same encodings if both have the same body; otherwise
/// with the old body as a dictionary, on routes that use dictionaries.
pub(crate) fn with_encodings_of(
    rules: &Rules,
    stored: Stored,
    before: Option<&Hit>,
    room: u64,
) -> Stored {
    let Some(before) = before.filter(|before| before.body().is_some()) else {
        return stored;
    };
    if before.body() == stored.body() {
        return confirmed(rules, stored, before);
    }
    // Clients get a page with pieces in another form.
    let is_base =
        |stored: &Stored| stored.body_len() <= LARGEST_DICTIONARY && stored.pieces().is_none();
    let is_dictionary = rules.compress.dictionaries && is_base(before);
    if is_dictionary && is_base(&stored) && unsuited(rules, &stored).is_none() {
        let encodings = BodyEncodings::after(before, VERSIONS, room);
        return stored.with_encodings(ResponseEncodings::of(Arc::new(encodings)));
    }
    stored
}

/// Returns true if the client may use dictionaries: it uses TLS, as far as is known, or connects
/// from this machine (RFC 9842 §9.1, W3C Secure Contexts §3.1).
fn is_secure(request: &Request<'_>, rules: &Rules) -> bool {
    let is_loopback = || {
        let address = request.address.parse::<IpAddr>();
        address.is_ok_and(|address| address.is_loopback())
    };
    request.scheme == Scheme::Https
        || request.is_trusted && visitor_used_tls(request.fields, &rules.request.trusted_fields)
        || !request.is_trusted && is_loopback()
}

/// A response with the body, and so the encodings, of another one.
pub(crate) fn confirmed(rules: &Rules, stored: Stored, before: &Stored) -> Stored {
    match before.known_encoded() {
        Some(encoded) if unsuited(rules, &stored).is_none() => {
            let encoded = ResponseEncodings::of(Arc::clone(encoded.bodies()));
            stored.with_encodings(encoded)
        }
        _ => stored,
    }
}

/// Adds the fields of a compressible response (`Vary`, `Use-As-Dictionary`) if it is one, and
/// returns whether it is. `length` is that of the body, if known.
pub(crate) fn note_compression(
    rules: &Rules,
    key: &[u8],
    status: u16,
    fields: &mut FieldsBuf,
    length: Option<u64>,
) -> bool {
    if !rules.compress.is_on() || !Compress::suits(rules, status, fields.fields(), length) {
        return false;
    }
    note_vary(fields, rules.compress.dictionaries);
    let is_small = length.is_none_or(|length| length <= LARGEST_DICTIONARY);
    if rules.compress.dictionaries && status == 200 && is_small {
        note_dictionary(fields, key);
    }
    true
}

/// The fields in `Vary` that the origin named, without those added for downstream caches, which
/// select nothing here.
pub(crate) fn named_by_origin(rules: &Rules, named: VaryNames, before: &VaryNames) -> VaryNames {
    if rules.compress.is_on() {
        without_noted(&named, before)
    } else {
        named
    }
}

/// Checks whether thorough compression of a body of `length` bytes pays, whose quick encoding has
/// `quick` bytes and which is expected to be sent `expected` times.
const fn pays(length: u64, quick: u64, expected: u64) -> bool {
    length <= THOROUGH && expected.saturating_mul(quick) / SAVING > length * PAYS
}

/// The reason a stored response is not sent compressed to any client.
pub(crate) fn unsuited(rules: &Rules, stored: &Stored) -> Option<NotCompressed> {
    let length = Some(stored.body_len());
    let unsuited = Compress::unsuited(rules, stored.status(), stored.fields(), length);
    if unsuited.is_some() {
        unsuited.map(NotCompressed::NotCompressible)
    } else if stored.body().is_none() {
        Some(NotCompressed::InFile)
    } else {
        // Stored before the route compressed: its `Vary` does not name the codings.
        (!varies_on_codings(stored.fields())).then_some(NotCompressed::StoredBefore)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_sent_often_are_compressed_thoroughly() {
        for (length, quick, expected, is_done) in [
            (50_000, 10_000, 2_000, true),
            (50_000, 10_000, 1_000, false),
            (50_000, 0, u64::MAX, false),
            (THOROUGH, 20_000, u64::MAX, true),
            (THOROUGH + 1, 20_000, u64::MAX, false),
        ] {
            assert_eq!(
                pays(length, quick, expected),
                is_done,
                "{length} {expected}"
            );
        }
    }
}
