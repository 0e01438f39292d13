//! A stored response, and its one encoding.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::{Bytes, BytesMut};
use microcache_policy::stored_fields::is_stored_form;
use microcache_policy::vary::VaryNames;
use microcache_policy::{Fields, Lifetime, Millis, Time};
use xxhash_rust::xxh3::xxh3_64;

/// A complete response, ready to be sent.
#[derive(Debug)]
pub struct Stored {
    /// The status code.
    pub status: u16,
    /// The field lines as they will be sent; no framing, no `Age`.
    pub fields: Bytes,
    /// The whole body.
    pub body: Bytes,
    /// How long it may be used.
    pub lifetime: Lifetime,
    /// The request fields that selected it.
    pub vary: VaryNames,
    /// What those fields said, normalised.
    pub selection: Bytes,
    refresh: Refresh,
}

/// What is going on about renewing this response. Not part of its value.
#[derive(Debug, Default)]
struct Refresh {
    not_before: AtomicU64,
    demand: OnceLock<Arc<AtomicU32>>,
}

impl Stored {
    /// Bodies up to this size share one allocation with their fields: one cache miss less per hit.
    const COMPACT: usize = 16 * 1024;

    /// Puts a response together.
    pub fn new(
        status: u16,
        fields: &[u8],
        body: Bytes,
        lifetime: Lifetime,
        vary: VaryNames,
        selection: &[u8],
    ) -> Self {
        let own = if body.len() <= Self::COMPACT {
            body.len()
        } else {
            0
        };
        let mut together = BytesMut::with_capacity(fields.len() + selection.len() + own);
        together.extend_from_slice(fields);
        together.extend_from_slice(selection);
        if own > 0 {
            together.extend_from_slice(&body);
        }
        let mut together = together.freeze();
        let fields = together.split_to(fields.len());
        let selection = together.split_to(selection.len());
        let body = if own > 0 { together } else { body };
        Self {
            status,
            fields,
            body,
            lifetime,
            vary,
            selection,
            refresh: Refresh::default(),
        }
    }

    /// The field lines.
    pub fn fields(&self) -> Fields<'_> {
        Fields::new(&self.fields)
    }

    /// The same response with another lifetime: revalidated, or expired by a purge.
    #[must_use]
    pub fn with_lifetime(&self, lifetime: Lifetime) -> Self {
        Self {
            status: self.status,
            fields: self.fields.clone(),
            body: self.body.clone(),
            lifetime,
            vary: self.vary.clone(),
            selection: self.selection.clone(),
            refresh: Refresh::default(),
        }
    }

    /// Counts one more use of the stale copy, and says whether the caller is the one to refresh
    /// it. The next one is asked no sooner than `pause` from now.
    pub fn claim_refresh(&self, now: Time, pause: Millis) -> bool {
        self.demand().fetch_add(1, Ordering::Relaxed);
        let not_before = self.refresh.not_before.load(Ordering::Relaxed);
        now.as_millis() >= not_before
            && self
                .refresh
                .not_before
                .compare_exchange(
                    not_before,
                    now.plus(pause).as_millis(),
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                )
                .is_ok()
    }

    /// How often the stale copy was asked for since it expired.
    pub fn demand(&self) -> &Arc<AtomicU32> {
        self.refresh.demand.get_or_init(Arc::default)
    }

    /// The bytes this response owns, beside the struct itself.
    pub fn heap_size(&self) -> usize {
        self.fields.len() + self.selection.len() + self.body.len() + self.vary.as_bytes().len()
    }
}

/// The encoding: a fixed head, then key, vary, selection, fields and body, with a checksum over
/// everything but the body in the head and one over the body at the end of the head.
const MAGIC: [u8; 4] = *b"MCS\x01";
const HEAD: usize = 4 + 2 + 4 * 4 + 8 + Lifetime::ENCODED_LEN + 8 + 8;

/// Why bytes are not a stored response.
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

impl Stored {
    /// Everything, and the key it is stored under, as bytes.
    pub fn encode(&self, key: &[u8]) -> Vec<u8> {
        let parts = [key, self.vary.as_bytes(), &self.selection, &self.fields];
        let tail: usize = parts.iter().map(|part| part.len()).sum();
        let mut out = Vec::with_capacity(HEAD + tail + self.body.len());
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&self.status.to_le_bytes());
        for part in parts {
            out.extend_from_slice(&(part.len() as u32).to_le_bytes());
        }
        out.extend_from_slice(&(self.body.len() as u64).to_le_bytes());
        out.extend_from_slice(&self.lifetime.to_bytes());
        out.extend_from_slice(&xxh3_64(&self.body).to_le_bytes());
        let checksum_at = out.len();
        out.extend_from_slice(&[0; 8]);
        for part in parts {
            out.extend_from_slice(part);
        }
        let checksum = head_checksum(&out[..checksum_at], &out[checksum_at + 8..]);
        out[checksum_at..checksum_at + 8].copy_from_slice(&checksum.to_le_bytes());
        out.extend_from_slice(&self.body);
        out
    }

    /// Reads [`Self::encode`]'s bytes back: the key and the response.
    pub fn decode(bytes: &Bytes) -> Result<(Bytes, Self), Corrupt> {
        let mut rest = &bytes[..];
        if take::<4>(&mut rest)? != MAGIC {
            return Err(Corrupt::Version);
        }
        let status = u16::from_le_bytes(take(&mut rest)?);
        let mut lengths = [0usize; 4];
        for length in &mut lengths {
            *length = u32::from_le_bytes(take(&mut rest)?) as usize;
        }
        let body_len = u64::from_le_bytes(take(&mut rest)?);
        let lifetime: [u8; Lifetime::ENCODED_LEN] = take(&mut rest)?;
        let body_sum = u64::from_le_bytes(take(&mut rest)?);
        let checksum_at = bytes.len() - rest.len();
        let head_sum = u64::from_le_bytes(take(&mut rest)?);

        let parts_len: usize = lengths.iter().sum();
        if (rest.len() as u64) != (parts_len as u64).saturating_add(body_len) {
            return Err(Corrupt::Length);
        }
        if head_checksum(&bytes[..checksum_at], &rest[..parts_len]) != head_sum {
            return Err(Corrupt::Checksum);
        }
        let mut parts = bytes.slice(HEAD..);
        let [key, vary, selection, fields] = lengths.map(|length| parts.split_to(length));
        if xxh3_64(&parts) != body_sum {
            return Err(Corrupt::Checksum);
        }
        let lifetime = Lifetime::from_bytes(&lifetime).ok_or(Corrupt::Value)?;
        let vary = VaryNames::from_bytes(&vary).ok_or(Corrupt::Value)?;
        // A checksum is no proof of origin: a shared tier may hold what somebody else wrote.
        if !(200..=599).contains(&status) || !is_stored_form(&fields) {
            return Err(Corrupt::Value);
        }
        Ok((
            key,
            Self::new(status, &fields, parts, lifetime, vary, &selection),
        ))
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Corrupt> {
    let (first, after) = rest.split_first_chunk().ok_or(Corrupt::Length)?;
    *rest = after;
    Ok(*first)
}

fn head_checksum(head: &[u8], parts: &[u8]) -> u64 {
    xxh3_64(head) ^ xxh3_64(parts).rotate_left(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lifetime() -> Lifetime {
        Lifetime::from_bytes(&[0; Lifetime::ENCODED_LEN]).expect("all zeros is a lifetime")
    }

    fn stored(fields: &[u8], body: Vec<u8>, selection: &[u8]) -> Stored {
        Stored::new(
            200,
            fields,
            body.into(),
            lifetime(),
            VaryNames::default(),
            selection,
        )
    }

    #[test]
    fn one_claim_per_pause() {
        let one = stored(b"", vec![], b"");
        let now = Time::from_secs(100);
        assert!(one.claim_refresh(now, 1000));
        assert!(!one.claim_refresh(now.plus(999), 1000));
        assert!(one.claim_refresh(now.plus(1000), 1000));
        assert_eq!(one.demand().load(Ordering::Relaxed), 3);
    }

    #[test]
    fn a_foreign_version_is_told_apart() {
        let mut bytes = stored(b"A: b\r\n", b"body".to_vec(), b"").encode(b"key");
        bytes[3] = 9;
        assert_eq!(Stored::decode(&bytes.into()).err(), Some(Corrupt::Version));
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
            let bytes = stored(bad, vec![], b"").encode(b"key");
            assert_eq!(
                Stored::decode(&bytes.into()).err(),
                Some(Corrupt::Value),
                "{}",
                bad.escape_ascii()
            );
        }
    }

    proptest! {
        #[test]
        fn encoding_is_the_identity(body in proptest::collection::vec(any::<u8>(), 0..40_000), key in proptest::collection::vec(any::<u8>(), 0..300), selection in proptest::collection::vec(any::<u8>(), 0..50)) {
            let one = stored(b"A: b\r\nC: d\r\n", body, &selection);
            let (k, two) = Stored::decode(&one.encode(&key).into()).unwrap();
            prop_assert_eq!(&k[..], &key[..]);
            prop_assert_eq!(&one.fields, &two.fields);
            prop_assert_eq!(&one.body, &two.body);
            prop_assert_eq!(&one.selection, &two.selection);
            prop_assert_eq!(one.lifetime, two.lifetime);
        }

        #[test]
        fn any_flipped_bit_is_noticed(at in any::<proptest::sample::Index>(), bit in 0..8u8) {
            let mut bytes = stored(b"A: b\r\n", b"the body".to_vec(), b"sel").encode(b"key");
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(Stored::decode(&bytes.into()).is_err());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Stored::decode(&bytes.into());
        }
    }
}
