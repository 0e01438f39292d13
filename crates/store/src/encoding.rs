//! Encoding of stored responses for tiers: a head with everything but the body, and the body.
//!
//! The head consists of a fixed part, then key, Vary names, selection, fields and tags. It contains length
//! and checksum of the body, and a checksum of itself.

use bytes::Bytes;
use microcache_policy::vary::VaryNames;
use microcache_policy::{FieldBlock, Lifetime, Time};
use xxhash_rust::xxh3::xxh3_64;

pub use crate::checksum::checksum;
use crate::clock::Epoch;
use crate::content::Content;
use crate::eviction::FetchCost;
use crate::log_position::{LOG_COPIES, LogPositions};
use crate::stored::Stored;
use crate::tags::TagNumbers;
use crate::tier::ListEntry;

const MAGIC: [u8; 4] = *b"MCS\x03";
/// Format with one more number: a position in the second copy of the purge log.
const MAGIC_OF_TWO: [u8; 4] = *b"MCS\x04";
/// Format with two more numbers: the boot id, and the offset from its dates to the uptime.
const MAGIC_OF_BOOT: [u8; 4] = *b"MCS\x05";
/// Format with one more number: the cost of the fetch.
const MAGIC_OF_COST: [u8; 4] = *b"MCS\x06";
const NUMBERS: usize = 8;
const PARTS: usize = 5;
/// Length of the fixed part without its numbers.
const FIXED: usize = 4 + 2 + Lifetime::ENCODED_LEN + PARTS * 4 + 8;
/// Status of a record that contains the Vary names of a key.
const VARIES: u16 = 0;
/// Status of a record that marks the responses of a key as not storable.
const UNSTORABLE: u16 = 1;

/// Reasons why bytes are not a valid record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Other magic number or version.
    #[error("not a stored response of this version")]
    Version,
    /// The lengths in the head do not add up.
    #[error("length mismatch")]
    Length,
    /// A checksum does not match.
    #[error("checksum mismatch")]
    Checksum,
    /// A value is out of range.
    #[error("value out of range")]
    Value,
}

/// Record of a tier.
#[derive(Debug)]
pub enum TierRecord {
    /// Stored response.
    Response(Stored),
    /// Vary names of the key: its responses are stored under ids of their own.
    Varies(VaryRecord),
    /// The latest response of the origin was not storable, so waiting for another process to store one is
    /// pointless.
    Unstorable,
}

/// Vary names of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VaryRecord {
    /// Request field names.
    pub names: VaryNames,
    /// Part of the variants' ids. Purging this record makes them unreachable, since the next one gets
    /// another generation.
    pub generation: u64,
    /// Time of the request whose response brought the names.
    pub began: Time,
    /// Expiry of the record, extended by variants that live longer.
    pub until: Time,
}

/// Decoded head, before its body is available.
#[derive(Debug)]
pub struct RecordHead {
    /// Cache key.
    pub key: Bytes,
    /// Length of the body, in bytes.
    pub body_len: u64,
    /// Status code.
    pub status: u16,
    /// Freshness lifetime and age.
    pub lifetime: Lifetime,
    /// Vary names.
    pub vary: VaryNames,
    /// Values of these request fields.
    pub selection: Bytes,
    /// Header fields.
    pub fields: FieldBlock,
    /// Time of the request.
    pub began: Time,
    /// Expiry of a Vary record; see [`VaryRecord::until`].
    until: Time,
    pub(crate) body_sum: u64,
    /// Surrogate keys, for purges by tag.
    pub tags: TagNumbers,
    cost: FetchCost,
    /// Log positions of a response, see [`Stored::purges_known`]; for a Vary record, the first one is its
    /// generation.
    numbers: LogPositions,
}

/// Encodes the head of a response whose body has this length and [`checksum`]. Times are stored as dates.
pub fn encode(
    key: &[u8],
    stored: &Stored,
    (body_len, body_sum): (u64, u64),
    epoch: Epoch,
) -> Bytes {
    let received = epoch.date_of(stored.lifetime().response_time());
    let lifetime = stored.lifetime().received_at(received).to_bytes();
    let tags = stored.tags().to_bytes();
    let parts = [
        key,
        stored.vary().as_bytes(),
        stored.selection(),
        stored.fields().as_block(),
        &tags,
    ];
    let began = epoch.date_of(stored.began()).as_millis();
    let [first, second] = stored.purges_known();
    let [boot, uptime] = epoch.to_numbers();
    let cost = u64::from(stored.cost().to_byte());
    let numbers = [body_len, body_sum, began, first, second, boot, uptime, cost];
    assemble(stored.status(), numbers, lifetime, parts)
}

/// Encodes a Vary record, which has no body.
pub fn encode_varies(key: &[u8], varies: &VaryRecord, epoch: Epoch) -> Bytes {
    let began = epoch.date_of(varies.began).as_millis();
    let [boot, uptime] = epoch.to_numbers();
    let (empty, generation) = (checksum(&[]), varies.generation);
    let numbers = [0, empty, began, generation, 0, boot, uptime, 0];
    // The selection is unused here and holds the expiry.
    let until = epoch.date_of(varies.until).as_millis().to_le_bytes();
    let parts = [key, varies.names.as_bytes(), &until, &[], &[]];
    assemble(VARIES, numbers, [0; Lifetime::ENCODED_LEN], parts)
}

/// Encodes a record that marks the responses of a key as not storable. It has no body.
pub fn encode_unstorable(key: &[u8]) -> Bytes {
    let numbers = [0, checksum(&[]), 0, 0, 0, 0, 0, 0];
    let parts = [key, &[], &[], &[], &[]];
    assemble(UNSTORABLE, numbers, [0; Lifetime::ENCODED_LEN], parts)
}

fn assemble(
    status: u16,
    numbers: [u64; NUMBERS],
    lifetime: [u8; Lifetime::ENCODED_LEN],
    parts: [&[u8]; PARTS],
) -> Bytes {
    let room = FIXED + NUMBERS * 8 + parts.iter().map(|part| part.len()).sum::<usize>();
    let mut out = Vec::with_capacity(room);
    // The shortest form that fits: most shared tiers have one copy of the log, and earlier versions know
    // only that form. So shared tiers do not keep the cost.
    let (magic, numbers) = match numbers {
        [.., 0, 0, _, _] => (MAGIC, &numbers[..4]),
        [.., 0, _, _] => (MAGIC_OF_TWO, &numbers[..5]),
        [.., 0] => (MAGIC_OF_BOOT, &numbers[..7]),
        _ => (MAGIC_OF_COST, &numbers[..]),
    };
    out.extend_from_slice(&magic);
    out.extend_from_slice(&status.to_le_bytes());
    for number in numbers {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&lifetime);
    for part in parts {
        out.extend_from_slice(&(part.len() as u32).to_le_bytes());
    }
    let checksum_at = out.len();
    out.extend_from_slice(&[0; 8]);
    for part in parts {
        out.extend_from_slice(part);
    }
    let sum = head_checksum(&out[..checksum_at], &out[checksum_at + 8..]);
    out[checksum_at..checksum_at + 8].copy_from_slice(&sum.to_le_bytes());
    out.into()
}

/// Returns the cost in an encoded head, which is not verified.
pub(crate) fn cost_in(head: &[u8]) -> FetchCost {
    const LAST_NUMBER: usize = 4 + 2 + (NUMBERS - 1) * 8;
    match head.get(LAST_NUMBER) {
        Some(&cost) if head.starts_with(&MAGIC_OF_COST) => FetchCost::from_byte(cost),
        _ => FetchCost::default(),
    }
}

impl RecordHead {
    /// Decodes a head.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are not a valid head.
    pub fn decode(bytes: &Bytes) -> Result<Self, DecodeError> {
        Self::decode_in(bytes, Epoch::now())
    }

    /// Decodes a head whose timestamps have this reference.
    pub(crate) fn decode_in(bytes: &Bytes, epoch: Epoch) -> Result<Self, DecodeError> {
        let mut rest = &bytes[..];
        let count = match take(&mut rest)? {
            MAGIC => 4,
            MAGIC_OF_TWO => 5,
            MAGIC_OF_BOOT => 7,
            MAGIC_OF_COST => NUMBERS,
            _ => return Err(DecodeError::Version),
        };
        let status = u16::from_le_bytes(take(&mut rest)?);
        let mut numbers = [0; NUMBERS];
        for number in &mut numbers[..count] {
            *number = u64::from_le_bytes(take(&mut rest)?);
        }
        let [body_len, body_sum, began, first, second, boot, uptime, cost] = numbers;
        let lifetime: [u8; Lifetime::ENCODED_LEN] = take(&mut rest)?;
        let mut lengths = [0usize; PARTS];
        for length in &mut lengths {
            *length = u32::from_le_bytes(take(&mut rest)?) as usize;
        }
        let checksum_at = bytes.len() - rest.len();
        let sum = u64::from_le_bytes(take(&mut rest)?);
        if rest.len() != lengths.iter().sum::<usize>() {
            return Err(DecodeError::Length);
        }
        if head_checksum(&bytes[..checksum_at], rest) != sum {
            return Err(DecodeError::Checksum);
        }
        let mut parts = bytes.slice(FIXED + count * 8..);
        let [key, vary, selection, fields, tags] = lengths.map(|length| parts.split_to(length));
        // A checksum does not prove the origin: another program may have written to a shared tier.
        if !matches!(status, VARIES | UNSTORABLE | 200..=599) {
            return Err(DecodeError::Value);
        }
        let moment = |date| epoch.moment(date, [boot, uptime]);
        let lifetime = Lifetime::from_bytes(&lifetime).ok_or(DecodeError::Value)?;
        let until = match selection.first_chunk() {
            Some(until) if status == VARIES => {
                moment(Time::from_millis(u64::from_le_bytes(*until)))
            }
            _ => Time::default(),
        };
        Ok(Self {
            key,
            body_len,
            body_sum,
            status,
            lifetime: lifetime.received_at(moment(lifetime.response_time())),
            vary: VaryNames::from_bytes(&vary).ok_or(DecodeError::Value)?,
            selection,
            fields: FieldBlock::of_stored(fields).ok_or(DecodeError::Value)?,
            tags: TagNumbers::from_bytes(&tags).ok_or(DecodeError::Value)?,
            cost: FetchCost::from_byte(u8::try_from(cost).map_err(|_| DecodeError::Value)?),
            numbers: [first, second],
            began: moment(Time::from_millis(began)),
            until,
        })
    }

    /// Log positions up to which purges are known; see [`Stored::purges_known`].
    pub const fn purges_known(&self) -> LogPositions {
        if self.is_response() {
            self.numbers
        } else {
            [0; LOG_COPIES]
        }
    }

    /// Returns whether it is the head of a response.
    pub const fn is_response(&self) -> bool {
        self.status >= 200
    }

    /// Combines the head with its body. A body in memory is verified now, one in a file block by block on
    /// reads.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if length or checksum do not match, or the file is known to be damaged.
    pub fn with_body(self, body: Content) -> Result<TierRecord, DecodeError> {
        let is_right = match &body {
            _ if body.len() != self.body_len => return Err(DecodeError::Length),
            Content::Bytes(bytes) => checksum(bytes) == self.body_sum,
            Content::File(file) => !file.is_damaged(),
            Content::Weak(_) => false,
        };
        if is_right {
            self.with_checked_body(body)
        } else {
            Err(DecodeError::Checksum)
        }
    }

    /// Combines the head with a body that the tier has already verified.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Length`] if the length does not match.
    pub fn with_checked_body(self, body: Content) -> Result<TierRecord, DecodeError> {
        if body.len() != self.body_len {
            return Err(DecodeError::Length);
        }
        let purges_known = self.purges_known();
        if self.status == UNSTORABLE {
            return Ok(TierRecord::Unstorable);
        }
        if self.status == VARIES {
            return Ok(TierRecord::Varies(VaryRecord {
                names: self.vary,
                generation: self.numbers[0],
                began: self.began,
                until: self.until,
            }));
        }
        let stored = Stored::new(
            &self.key,
            self.status,
            self.fields.fields(),
            body,
            self.lifetime,
            self.began,
        );
        let stored = stored
            .with_vary(self.vary, &self.selection)
            .with_tags(self.tags)
            .with_cost(self.cost)
            .with_purges_known(purges_known);
        Ok(TierRecord::Response(stored))
    }
}

impl ListEntry {
    /// Decodes the head of a response; `None` for other records and damaged ones.
    pub fn response(&self) -> Option<RecordHead> {
        let head = RecordHead::decode(&self.head).ok();
        head.filter(RecordHead::is_response)
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], DecodeError> {
    let (first, after) = rest.split_first_chunk().ok_or(DecodeError::Length)?;
    *rest = after;
    Ok(*first)
}

fn head_checksum(fixed: &[u8], parts: &[u8]) -> u64 {
    xxh3_64(fixed) ^ xxh3_64(parts).rotate_left(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use microcache_policy::Fields;
    use proptest::prelude::*;

    fn stored(fields: &[u8], body: Vec<u8>, selection: &[u8]) -> Stored {
        Stored::new(
            b"",
            200,
            Fields::new(fields),
            Content::Bytes(body.into()),
            Lifetime::from_bytes(&[0; Lifetime::ENCODED_LEN]).expect("all zeros is a lifetime"),
            Time::from_secs(7),
        )
        .with_vary(VaryNames::default(), selection)
    }

    fn body(stored: &Stored) -> Bytes {
        stored.shared_body().expect("it is in memory")
    }

    #[test]
    fn only_where_there_are_two_copies_of_the_log_is_the_form_another() {
        for (known, magic) in [([0, 0], MAGIC), ([7, 0], MAGIC), ([7, 9], MAGIC_OF_TWO)] {
            let stored = stored(b"a: b\r\n", b"body".to_vec(), b"").with_purges_known(known);
            let bytes = encoded(&stored, b"key");
            assert!(bytes.starts_with(&magic));
            let head = RecordHead::decode(&bytes).expect("it is one");
            assert_eq!((head.purges_known(), &head.key[..]), (known, &b"key"[..]));
            for length in 0..bytes.len() {
                assert!(RecordHead::decode(&bytes.slice(..length)).is_err());
            }
        }
    }

    fn encoded(stored: &Stored, key: &[u8]) -> Bytes {
        let body = body(stored);
        let sums = (body.len() as u64, checksum(&body));
        encode(key, stored, sums, Epoch::default())
    }

    #[test]
    fn times_survive_a_clock_that_is_set_on_the_same_boot() {
        let (boot, off) = (Epoch::now(), Time::from_secs(9_000_000));
        let lifetime = Lifetime::from_bytes(&[0; Lifetime::ENCODED_LEN]).expect("zeros are one");
        let fields = Fields::new(b"a: b\r\n");
        let body = Content::from(Bytes::from_static(b"body"));
        let stored = Stored::new(b"", 200, fields, body, lifetime.received_at(off), off);
        let head = |epoch: Epoch| encode(b"key", &stored, (4, checksum(b"body")), epoch);
        for set_by in [0, 7_200_000, -7_200_000] {
            let bytes = head(boot.set_by(set_by));
            let here = RecordHead::decode_in(&bytes, boot).expect("a head");
            assert_eq!((here.began, here.lifetime.response_time()), (off, off));
            for length in 0..bytes.len() {
                assert!(RecordHead::decode(&bytes.slice(..length)).is_err());
            }
            // Another machine uses the date alone.
            let bytes = head(boot.set_by(set_by).anywhere());
            assert!(bytes.starts_with(&MAGIC));
            let elsewhere = RecordHead::decode_in(&bytes, boot).expect("a head");
            assert_eq!(elsewhere.began, off.shifted(set_by));
        }
    }

    #[test]
    fn the_cost_is_kept_on_the_same_machine() {
        for (cost, epoch, magic) in [
            (200, Epoch::now(), MAGIC_OF_COST),
            (0, Epoch::now(), MAGIC_OF_BOOT),
            (200, Epoch::now().anywhere(), MAGIC),
        ] {
            let cost = FetchCost::from_byte(cost);
            let stored = stored(b"a: b\r\n", b"body".to_vec(), b"").with_cost(cost);
            let bytes = encode(b"key", &stored, (4, checksum(b"body")), epoch);
            assert!(bytes.starts_with(&magic));
            let head = RecordHead::decode(&bytes).expect("a head");
            let Ok(TierRecord::Response(read)) = head.with_body(stored.content()) else {
                panic!("not a response");
            };
            let kept = if magic == MAGIC {
                FetchCost::default()
            } else {
                cost
            };
            assert_eq!((read.cost(), cost_in(&bytes)), (kept, kept));
            for length in 0..bytes.len() {
                assert!(RecordHead::decode(&bytes.slice(..length)).is_err());
            }
        }
    }

    #[test]
    fn a_foreign_version_is_distinguished() {
        let mut bytes = encoded(&stored(b"A: b\r\n", b"body".to_vec(), b""), b"key").to_vec();
        bytes[3] = 9;
        assert_eq!(
            RecordHead::decode(&bytes.into()).err(),
            Some(DecodeError::Version)
        );
    }

    #[test]
    fn the_vary_names_of_a_key_are_read_back() {
        let varies = VaryRecord {
            names: VaryNames::default(),
            generation: 42,
            began: Time::from_secs(7),
            until: Time::from_secs(8),
        };
        let head = RecordHead::decode(&encode_varies(b"key", &varies, Epoch::now())).unwrap();
        assert_eq!(head.key, &b"key"[..]);
        match head.with_body(Content::default()) {
            Ok(TierRecord::Varies(read)) => assert_eq!(read, varies),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_empty_record_is_read_back() {
        let head = RecordHead::decode(&encode_unstorable(b"key")).expect("a head");
        assert!(head.key == b"key"[..] && !head.is_response());
        let record = head.with_body(Content::default());
        assert!(matches!(record, Ok(TierRecord::Unstorable)), "{record:?}");
    }

    #[test]
    fn fields_that_would_break_a_head_are_refused() {
        for bad in [
            &b"A: b"[..],
            b"A: b\r\n\r\n",
            b"A: b\rc\r\n",
            b"A: b\nC: d\r\n",
            b"A: b\r\n c: d\r\n",
            b"A : b\r\n",
            b"A: \0\r\n",
            b": b\r\n",
            b"A\r\n",
            b"Content-Length: 5\r\n",
            b"transfer-encoding: chunked\r\n",
            b"Connection: close\r\n",
        ] {
            let bytes = encoded(&stored(bad, vec![], b""), b"key");
            assert_eq!(
                RecordHead::decode(&bytes).err(),
                Some(DecodeError::Value),
                "{}",
                bad.escape_ascii()
            );
        }
    }

    #[test]
    fn another_body_is_noticed() {
        let bytes = encoded(&stored(b"", b"body".to_vec(), b""), b"key");
        for (other, why) in [
            (&b"bodi"[..], DecodeError::Checksum),
            (b"bod", DecodeError::Length),
        ] {
            let head = RecordHead::decode(&bytes).unwrap();
            let content = Content::Bytes(Bytes::from_static(other));
            assert_eq!(head.with_body(content).err(), Some(why));
        }
    }

    proptest! {
        #[test]
        fn encoding_is_the_identity(body_bytes in proptest::collection::vec(any::<u8>(), 0..40_000), key in proptest::collection::vec(any::<u8>(), 0..300), selection in proptest::collection::vec(any::<u8>(), 0..50)) {
            let one = stored(b"A: b\r\nC: d\r\n", body_bytes, &selection);
            let head = RecordHead::decode(&encoded(&one, &key)).unwrap();
            prop_assert_eq!(&head.key[..], &key[..]);
            let Ok(TierRecord::Response(two)) = head.with_body(one.content()) else {
                return Err(TestCaseError::fail("not a response"));
            };
            prop_assert_eq!(one.fields(), two.fields());
            prop_assert_eq!(body(&one), body(&two));
            prop_assert_eq!(one.selection(), two.selection());
            prop_assert_eq!(one.lifetime(), two.lifetime());
            prop_assert_eq!(one.began(), two.began());
        }

        #[test]
        fn any_flipped_bit_is_noticed(at in any::<proptest::sample::Index>(), bit in 0..8u8) {
            let mut bytes = encoded(&stored(b"A: b\r\n", b"the body".to_vec(), b"sel"), b"key").to_vec();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(RecordHead::decode(&bytes.into()).is_err());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = RecordHead::decode(&bytes.into());
        }
    }
}
