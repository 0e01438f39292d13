//! The one encoding of what a tier keeps: a head that says everything but the body, and the body.
//!
//! A fixed part, then key, vary, selection, fields and tags. The head carries the body's length and
//! checksum, and a checksum over itself.

use bytes::Bytes;
use microcache_policy::vary::VaryNames;
use microcache_policy::{FieldBlock, Lifetime, Time};
use xxhash_rust::xxh3::xxh3_64;

use crate::clock::Epoch;
use crate::content::Content;
use crate::stored::Stored;
use crate::tags::TagNumbers;
use crate::tier::{LOG_COPIES, LogPositions};

const MAGIC: [u8; 4] = *b"MCS\x03";
/// The same with one number more: a position in the second copy of the log of purges.
const MAGIC_OF_TWO: [u8; 4] = *b"MCS\x04";
/// The same with two more: a boot of the machine, and what leads from its dates to the uptime.
const MAGIC_OF_BOOT: [u8; 4] = *b"MCS\x05";
const NUMBERS: usize = 7;
const PARTS: usize = 5;
/// The fixed part, but for its numbers.
const FIXED: usize = 4 + 2 + Lifetime::ENCODED_LEN + PARTS * 4 + 8;
/// Stands where a status would, in the record that says what a key varies on.
const VARIES: u16 = 0;
/// The same, in the record that says that the responses of a key are not stored.
const UNSTORABLE: u16 = 1;

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Corrupt {
    /// It starts with something else, or another version.
    #[error("not a stored response of this version")]
    Version,
    /// The lengths in the head and the number of bytes disagree.
    #[error("truncated, or with bytes to spare")]
    Length,
    /// A checksum does not match.
    #[error("checksum mismatch")]
    Checksum,
    /// A value is out of its range.
    #[error("impossible value")]
    Value,
}

/// What a tier keeps under one id.
#[derive(Debug)]
pub enum Record {
    /// A response.
    Response(Box<Stored>),
    /// Responses of this key differ by request fields, and have ids of their own.
    Varies(Varies),
    /// What the origin has answered a moment ago could not be stored: nobody need wait for another to bring it.
    Unstorable,
}

/// What the responses of a key vary on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Varies {
    /// The request fields.
    pub names: VaryNames,
    /// Part of the variants' ids. When this record is purged, so are they: the next one has
    /// another number.
    pub generation: u64,
    /// When the request was sent that brought it.
    pub began: Time,
    /// How long the record is kept. Variants that are to be found for longer have it renewed.
    pub until: Time,
}

/// What a head says, before its body is there.
#[derive(Debug)]
pub struct Head {
    /// The key it is stored under.
    pub key: Bytes,
    /// The length of the body that belongs to it.
    pub body_len: u64,
    /// The status code.
    pub status: u16,
    /// How long it may be used.
    pub lifetime: Lifetime,
    /// The request fields that select it.
    pub vary: VaryNames,
    /// What they said.
    pub selection: Bytes,
    /// The field lines.
    pub fields: FieldBlock,
    /// When the request was sent that brought it.
    pub began: Time,
    /// Of what a key varies on: see [`Varies::until`].
    until: Time,
    pub(crate) body_sum: u64,
    /// By what it may be purged together with others.
    pub tags: TagNumbers,
    /// A response's: see [`Stored::purges_known`]. The first of what a key varies on: its generation.
    numbers: LogPositions,
}

/// The head of a response whose body has this length and [`checksum`]. Times are written as dates.
pub fn encode(
    key: &[u8],
    stored: &Stored,
    (body_len, body_sum): (u64, u64),
    epoch: Epoch,
) -> Bytes {
    let received = epoch.date_of(stored.lifetime.response_time());
    let lifetime = stored.lifetime.received_at(received).to_bytes();
    let tags = stored.tags.to_bytes();
    let parts = [
        key,
        stored.vary().as_bytes(),
        stored.selection(),
        stored.fields().as_block(),
        &tags,
    ];
    let began = epoch.date_of(stored.began).as_millis();
    let [first, second] = stored.purges_known();
    let [boot, uptime] = epoch.to_numbers();
    let numbers = [body_len, body_sum, began, first, second, boot, uptime];
    assemble(stored.status, numbers, lifetime, parts)
}

/// The record that says what a key varies on. It has no body.
pub fn encode_varies(key: &[u8], varies: &Varies, epoch: Epoch) -> Bytes {
    let began = epoch.date_of(varies.began).as_millis();
    let [boot, uptime] = epoch.to_numbers();
    let (empty, generation) = (checksum(&[]), varies.generation);
    let numbers = [0, empty, began, generation, 0, boot, uptime];
    // It has no selection of its own.
    let until = epoch.date_of(varies.until).as_millis().to_le_bytes();
    let parts = [key, varies.names.as_bytes(), &until, &[], &[]];
    assemble(VARIES, numbers, [0; Lifetime::ENCODED_LEN], parts)
}

/// The record that says that what answers a key could not be stored. It has no body.
pub fn encode_unstorable(key: &[u8]) -> Bytes {
    let numbers = [0, checksum(&[]), 0, 0, 0, 0, 0];
    let parts = [key, &[], &[], &[], &[]];
    assemble(UNSTORABLE, numbers, [0; Lifetime::ENCODED_LEN], parts)
}

/// The checksum of a body.
pub fn checksum(body: &[u8]) -> u64 {
    xxh3_64(body)
}

fn assemble(
    status: u16,
    numbers: [u64; NUMBERS],
    lifetime: [u8; Lifetime::ENCODED_LEN],
    parts: [&[u8]; PARTS],
) -> Bytes {
    let room = FIXED + NUMBERS * 8 + parts.iter().map(|part| part.len()).sum::<usize>();
    let mut out = Vec::with_capacity(room);
    // Most tiers that machines share keep one copy of the log, and processes from before know no other
    // form.
    let (magic, numbers) = match numbers {
        [.., 0, 0, _] => (MAGIC, &numbers[..4]),
        [.., 0, _] => (MAGIC_OF_TWO, &numbers[..5]),
        _ => (MAGIC_OF_BOOT, &numbers[..]),
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

impl Head {
    /// Reads a head.
    pub fn decode(bytes: &Bytes) -> Result<Self, Corrupt> {
        Self::decode_in(bytes, Epoch::now())
    }

    fn decode_in(bytes: &Bytes, epoch: Epoch) -> Result<Self, Corrupt> {
        let mut rest = &bytes[..];
        let count = match take(&mut rest)? {
            MAGIC => 4,
            MAGIC_OF_TWO => 5,
            MAGIC_OF_BOOT => NUMBERS,
            _ => return Err(Corrupt::Version),
        };
        let status = u16::from_le_bytes(take(&mut rest)?);
        let mut numbers = [0; NUMBERS];
        for number in &mut numbers[..count] {
            *number = u64::from_le_bytes(take(&mut rest)?);
        }
        let [body_len, body_sum, began, first, second, boot, uptime] = numbers;
        let lifetime: [u8; Lifetime::ENCODED_LEN] = take(&mut rest)?;
        let mut lengths = [0usize; PARTS];
        for length in &mut lengths {
            *length = u32::from_le_bytes(take(&mut rest)?) as usize;
        }
        let checksum_at = bytes.len() - rest.len();
        let sum = u64::from_le_bytes(take(&mut rest)?);
        if rest.len() != lengths.iter().sum::<usize>() {
            return Err(Corrupt::Length);
        }
        if head_checksum(&bytes[..checksum_at], rest) != sum {
            return Err(Corrupt::Checksum);
        }
        let mut parts = bytes.slice(FIXED + count * 8..);
        let [key, vary, selection, fields, tags] = lengths.map(|length| parts.split_to(length));
        // A checksum is no proof of origin: a shared tier may hold what somebody else wrote.
        if !matches!(status, VARIES | UNSTORABLE | 200..=599) {
            return Err(Corrupt::Value);
        }
        let moment = |date| epoch.moment(date, [boot, uptime]);
        let lifetime = Lifetime::from_bytes(&lifetime).ok_or(Corrupt::Value)?;
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
            vary: VaryNames::from_bytes(&vary).ok_or(Corrupt::Value)?,
            selection,
            fields: FieldBlock::of_stored(fields).ok_or(Corrupt::Value)?,
            tags: TagNumbers::from_bytes(&tags).ok_or(Corrupt::Value)?,
            numbers: [first, second],
            began: moment(Time::from_millis(began)),
            until,
        })
    }

    /// Of the log of purges that processes share: see [`Stored::purges_known`].
    pub const fn purges_known(&self) -> LogPositions {
        if self.is_response() {
            self.numbers
        } else {
            [0; LOG_COPIES]
        }
    }

    /// Whether it is a response's.
    pub const fn is_response(&self) -> bool {
        self.status >= 200
    }

    /// The record, once its body is there. A body in memory is checked; one in a file checks what
    /// is read of it, and is refused once that was wrong.
    pub fn with_body(self, body: Content) -> Result<Record, Corrupt> {
        let is_right = match &body {
            _ if body.len() != self.body_len => return Err(Corrupt::Length),
            Content::Bytes(bytes) => checksum(bytes) == self.body_sum,
            Content::File(file) => !file.is_damaged(),
            Content::Lent(_) => false,
        };
        if is_right {
            self.with_checked_body(body)
        } else {
            Err(Corrupt::Checksum)
        }
    }

    /// The same with a body that its tier has found to be what was stored with this head.
    pub fn with_checked_body(self, body: Content) -> Result<Record, Corrupt> {
        if body.len() != self.body_len {
            return Err(Corrupt::Length);
        }
        let purges_known = self.purges_known();
        if self.status == UNSTORABLE {
            return Ok(Record::Unstorable);
        }
        if self.status == VARIES {
            return Ok(Record::Varies(Varies {
                names: self.vary,
                generation: self.numbers[0],
                began: self.began,
                until: self.until,
            }));
        }
        let stored = Stored::new(
            self.status,
            self.fields.fields(),
            body,
            self.lifetime,
            self.vary,
            &self.selection,
            self.began,
        );
        let stored = stored.with_tags(self.tags);
        let stored = stored.with_purges_known(purges_known);
        Ok(Record::Response(Box::new(stored)))
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Corrupt> {
    let (first, after) = rest.split_first_chunk().ok_or(Corrupt::Length)?;
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
            200,
            Fields::new(fields),
            Content::Bytes(body.into()),
            Lifetime::from_bytes(&[0; Lifetime::ENCODED_LEN]).expect("all zeros is a lifetime"),
            VaryNames::default(),
            selection,
            Time::from_secs(7),
        )
    }

    fn body(stored: &Stored) -> Bytes {
        match &stored.body {
            Content::Bytes(bytes) => bytes.clone(),
            _ => panic!("in a file"),
        }
    }

    #[test]
    fn only_where_there_are_two_copies_of_the_log_is_the_form_another() {
        for (known, magic) in [([0, 0], MAGIC), ([7, 0], MAGIC), ([7, 9], MAGIC_OF_TWO)] {
            let stored = stored(b"a: b\r\n", b"body".to_vec(), b"").with_purges_known(known);
            let bytes = encoded(&stored, b"key");
            assert!(bytes.starts_with(&magic));
            let head = Head::decode(&bytes).expect("it is one");
            assert_eq!((head.purges_known(), &head.key[..]), (known, &b"key"[..]));
            for length in 0..bytes.len() {
                assert!(Head::decode(&bytes.slice(..length)).is_err());
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
        let mut stored = stored(b"a: b\r\n", b"body".to_vec(), b"");
        stored.began = off;
        stored.lifetime = stored.lifetime.received_at(off);
        let head = |epoch: Epoch| encode(b"key", &stored, (4, checksum(b"body")), epoch);
        for set_by in [0, 7_200_000, -7_200_000] {
            let bytes = head(boot.set_by(set_by));
            let here = Head::decode_in(&bytes, boot).expect("a head");
            assert_eq!((here.began, here.lifetime.response_time()), (off, off));
            for length in 0..bytes.len() {
                assert!(Head::decode(&bytes.slice(..length)).is_err());
            }
            // Another machine has the date alone.
            let bytes = head(boot.set_by(set_by).anywhere());
            assert!(bytes.starts_with(&MAGIC));
            let elsewhere = Head::decode_in(&bytes, boot).expect("a head");
            assert_eq!(elsewhere.began, off.shifted(set_by));
        }
    }

    #[test]
    fn a_foreign_version_is_told_apart() {
        let mut bytes = encoded(&stored(b"A: b\r\n", b"body".to_vec(), b""), b"key").to_vec();
        bytes[3] = 9;
        assert_eq!(Head::decode(&bytes.into()).err(), Some(Corrupt::Version));
    }

    #[test]
    fn what_a_key_varies_on_comes_back() {
        let varies = Varies {
            names: VaryNames::default(),
            generation: 42,
            began: Time::from_secs(7),
            until: Time::from_secs(8),
        };
        let head = Head::decode(&encode_varies(b"key", &varies, Epoch::now())).unwrap();
        assert_eq!(head.key, &b"key"[..]);
        match head.with_body(Content::default()) {
            Ok(Record::Varies(read)) => assert_eq!(read, varies),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn that_nothing_is_stored_comes_back() {
        let head = Head::decode(&encode_unstorable(b"key")).expect("a head");
        assert!(head.key == b"key"[..] && !head.is_response());
        let record = head.with_body(Content::default());
        assert!(matches!(record, Ok(Record::Unstorable)), "{record:?}");
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
                Head::decode(&bytes).err(),
                Some(Corrupt::Value),
                "{}",
                bad.escape_ascii()
            );
        }
    }

    #[test]
    fn another_body_is_noticed() {
        let bytes = encoded(&stored(b"", b"body".to_vec(), b""), b"key");
        for (other, why) in [(&b"bodi"[..], Corrupt::Checksum), (b"bod", Corrupt::Length)] {
            let head = Head::decode(&bytes).unwrap();
            let content = Content::Bytes(Bytes::from_static(other));
            assert_eq!(head.with_body(content).err(), Some(why));
        }
    }

    proptest! {
        #[test]
        fn encoding_is_the_identity(body_bytes in proptest::collection::vec(any::<u8>(), 0..40_000), key in proptest::collection::vec(any::<u8>(), 0..300), selection in proptest::collection::vec(any::<u8>(), 0..50)) {
            let one = stored(b"A: b\r\nC: d\r\n", body_bytes, &selection);
            let head = Head::decode(&encoded(&one, &key)).unwrap();
            prop_assert_eq!(&head.key[..], &key[..]);
            let Ok(Record::Response(two)) = head.with_body(one.body.clone()) else {
                return Err(TestCaseError::fail("not a response"));
            };
            prop_assert_eq!(&one.fields, &two.fields);
            prop_assert_eq!(body(&one), body(&two));
            prop_assert_eq!(one.selection(), two.selection());
            prop_assert_eq!(one.lifetime, two.lifetime);
            prop_assert_eq!(one.began, two.began);
        }

        #[test]
        fn any_flipped_bit_is_noticed(at in any::<proptest::sample::Index>(), bit in 0..8u8) {
            let mut bytes = encoded(&stored(b"A: b\r\n", b"the body".to_vec(), b"sel"), b"key").to_vec();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(Head::decode(&bytes.into()).is_err());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Head::decode(&bytes.into());
        }
    }
}
