//! What a stored body is in other codings: made once for it, in the background, and gone with it. No tier has
//! it: it is made again.

use std::mem;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use microcache_policy::compression::encoded_fields;
use microcache_policy::dictionaries::DictionaryHash;
use microcache_policy::{Coding, DictionaryCoding, FieldBlock, Fields, SentCoding};

use crate::stored::Stored;

/// One way to encode a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Making {
    /// As well as is done while somebody waits for nothing but the next request.
    Quickly(Coding),
    /// With Brotli, as well as can be done.
    Thoroughly,
}

impl Making {
    const NUMBER: usize = Coding::ALL.len() + 1;

    /// The coding that comes out.
    pub const fn coding(self) -> Coding {
        match self {
            Self::Quickly(coding) => coding,
            Self::Thoroughly => Coding::Brotli,
        }
    }

    const fn index(self) -> usize {
        match self {
            Self::Quickly(coding) => coding as usize,
            Self::Thoroughly => Coding::ALL.len(),
        }
    }
}

/// Something to be done with a body in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// To encode it for everybody.
    Encode(Making),
    /// To say by what it differs from each version that clients may have.
    Compare(DictionaryCoding),
}

impl Task {
    const fn bit(self) -> u8 {
        1 << match self {
            Self::Encode(making) => making.index(),
            Self::Compare(coding) => Making::NUMBER + coding as usize,
        }
    }
}

/// A body that clients may have.
#[derive(Debug)]
pub struct Version {
    body: Bytes,
    hash: OnceLock<DictionaryHash>,
}

impl Version {
    const fn new(body: Bytes) -> Self {
        let hash = OnceLock::new();
        Self { body, hash }
    }

    /// Its bytes.
    pub const fn body(&self) -> &Bytes {
        &self.body
    }

    /// Its hash, if it has been worked out.
    pub fn hash(&self) -> Option<&DictionaryHash> {
        self.hash.get()
    }

    /// Its hash, which is worked out once.
    pub fn hash_or(&self, hash: impl FnOnce(&[u8]) -> DictionaryHash) -> &DictionaryHash {
        self.hash.get_or_init(|| hash(&self.body))
    }
}

/// A version that clients may have, and by what another body differs from it.
#[derive(Debug)]
pub struct Base {
    version: Arc<Version>,
    /// Each once it has been made; empty if it was not worth it.
    differences: [OnceLock<Bytes>; DictionaryCoding::ALL.len()],
}

impl Base {
    fn of(version: Arc<Version>) -> Self {
        Self {
            version,
            differences: Default::default(),
        }
    }

    /// The version.
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// By what the body differs from it, if that has been made and was worth it.
    pub fn difference(&self, coding: DictionaryCoding) -> Option<&Bytes> {
        let difference = self.differences[coding as usize].get()?;
        (!difference.is_empty()).then_some(difference)
    }

    /// Keeps what was made; nothing if it was not worth it.
    pub(crate) fn put(&self, coding: DictionaryCoding, bytes: Bytes) {
        let _ = self.differences[coding as usize].set(bytes);
    }

    /// What it takes without the version's body.
    fn heap_size(&self) -> usize {
        let made = self.differences.iter().filter_map(OnceLock::get);
        size_of::<Self>() + size_of::<Version>() + made.map(Bytes::len).sum::<usize>()
    }
}

/// One body in other codings. Responses whose body is the same share it.
#[derive(Debug, Default)]
pub struct Encodings {
    /// The body itself, which is what most clients have while it is the latest, once anybody has asked by it.
    own: OnceLock<Box<Base>>,
    /// Earlier versions of the body, the latest first.
    earlier: Box<[Base]>,
    /// Each once it has been made; empty if it was not worth it.
    made: [OnceLock<Bytes>; Making::NUMBER],
    /// What somebody has been asked to do, or has done.
    claimed: AtomicU8,
    /// For so many versions, this one included, what differs is made unasked, by coding.
    expected: [AtomicU8; DictionaryCoding::ALL.len()],
}

impl Encodings {
    /// What differs is made unasked for so many versions after somebody has asked for it.
    const EXPECTED: u8 = 8;

    /// Those of a body that comes in the place of this one, as many earlier versions as there may be and as there
    /// is room for.
    pub fn after(before: &Stored, most: usize, room: u64) -> Self {
        let known = before.known_encoded().map(|encoded| &encoded.bodies);
        let own = known.and_then(|known| known.own.get());
        let own = own.map(|own| Arc::clone(&own.version));
        let latest = own.or_else(|| {
            let body = before.body.bytes()?.clone();
            Some(Arc::new(Version::new(body)))
        });
        let earlier = known.map_or(&[][..], |known| &known.earlier);
        let mut left = room;
        let bases = latest
            .into_iter()
            .chain(earlier.iter().map(|one| Arc::clone(&one.version)))
            .take(most)
            .map_while(|version| {
                // What differs takes at most a quarter more.
                let size = version.body.len() as u64;
                left = left.checked_sub(size + size / 4)?;
                Some(Base::of(version))
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

    /// The versions that clients may have, as far as they are known: the body itself first, then the latest.
    pub fn bases(&self) -> impl Iterator<Item = &Base> {
        let own = self.own.get().map(Box::as_ref);
        own.into_iter().chain(self.earlier.iter())
    }

    /// Makes the body itself known as one of them.
    pub fn know_itself(&self, body: &Bytes) {
        let own = || Box::new(Base::of(Arc::new(Version::new(body.clone()))));
        self.own.get_or_init(own);
    }

    /// Somebody has asked by what the body differs from a version.
    pub fn expect(&self, coding: DictionaryCoding) {
        let expected = &self.expected[coding as usize];
        if expected.load(Ordering::Relaxed) != Self::EXPECTED {
            expected.store(Self::EXPECTED, Ordering::Relaxed);
        }
    }

    /// Whether somebody may be expected to ask by what the body differs from a version.
    pub fn is_expected(&self, coding: DictionaryCoding) -> bool {
        self.expected(coding) > 0
    }

    fn expected(&self, coding: DictionaryCoding) -> u8 {
        self.expected[coding as usize].load(Ordering::Relaxed)
    }

    /// Whether the caller is the first to want it done.
    pub fn claim(&self, task: Task) -> bool {
        let bit = task.bit();
        // Mostly somebody was.
        self.claimed.load(Ordering::Relaxed) & bit == 0
            && self.claimed.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    /// It could not be done now: the next one who wants it may try again.
    pub fn give_up(&self, task: Task) {
        self.claimed.fetch_and(!task.bit(), Ordering::Relaxed);
    }

    /// Whether it was asked for.
    pub fn is_claimed(&self, task: Task) -> bool {
        self.claimed.load(Ordering::Relaxed) & task.bit() != 0
    }

    /// The body in a coding, as small as it was made, if that was worth it.
    pub fn body(&self, coding: Coding) -> Option<&Bytes> {
        let best = (coding == Coding::Brotli).then_some(Making::Thoroughly);
        let makings = best.into_iter().chain([Making::Quickly(coding)]);
        let mut made = makings.filter_map(|making| self.made[making.index()].get());
        made.find(|bytes| !bytes.is_empty())
    }

    /// Whether it was tried in this coding, and is not worth it.
    pub fn is_useless(&self, coding: Coding) -> bool {
        let made = self.made[Making::Quickly(coding).index()].get();
        made.is_some_and(Bytes::is_empty) && self.body(coding).is_none()
    }

    /// Keeps what was made; nothing if it was not worth it.
    pub(crate) fn put(&self, making: Making, bytes: Bytes) {
        let _ = self.made[making.index()].set(bytes);
    }

    fn heap_size(&self) -> usize {
        let made = self.made.iter().filter_map(OnceLock::get);
        let bodies = self.earlier.iter().map(|one| one.version.body.len());
        size_of::<Self>()
            + made.map(Bytes::len).sum::<usize>()
            + bodies.sum::<usize>()
            + self.bases().map(Base::heap_size).sum::<usize>()
    }
}

/// A stored response in other codings: bodies, and the heads that go with them.
#[derive(Debug)]
pub struct Encoded {
    bodies: Arc<Encodings>,
    heads: [OnceLock<FieldBlock>; SentCoding::ALL.len()],
}

impl Encoded {
    /// Of a response with this body, of which these are known.
    pub fn of(bodies: Arc<Encodings>) -> Self {
        Self {
            bodies,
            heads: Default::default(),
        }
    }

    /// The bodies.
    pub const fn bodies(&self) -> &Arc<Encodings> {
        &self.bodies
    }

    /// The head that goes with a body in this coding, of a response with these fields.
    pub fn head(&self, coding: SentCoding, stored: Fields<'_>) -> &FieldBlock {
        let head = || FieldBlock::from(encoded_fields(stored, coding.as_str()));
        self.heads[coding.index()].get_or_init(head)
    }

    /// What it takes beside the response, which has a head of so many bytes.
    pub(crate) fn heap_size(&self, head: usize) -> usize {
        let of_all = Coding::ALL
            .iter()
            .filter(|&&coding| self.bodies.body(coding).is_some());
        let of_bases = DictionaryCoding::ALL.iter().filter(|&&coding| {
            let mut bases = self.bodies.bases();
            bases.any(|base| base.difference(coding).is_some())
        });
        let heads = of_all.count() + of_bases.count();
        size_of::<Self>() + self.bodies.heap_size() + heads * (head + 32)
    }
}

/// The place for it in a stored response: empty until somebody asks for what may be there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place(OnceLock<Arc<Encoded>>);

impl Place {
    pub(crate) fn of(encoded: Encoded) -> Self {
        Self(OnceLock::from(Arc::new(encoded)))
    }

    /// What is there.
    pub(crate) fn known(&self) -> Option<&Encoded> {
        self.0.get().map(Arc::as_ref)
    }

    /// The same, from now on.
    pub(crate) fn get(&self) -> &Encoded {
        let begin = || Arc::new(Encoded::of(Arc::default()));
        self.0.get_or_init(begin)
    }

    pub(crate) fn heap_size(&self, head: usize) -> usize {
        self.known().map_or(0, |encoded| {
            encoded.heap_size(head) + 2 * mem::size_of::<usize>()
        })
    }
}

/// Whether there may be anything at its place, and by which settings that was decided; 0 before it was.
#[derive(Debug, Default)]
pub(crate) struct Decided(AtomicU32);

impl Decided {
    const MAY_BE: u32 = 1;
    const DECIDED: u32 = 2;

    /// Whether there may be by the settings of this number, of which all but the last two bits count. Whoever asks
    /// first by these says it.
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

impl Clone for Decided {
    fn clone(&self) -> Self {
        Self(AtomicU32::new(self.0.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use microcache_policy::{Lifetime, OriginView, Rules, Time, VaryNames};

    use super::*;
    use crate::content::Content;
    use crate::memory::{Hit, Memory, MemoryLimits, Revision};

    const BR: Making = Making::Quickly(Coding::Brotli);
    const DCZ: DictionaryCoding = DictionaryCoding::Dcz;

    #[test]
    fn each_is_claimed_once() {
        let encodings = Encodings::default();
        let [br, thorough] = [BR, Making::Thoroughly].map(Task::Encode);
        let [dcb, dcz] = DictionaryCoding::ALL.map(Task::Compare);
        for task in [br, thorough, dcb, dcz] {
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
        let encodings = Encodings::default();
        assert_eq!(encodings.body(Coding::Brotli), None);
        encodings.put(Making::Quickly(Coding::Gzip), Bytes::new());
        assert_eq!(encodings.body(Coding::Gzip), None);
        encodings.put(BR, Bytes::from_static(b"quick"));
        assert_eq!(encodings.body(Coding::Brotli).unwrap(), "quick");
        encodings.put(Making::Thoroughly, Bytes::new());
        assert_eq!(encodings.body(Coding::Brotli).unwrap(), "quick");
        assert_eq!(encodings.body(Coding::Gzip), None);
        assert!(encodings.is_useless(Coding::Gzip));
        assert!(!encodings.is_useless(Coding::Brotli) && !encodings.is_useless(Coding::Zstd));
    }

    #[test]
    fn all_of_it_is_counted() {
        let place = Place::default();
        assert_eq!(place.heap_size(100), 0);
        place.get();
        let empty = place.heap_size(100);
        let bodies = place.known().unwrap().bodies();
        bodies.put(BR, Bytes::from_static(b"0123456789"));
        assert_eq!(place.heap_size(100), empty + 10 + 132);
    }

    #[test]
    fn it_is_decided_once_by_the_same_settings() {
        let decided = Decided::default();
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

    fn put(memory: &Memory, body: &'static str) -> Hit {
        let rules = Rules::default();
        let request = OriginView {
            fields: Fields::default(),
            rules: &rules,
            address: "",
            vouched: false,
        };
        let lifetime = Lifetime::from_bytes(&[0; Lifetime::ENCODED_LEN]).expect("zeros are one");
        let body = Content::from(Bytes::from_static(body.as_bytes()));
        let (vary, fields) = (VaryNames::default(), Fields::default());
        let stored = Stored::new(200, fields, body, lifetime, vary, b"", Time::default());
        let kept = memory.put(&KEY.into(), stored, &request, Time::default());
        kept.expect("it is small")
    }

    fn encodings(hit: &Hit) -> Arc<Encodings> {
        Arc::clone(hit.encoded(1, |_| true).expect("it may be").bodies())
    }

    fn attach(memory: &Memory, to: &Arc<Encodings>, body: &'static str) -> bool {
        memory.attach(&KEY.into(), to, BR, Bytes::from_static(body.as_bytes()))
    }

    #[test]
    fn other_settings_decide_anew_and_what_was_made_stays() {
        let (memory, [loose, strict]) = (memory(), [4, 8]);
        let hit = put(&memory, "a body");
        let without = hit.heap_size();
        assert!(hit.encoded(strict, |_| false).is_none());
        assert_eq!(hit.heap_size(), without);
        let encoded = hit.encoded(loose, |_| true).expect("it may be");
        encoded.bodies().put(BR, Bytes::from_static(b"small"));
        assert!(hit.encoded(strict, |_| false).is_none());
        let encoded = hit.encoded(loose, |_| true).expect("it may be again");
        assert_eq!(encoded.bodies().body(Coding::Brotli).unwrap(), "small");
    }

    #[test]
    fn what_was_made_is_kept_with_the_response_and_counted() {
        let memory = memory();
        let hit = put(&memory, "a body");
        let made_for = encodings(&hit);
        assert_eq!(memory.body_of(KEY, &made_for).unwrap(), "a body");
        let before = memory.stats().bytes;
        assert!(attach(&memory, &made_for, "small"));
        assert_eq!(made_for.body(Coding::Brotli).unwrap(), "small");
        assert!(memory.stats().bytes >= before + 5);
        // An operator's purge may leave it stale; its body is the same.
        memory.revise(&KEY.into(), |_| Revision::Expire(Time::default()));
        assert!(attach(&memory, &made_for, "again"));
        assert_eq!(made_for.body(Coding::Brotli).unwrap(), "small", "once");
    }

    #[test]
    fn what_was_made_of_a_response_that_has_left_is_not_kept() {
        let memory = memory();
        let old = encodings(&put(&memory, "a body"));
        assert!(memory.remove(KEY));
        assert_eq!(memory.body_of(KEY, &old), None);
        assert!(!attach(&memory, &old, "small"));
        assert_eq!(old.body(Coding::Brotli), None);
        // And not with the one that has come in its place, be its body the same.
        let new = put(&memory, "a body");
        let made_for = encodings(&new);
        assert!(!attach(&memory, &old, "small"));
        assert_eq!(memory.body_of(KEY, &old), None);
        assert_eq!(made_for.body(Coding::Brotli), None);
        let newer = encodings(&put(&memory, "another body"));
        assert!(!attach(&memory, &made_for, "small"));
        assert!(attach(&memory, &newer, "small"));
    }

    #[test]
    fn earlier_versions_are_kept_as_far_as_there_is_room() {
        let memory = memory();
        let bodies = ["first body", "second body", "third body"];
        let mut before = put(&memory, "zeroth body");
        for body in bodies {
            let encodings = Encodings::after(&before, 2, 1000);
            let encoded = Encoded::of(Arc::new(encodings));
            let hit = put(&memory, body);
            before = Memory::hold(hit.with_lifetime(hit.lifetime).with_encodings(encoded));
        }
        let kept = |encodings: &Encodings| -> Vec<Bytes> {
            let versions = encodings.bases().map(Base::version);
            versions.map(|version| version.body().clone()).collect()
        };
        let encoded = before.known_encoded().unwrap();
        assert_eq!(kept(encoded.bodies()), ["second body", "first body"]);
        assert!(before.heap_size() > before.own_size() + 20);
        assert_eq!(
            kept(&Encodings::after(&before, 8, 26)),
            ["third body", "second body"]
        );
        assert_eq!(kept(&Encodings::after(&before, 8, 11)), [""; 0]);
        // Each is named once, whoever asks, and keeps its name.
        let bodies = encoded.bodies();
        bodies.know_itself(before.body.bytes().unwrap());
        let names = || bodies.bases().map(|base| base.version().hash().copied());
        assert_eq!(names().collect::<Vec<_>>(), [None; 3]);
        for (base, name) in bodies.bases().zip([[1; 32], [2; 32], [3; 32]]) {
            assert_eq!(base.version().hash_or(|_| name), &name);
            assert_eq!(base.version().hash_or(|_| [9; 32]), &name);
        }
        let after = Encodings::after(&before, 2, 1000);
        assert_eq!(kept(&after), ["third body", "second body"]);
        let names: Vec<_> = after.bases().map(|base| base.version().hash()).collect();
        assert_eq!(names, [Some(&[1; 32]), Some(&[2; 32])]);
    }

    #[test]
    fn what_differs_is_expected_for_as_many_versions_as_are_remembered() {
        let memory = memory();
        let mut before = put(&memory, "a body");
        let other = DictionaryCoding::Dcb;
        encodings(&before).expect(DCZ);
        let mut versions = 0;
        while encodings(&before).is_expected(DCZ) {
            assert!(!encodings(&before).is_expected(other));
            let after = Encodings::after(&before, 8, 1000);
            let encoded = Encoded::of(Arc::new(after));
            let stored = before.with_lifetime(before.lifetime);
            before = Memory::hold(stored.with_encodings(encoded));
            versions += 1;
        }
        assert_eq!(versions, 8);
    }

    #[test]
    fn what_differs_is_kept_with_the_response_and_counted() {
        let memory = memory();
        let made_for = encodings(&put(&memory, "a body"));
        made_for.know_itself(&Bytes::from_static(b"a body"));
        let base = made_for.bases().next().unwrap();
        let before = memory.stats().bytes;
        let attach = |bytes: &'static [u8]| {
            let bytes = Bytes::from_static(bytes);
            memory.attach_difference(&KEY.into(), &made_for, base, DCZ, bytes)
        };
        assert!(attach(b"a difference"));
        assert_eq!(base.difference(DCZ).unwrap(), "a difference");
        assert_eq!(base.difference(DictionaryCoding::Dcb), None);
        assert!(memory.stats().bytes >= before + 12);
        assert!(memory.remove(KEY));
        assert!(!attach(b"a difference"));
    }

    #[test]
    fn there_is_no_room_for_more_than_memory_can_hold_of_one_key() {
        let memory = memory();
        let made_for = encodings(&put(&memory, "a body"));
        let large = Bytes::from(vec![b'x'; 3 << 14]);
        assert!(!memory.attach(&KEY.into(), &made_for, BR, large));
        assert!(attach(&memory, &made_for, "small"));
    }
}
