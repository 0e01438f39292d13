//! `Age` and `Cache-Status` of stored responses.
//!
//! They are equal for all hits of one age that have the same time to live, until the next second. So each thread keeps
//! the bytes that it has written last.

use microcache_engine::Response;
use smallvec::SmallVec;

/// Ages for which the bytes are kept. A power of two.
const SLOTS: usize = 64;

/// Both fields of hits written last, in the format of one HTTP version.
#[derive(Default)]
pub(crate) struct CacheFields {
    /// Empty before the first hit.
    slots: Vec<CacheFieldsSlot>,
}

#[derive(Clone, Default)]
struct CacheFieldsSlot {
    /// Age and time to live.
    values: Option<(u64, i64)>,
    bytes: SmallVec<[u8; 96]>,
}

impl CacheFields {
    /// Appends the fields of a response, which `write` appends if they are not known. They depend on its age and its
    /// [`CacheStatus`](microcache_policy::CacheStatus) alone.
    pub(crate) fn append(
        &mut self,
        response: &Response,
        out: &mut Vec<u8>,
        write: impl FnOnce(&Response, &mut Vec<u8>),
    ) {
        let ttl = response.cache_status.ttl_of_plain_hit();
        let (Some(age), Some(ttl)) = (response.age, ttl) else {
            return write(response, out);
        };
        if self.slots.is_empty() {
            self.slots.resize(SLOTS, CacheFieldsSlot::default());
        }
        let place = age.wrapping_add(ttl.cast_unsigned().wrapping_mul(7));
        let slot = &mut self.slots[place as usize % SLOTS];
        if slot.values == Some((age, ttl)) {
            return out.extend_from_slice(&slot.bytes);
        }
        let start = out.len();
        write(response, out);
        slot.values = Some((age, ttl));
        slot.bytes.clear();
        slot.bytes.extend_from_slice(&out[start..]);
    }
}

#[cfg(test)]
mod tests {
    use microcache_engine::{Body, Outcome};
    use microcache_policy::CacheStatus;

    use super::*;

    #[test]
    fn the_fields_are_written_once_for_each_age_and_status() {
        let mut fields = CacheFields::default();
        let mut appended = |age, hit, ttl| {
            let response = Response {
                status: 200,
                fields: None,
                age,
                cache_status: CacheStatus {
                    hit,
                    ttl,
                    ..CacheStatus::default()
                },
                length: None,
                body: Body::Empty,
                tunnel: None,
                outcome: Outcome::Hit,
            };
            let (mut out, mut is_written) = (b"before".to_vec(), false);
            fields.append(&response, &mut out, |response, out| {
                is_written = true;
                out.extend_from_slice(format!("{:?} ", response.age).as_bytes());
                response.cache_status.write(out);
            });
            (String::from_utf8(out).expect("text"), is_written)
        };
        let none = ("beforeNone microcache".to_owned(), true);
        for (age, hit, ttl, expected) in [
            (1, true, Some(7), "beforeSome(1) microcache; hit; ttl=7"),
            (1, true, Some(8), "beforeSome(1) microcache; hit; ttl=8"),
            (2, true, Some(7), "beforeSome(2) microcache; hit; ttl=7"),
            (
                2 + SLOTS as u64,
                true,
                Some(7),
                "beforeSome(66) microcache; hit; ttl=7",
            ),
            (
                u64::MAX,
                true,
                Some(i64::MIN),
                "beforeSome(18446744073709551615) microcache; hit; ttl=-999999999999999",
            ),
        ] {
            for is_written in [true, false] {
                assert_eq!(
                    appended(Some(age), hit, ttl),
                    (expected.to_owned(), is_written)
                );
            }
        }
        let other = ("beforeSome(2) microcache".to_owned(), true);
        for _ in 0..2 {
            assert_eq!(appended(None, false, None), none);
            assert_eq!(appended(Some(2), false, Some(7)), other);
        }
    }
}
