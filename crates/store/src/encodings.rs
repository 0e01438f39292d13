//! Encoded versions of a stored body, computed once in the background and dropped with it. Tiers do not
//! store them.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use microcache_policy::compression::encoded_fields;
use microcache_policy::dictionaries::DictionaryHash;
use microcache_policy::{Coding, DictionaryCoding, FieldBlock, Fields, SentCoding};

use crate::allocation::allocated;

/// Way to encode a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodingMethod {
    /// Fast compression, for the next requests.
    Fast(Coding),
    /// Brotli at its best level.
    Best,
    /// Gzip of the texts of a page with pieces, each by itself. The result is no body.
    Pieces,
}

impl EncodingMethod {
    const NUMBER: usize = Coding::ALL.len() + 2;

    /// Resulting content coding.
    pub const fn coding(self) -> Coding {
        match self {
            Self::Fast(coding) => coding,
            Self::Best => Coding::Brotli,
            Self::Pieces => Coding::Gzip,
        }
    }

    const fn index(self) -> usize {
        match self {
            Self::Fast(coding) => coding as usize,
            Self::Best => Coding::ALL.len(),
            Self::Pieces => Coding::ALL.len() + 1,
        }
    }
}

/// Background task for a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodingTask {
    /// Compress the body.
    Encode(EncodingMethod),
    /// Compute its deltas from the versions that clients may have (RFC 9842).
    Compare(DictionaryCoding),
}

impl EncodingTask {
    const fn bit(self) -> u8 {
        1 << match self {
            Self::Encode(making) => making.index(),
            Self::Compare(coding) => EncodingMethod::NUMBER + coding as usize,
        }
    }
}

/// Version of a body that clients may have as a dictionary.
#[derive(Debug)]
pub struct DictionaryVersion {
    body: Bytes,
    hash: OnceLock<DictionaryHash>,
}

impl DictionaryVersion {
    const fn new(body: Bytes) -> Self {
        let hash = OnceLock::new();
        Self { body, hash }
    }

    /// Bytes of the version.
    pub const fn body(&self) -> &Bytes {
        &self.body
    }

    /// Hash of the version, if already computed.
    pub fn hash(&self) -> Option<&DictionaryHash> {
        self.hash.get()
    }

    /// Hash of the version, computed on the first call.
    pub fn hash_or(&self, hash: impl FnOnce(&[u8]) -> DictionaryHash) -> &DictionaryHash {
        self.hash.get_or_init(|| hash(&self.body))
    }
}

/// Dictionary version with the deltas of the current body from it.
#[derive(Debug)]
pub struct DictionaryBase {
    version: Arc<DictionaryVersion>,
    /// Deltas; empty if not worthwhile.
    differences: [OnceLock<Bytes>; DictionaryCoding::ALL.len()],
}

impl DictionaryBase {
    fn of(version: Arc<DictionaryVersion>) -> Self {
        Self {
            version,
            differences: Default::default(),
        }
    }

    /// Dictionary version.
    pub fn version(&self) -> &DictionaryVersion {
        &self.version
    }

    /// Delta of the body from this version, if computed and worthwhile.
    pub fn difference(&self, coding: DictionaryCoding) -> Option<&Bytes> {
        let difference = self.differences[coding as usize].get()?;
        (!difference.is_empty()).then_some(difference)
    }

    /// Stores a delta; empty if not worthwhile.
    pub(crate) fn put(&self, coding: DictionaryCoding, bytes: Bytes) {
        let _ = self.differences[coding as usize].set(bytes);
    }

    /// Memory used, in bytes, excluding the body of the version.
    fn heap_size(&self) -> usize {
        let made = self.differences.iter().filter_map(OnceLock::get);
        size_of::<Self>() + size_of::<DictionaryVersion>() + sum_allocated(made)
    }
}

/// Encoded versions of one body, shared by all responses with that body.
#[derive(Debug, Default)]
pub struct BodyEncodings {
    /// The body itself as a dictionary, which most clients have while it is current; set on the first
    /// request that names it.
    own: OnceLock<Box<DictionaryBase>>,
    /// Earlier versions of the body, latest first.
    earlier: Box<[DictionaryBase]>,
    /// Compressed bodies and pieces; empty if not worthwhile.
    made: [OnceLock<Bytes>; EncodingMethod::NUMBER],
    /// Bitmap of tasks that were started or completed.
    claimed: AtomicU8,
    /// Number of further versions whose deltas are computed in advance, by coding.
    expected: [AtomicU8; DictionaryCoding::ALL.len()],
}

impl BodyEncodings {
    /// Number of versions for which deltas are computed in advance after a request for one.
    const EXPECTED: u8 = 8;

    /// Returns the encodings of a body that replaces `body`, whose encodings are `known`. The body must not keep
    /// the response, which has them.
    pub(crate) fn succeeding(
        known: Option<&Self>,
        body: impl FnOnce() -> Option<Bytes>,
        most: usize,
        room: u64,
    ) -> Self {
        let own = known.and_then(|known| known.own.get());
        let own = own.map(|own| Arc::clone(&own.version));
        let latest = own.or_else(|| Some(Arc::new(DictionaryVersion::new(body()?))));
        let earlier = known.map_or(&[][..], |known| &known.earlier);
        let mut left = room;
        let bases = latest
            .into_iter()
            .chain(earlier.iter().map(|one| Arc::clone(&one.version)))
            .take(most)
            .map_while(|version| {
                // A delta takes at most a quarter of the size.
                let size = version.body.len() as u64;
                left = left.checked_sub(size + size / 4)?;
                Some(DictionaryBase::of(version))
            });
        let expected = DictionaryCoding::ALL.map(|coding| {
            let before = known.map_or(0, |known| known.expected(coding));
            AtomicU8::new(before.saturating_sub(1))
        });
        Self {
            earlier: bases.collect(),
            expected,
            ..Self::default()
        }
    }

    /// Dictionary versions that clients may have: the body itself, then earlier ones, latest first.
    pub fn bases(&self) -> impl Iterator<Item = &DictionaryBase> {
        let own = self.own.get().map(Box::as_ref);
        own.into_iter().chain(self.earlier.iter())
    }

    /// Makes the body itself available as a dictionary. It must not keep the response, which has these encodings.
    pub(crate) fn use_as_dictionary(&self, body: Bytes) {
        let own = || DictionaryBase::of(Arc::new(DictionaryVersion::new(body)));
        self.own.get_or_init(|| Box::new(own()));
    }

    /// Returns whether the body itself is available as a dictionary.
    pub(crate) fn is_dictionary(&self) -> bool {
        self.own.get().is_some()
    }

    /// Records a request for a delta.
    pub fn expect(&self, coding: DictionaryCoding) {
        let expected = &self.expected[coding as usize];
        if expected.load(Ordering::Relaxed) != Self::EXPECTED {
            expected.store(Self::EXPECTED, Ordering::Relaxed);
        }
    }

    /// Returns whether requests for deltas are expected.
    pub fn is_expected(&self, coding: DictionaryCoding) -> bool {
        self.expected(coding) > 0
    }

    fn expected(&self, coding: DictionaryCoding) -> u8 {
        self.expected[coding as usize].load(Ordering::Relaxed)
    }

    /// Claims a task. Returns whether the caller is to perform it.
    pub fn claim(&self, task: EncodingTask) -> bool {
        let bit = task.bit();
        // Avoids the write in the common case.
        self.claimed.load(Ordering::Relaxed) & bit == 0
            && self.claimed.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    /// Gives up a claimed task, so that a later request may retry it.
    pub fn give_up(&self, task: EncodingTask) {
        self.claimed.fetch_and(!task.bit(), Ordering::Relaxed);
    }

    /// Returns whether a task has been claimed.
    pub fn is_claimed(&self, task: EncodingTask) -> bool {
        self.claimed.load(Ordering::Relaxed) & task.bit() != 0
    }

    /// Best compressed body in a coding, if worthwhile.
    pub fn body(&self, coding: Coding) -> Option<&Bytes> {
        let best = (coding == Coding::Brotli).then_some(EncodingMethod::Best);
        let makings = best.into_iter().chain([EncodingMethod::Fast(coding)]);
        let mut made = makings.filter_map(|making| self.made[making.index()].get());
        made.find(|bytes| !bytes.is_empty())
    }

    /// Returns whether compression with this coding was tried and is not worthwhile.
    pub fn is_useless(&self, coding: Coding) -> bool {
        let made = self.made[EncodingMethod::Fast(coding).index()].get();
        made.is_some_and(Bytes::is_empty) && self.body(coding).is_none()
    }

    /// Compressed pieces, if made; empty if not worthwhile.
    pub fn pieces(&self) -> Option<&Bytes> {
        self.made[EncodingMethod::Pieces.index()].get()
    }

    /// Stores a compressed body; empty if not worthwhile.
    pub(crate) fn put(&self, making: EncodingMethod, bytes: Bytes) {
        let _ = self.made[making.index()].set(bytes);
    }

    /// Memory used, in bytes, in addition to the body of the response.
    fn heap_size(&self, body: Option<&[u8]>) -> usize {
        let made = self.made.iter().filter_map(OnceLock::get);
        // The response may share its body with the dictionary, which is then counted with the response.
        let own = self.own.get().map(|own| own.version.body());
        let own = own.filter(|own| body.is_none_or(|body| body.as_ptr() != own.as_ptr()));
        let earlier = self.earlier.iter().map(|one| one.version.body());
        size_of::<Self>()
            + sum_allocated(made)
            + sum_allocated(earlier.chain(own))
            + self.bases().map(DictionaryBase::heap_size).sum::<usize>()
    }
}

/// Memory that these allocations take, in bytes.
fn sum_allocated<'a>(all: impl Iterator<Item = &'a Bytes>) -> usize {
    all.map(|bytes| allocated(bytes.len())).sum()
}

/// Encoded versions of a stored response: bodies, and their heads.
#[derive(Clone, Debug)]
pub struct ResponseEncodings {
    bodies: Arc<BodyEncodings>,
    heads: [OnceLock<FieldBlock>; SentCoding::ALL.len()],
}

impl ResponseEncodings {
    /// Creates the encodings of a response with these bodies.
    pub fn of(bodies: Arc<BodyEncodings>) -> Self {
        Self {
            bodies,
            heads: Default::default(),
        }
    }

    /// Encoded bodies.
    pub const fn bodies(&self) -> &Arc<BodyEncodings> {
        &self.bodies
    }

    /// Returns the head for a body in this coding, derived from the response's fields.
    pub fn head(&self, coding: SentCoding, stored: Fields<'_>) -> &FieldBlock {
        let head = || FieldBlock::from(encoded_fields(stored, coding.as_str()));
        self.heads[coding.index()].get_or_init(head)
    }

    /// Memory used, in bytes, in addition to the response with a head of `head` bytes and this body.
    pub(crate) fn heap_size(&self, head: usize, body: Option<&[u8]>) -> usize {
        let of_all = Coding::ALL
            .iter()
            .filter(|&&coding| self.bodies.body(coding).is_some());
        let of_bases = DictionaryCoding::ALL.iter().filter(|&&coding| {
            let mut bases = self.bodies.bases();
            bases.any(|base| base.difference(coding).is_some())
        });
        let heads = of_all.count() + of_bases.count();
        let counts = 2 * size_of::<usize>();
        counts + self.bodies.heap_size(body) + heads * (head + 32)
    }
}

/// Lazily created encodings of a stored response.
#[derive(Clone, Debug, Default)]
pub(crate) struct LazyEncodings(OnceLock<ResponseEncodings>);

impl LazyEncodings {
    pub(crate) fn of(encoded: ResponseEncodings) -> Self {
        Self(OnceLock::from(encoded))
    }

    /// Encodings, if already created.
    pub(crate) fn known(&self) -> Option<&ResponseEncodings> {
        self.0.get()
    }

    /// Encodings, created on the first call.
    pub(crate) fn get(&self) -> &ResponseEncodings {
        let begin = || ResponseEncodings::of(Arc::default());
        self.0.get_or_init(begin)
    }

    pub(crate) fn heap_size(&self, head: usize, body: Option<&[u8]>) -> usize {
        let known = self.known();
        known.map_or(0, |encoded| encoded.heap_size(head, body))
    }
}

/// Cached decision whether a response may have encodings, tagged with the settings it was made under; 0 if
/// undecided.
#[derive(Debug, Default)]
pub(crate) struct CachedDecision(AtomicU32);

impl CachedDecision {
    const MAY_BE: u32 = 1;
    const DECIDED: u32 = 2;

    /// Returns the decision under the settings with this number, of which all but the last two bits count,
    /// computing it if they have changed.
    pub(crate) fn may_be(&self, settings: u32, decide: impl FnOnce() -> bool) -> bool {
        let forbidden = settings & !3 | Self::DECIDED;
        let mut decided = self.0.load(Ordering::Relaxed);
        if decided & !Self::MAY_BE != forbidden {
            decided = forbidden | u32::from(decide());
            self.0.store(decided, Ordering::Relaxed);
        }
        decided != forbidden
    }
}

impl Clone for CachedDecision {
    fn clone(&self) -> Self {
        Self(AtomicU32::new(self.0.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use microcache_policy::{Lifetime, OriginView, Rules, Time};

    use super::*;
    use crate::content::Content;
    use crate::memory::{Hit, Memory, MemoryLimits, Revision};
    use crate::stored::Stored;

    const BR: EncodingMethod = EncodingMethod::Fast(Coding::Brotli);
    const DCZ: DictionaryCoding = DictionaryCoding::Dcz;

    #[test]
    fn each_is_claimed_once() {
        let encodings = BodyEncodings::default();
        let [br, thorough] = [BR, EncodingMethod::Best].map(EncodingTask::Encode);
        let [dcb, dcz] = DictionaryCoding::ALL.map(EncodingTask::Compare);
        let pieces = EncodingTask::Encode(EncodingMethod::Pieces);
        for task in [br, thorough, pieces, dcb, dcz] {
            assert!(encodings.claim(task));
            assert!(!encodings.claim(task));
        }
        encodings.give_up(br);
        assert!(!encodings.is_claimed(br));
        assert!(encodings.is_claimed(thorough) && encodings.is_claimed(dcz));
        assert!(encodings.claim(br));
    }

    #[test]
    fn the_smallest_that_was_worth_it_is_the_body() {
        let encodings = BodyEncodings::default();
        assert_eq!(encodings.body(Coding::Brotli), None);
        encodings.put(EncodingMethod::Pieces, Bytes::from_static(b"pieces"));
        assert_eq!(encodings.body(Coding::Gzip), None);
        assert_eq!(encodings.pieces().unwrap(), "pieces");
        encodings.put(EncodingMethod::Fast(Coding::Gzip), Bytes::new());
        assert_eq!(encodings.body(Coding::Gzip), None);
        encodings.put(BR, Bytes::from_static(b"quick"));
        assert_eq!(encodings.body(Coding::Brotli).unwrap(), "quick");
        encodings.put(EncodingMethod::Best, Bytes::new());
        assert_eq!(encodings.body(Coding::Brotli).unwrap(), "quick");
        assert_eq!(encodings.body(Coding::Gzip), None);
        assert!(encodings.is_useless(Coding::Gzip));
        assert!(!encodings.is_useless(Coding::Brotli) && !encodings.is_useless(Coding::Zstd));
    }

    #[test]
    fn all_of_it_is_counted() {
        let place = LazyEncodings::default();
        assert_eq!(place.heap_size(100, None), 0);
        place.get();
        let empty = place.heap_size(100, None);
        let bodies = place.known().unwrap().bodies();
        bodies.put(BR, Bytes::from_static(b"0123456789"));
        assert_eq!(place.heap_size(100, None), empty + allocated(10) + 132);
    }

    #[test]
    fn bodies_are_counted_with_the_rounding_of_the_allocator() {
        let bytes = |length| Bytes::from(vec![b'x'; length]);
        let after = |length| BodyEncodings::succeeding(None, || Some(bytes(length)), 1, 1 << 20);
        let (encodings, empty) = (after(5000), after(0).heap_size(None));
        assert_eq!(encodings.heap_size(None), empty + allocated(5000));
        encodings.put(BR, bytes(300));
        for base in encodings.bases() {
            base.put(DCZ, bytes(1100));
        }
        let all = [5000, 300, 1100].map(allocated).iter().sum::<usize>();
        assert_eq!(encodings.heap_size(None), empty + all);
    }

    #[test]
    fn it_is_decided_once_by_the_same_settings() {
        let decided = CachedDecision::default();
        assert!(!decided.may_be(0, || false));
        assert!(!decided.may_be(0, || true), "it was decided");
        assert!(decided.may_be(u32::MAX, || true), "others allow it");
        assert!(decided.may_be(u32::MAX, || false));
        assert!(!decided.may_be(8, || false));
        let copy = decided.clone();
        assert!(!copy.may_be(8, || true), "a copy knows it too");
    }

    const KEY: &[u8] = b"a page";

    fn memory() -> Memory {
        Memory::new(MemoryLimits {
            capacity: 1 << 20,
            object: 1 << 14,
            variants: 4,
        })
    }

    fn put(memory: &Memory, body: impl Into<Bytes>) -> Hit {
        let rules = Rules::default();
        let request = OriginView {
            fields: Fields::default(),
            rules: &rules,
            address: "",
            is_trusted: false,
        };
        let lifetime = Lifetime::from_bytes(&[0; Lifetime::ENCODED_LEN]).expect("zeros are one");
        let body = Content::from(body.into());
        let fields = Fields::default();
        let stored = Stored::new(KEY, 200, fields, body, lifetime, Time::default());
        let kept = memory.put(KEY, stored, &request, Time::default());
        kept.expect("it is small")
    }

    fn encodings(memory: &Memory, hit: &Hit) -> Arc<BodyEncodings> {
        Arc::clone(
            memory
                .encoded(hit, 1, |_| true)
                .expect("it may be")
                .bodies(),
        )
    }

    fn attach(memory: &Memory, to: &Arc<BodyEncodings>, body: &'static str) -> bool {
        memory.attach(KEY, to, BR, Bytes::from_static(body.as_bytes()))
    }

    #[test]
    fn other_settings_decide_anew_and_keep_existing_forms() {
        let (memory, [loose, strict]) = (memory(), [4, 8]);
        let hit = put(&memory, "a body");
        let without = hit.weight();
        assert!(memory.encoded(&hit, strict, |_| false).is_none());
        assert_eq!(hit.weight(), without);
        let encoded = memory.encoded(&hit, loose, |_| true).expect("it may be");
        encoded.bodies().put(BR, Bytes::from_static(b"small"));
        assert!(memory.encoded(&hit, strict, |_| false).is_none());
        let encoded = memory
            .encoded(&hit, loose, |_| true)
            .expect("it may be again");
        assert_eq!(encoded.bodies().body(Coding::Brotli).unwrap(), "small");
    }

    #[test]
    fn encoded_forms_are_kept_with_the_response_and_counted() {
        let memory = memory();
        let hit = put(&memory, "a body");
        let made_for = encodings(&memory, &hit);
        assert_eq!(memory.body_of(KEY, &made_for).unwrap(), "a body");
        let before = memory.stats().bytes;
        assert!(attach(&memory, &made_for, "small"));
        assert_eq!(made_for.body(Coding::Brotli).unwrap(), "small");
        assert!(memory.stats().bytes >= before + 5);
        // A purge may leave the response stale; its body is unchanged.
        memory.revise(KEY, |_| Revision::Expire(Time::default()), |_| ());
        assert!(attach(&memory, &made_for, "again"));
        assert_eq!(made_for.body(Coding::Brotli).unwrap(), "small", "once");
    }

    #[test]
    fn forms_of_an_evicted_response_are_dropped() {
        let memory = memory();
        let old = encodings(&memory, &put(&memory, "a body"));
        assert!(memory.remove(KEY));
        assert_eq!(memory.body_of(KEY, &old), None);
        assert!(!attach(&memory, &old, "small"));
        assert_eq!(old.body(Coding::Brotli), None);
        // Not shared with its successor, even if the body is the same.
        let new = put(&memory, "a body");
        let made_for = encodings(&memory, &new);
        assert!(!attach(&memory, &old, "small"));
        assert_eq!(memory.body_of(KEY, &old), None);
        assert_eq!(made_for.body(Coding::Brotli), None);
        let newer = encodings(&memory, &put(&memory, "another body"));
        assert!(!attach(&memory, &made_for, "small"));
        assert!(attach(&memory, &newer, "small"));
    }

    #[test]
    fn earlier_versions_are_kept_as_far_as_there_is_room() {
        let memory = memory();
        let bodies = ["first body", "second body", "third body"];
        let mut before = put(&memory, "zeroth body");
        for body in bodies {
            let encodings = BodyEncodings::after(&before, 2, 1000);
            let encoded = ResponseEncodings::of(Arc::new(encodings));
            let hit = put(&memory, body);
            before =
                Memory::detached_hit(hit.with_lifetime(hit.lifetime()).with_encodings(encoded));
        }
        let kept = |encodings: &BodyEncodings| -> Vec<Bytes> {
            let versions = encodings.bases().map(DictionaryBase::version);
            versions.map(|version| version.body().clone()).collect()
        };
        let encoded = before.known_encoded().unwrap();
        assert_eq!(kept(encoded.bodies()), ["second body", "first body"]);
        assert!(before.weight() > before.own_size() + 20);
        assert_eq!(
            kept(&BodyEncodings::after(&before, 8, 26)),
            ["third body", "second body"]
        );
        assert_eq!(kept(&BodyEncodings::after(&before, 8, 11)), [""; 0]);
        // Each is hashed once and keeps its name.
        let bodies = encoded.bodies();
        bodies.use_as_dictionary(before.separate_body().unwrap());
        let names = || bodies.bases().map(|base| base.version().hash().copied());
        assert_eq!(names().collect::<Vec<_>>(), [None; 3]);
        for (base, name) in bodies.bases().zip([[1; 32], [2; 32], [3; 32]]) {
            assert_eq!(base.version().hash_or(|_| name), &name);
            assert_eq!(base.version().hash_or(|_| [9; 32]), &name);
        }
        let after = BodyEncodings::after(&before, 2, 1000);
        assert_eq!(kept(&after), ["third body", "second body"]);
        let names: Vec<_> = after.bases().map(|base| base.version().hash()).collect();
        assert_eq!(names, [Some(&[1; 32]), Some(&[2; 32])]);
    }

    #[test]
    fn deltas_are_expected_for_the_remembered_versions() {
        let memory = memory();
        let mut before = put(&memory, "a body");
        let other = DictionaryCoding::Dcb;
        encodings(&memory, &before).expect(DCZ);
        let mut versions = 0;
        while encodings(&memory, &before).is_expected(DCZ) {
            assert!(!encodings(&memory, &before).is_expected(other));
            let after = BodyEncodings::after(&before, 8, 1000);
            let encoded = ResponseEncodings::of(Arc::new(after));
            let stored = before.with_lifetime(before.lifetime());
            before = Memory::detached_hit(stored.with_encodings(encoded));
            versions += 1;
        }
        assert_eq!(versions, 8);
    }

    #[test]
    fn deltas_are_kept_with_the_response_and_counted() {
        let memory = memory();
        let made_for = encodings(&memory, &put(&memory, "a body"));
        made_for.use_as_dictionary(Bytes::from_static(b"a body"));
        let base = made_for.bases().next().unwrap();
        let before = memory.stats().bytes;
        let attach = |bytes: &'static [u8]| {
            let bytes = Bytes::from_static(bytes);
            memory.attach_difference(KEY, &made_for, base, DCZ, bytes)
        };
        assert!(attach(b"a difference"));
        assert_eq!(base.difference(DCZ).unwrap(), "a difference");
        assert_eq!(base.difference(DictionaryCoding::Dcb), None);
        assert!(memory.stats().bytes >= before + 12);
        assert!(memory.remove(KEY));
        assert!(!attach(b"a difference"));
    }

    fn roomy_memory() -> Memory {
        Memory::new(MemoryLimits {
            capacity: 1 << 20,
            object: 1 << 16,
            variants: 4,
        })
    }

    /// Bodies that are part of the block of their response are copied, larger ones shared.
    #[test]
    fn a_copy_of_the_body_as_a_dictionary_is_counted_and_a_shared_body_is_not() {
        let memory = roomy_memory();
        let more_with_dictionary = |length| {
            let made_for = encodings(&memory, &put(&memory, vec![b'x'; length]));
            let before = memory.stats().bytes;
            let body = memory.body_of(KEY, &made_for).expect("it is there");
            assert!(memory.attach_dictionary(KEY, &made_for, &body));
            assert!(memory.attach_dictionary(KEY, &made_for, &body), "it is one");
            assert_eq!(made_for.bases().count(), 1);
            (memory.stats().bytes - before) as usize
        };
        let lengths = [0, Stored::COMPACT, Stored::COMPACT + 1];
        let [none, small, large] = lengths.map(more_with_dictionary);
        assert!(small >= none + Stored::COMPACT, "{small}, {none}");
        assert!(large <= none + 16, "{large}, {none}");
    }

    /// As after a fetch of the same body.
    #[test]
    fn a_dictionary_that_is_the_body_of_another_response_is_counted() {
        let memory = roomy_memory();
        let length = Stored::COMPACT + 1;
        let [hit, same] = [0, 1].map(|_| put(&memory, vec![b'x'; length]));
        let encoded = memory.encoded(&hit, 1, |_| true).expect("it may be");
        let weight = || {
            let stored = same.with_lifetime(same.lifetime());
            stored.with_encodings(encoded.clone()).weight()
        };
        let before = weight();
        let body = hit.separate_body().expect("it is in memory");
        encoded.bodies().use_as_dictionary(body);
        assert!(weight() >= before + allocated(length));
    }

    #[test]
    fn there_is_no_room_for_more_than_memory_can_hold_of_one_key() {
        let memory = memory();
        let made_for = encodings(&memory, &put(&memory, "a body"));
        let large = Bytes::from(vec![b'x'; 3 << 14]);
        assert!(!memory.attach(KEY, &made_for, BR, large));
        assert!(attach(&memory, &made_for, "small"));
        let made_for = encodings(&memory, &put(&memory, vec![b'x'; 10_000]));
        let encoded = Bytes::from(vec![b'x'; 30_000]);
        assert!(memory.attach(KEY, &made_for, BR, encoded));
        let body = memory.body_of(KEY, &made_for).expect("it is there");
        assert!(!memory.attach_dictionary(KEY, &made_for, &body));
        assert_eq!(made_for.bases().count(), 0);
    }
}
