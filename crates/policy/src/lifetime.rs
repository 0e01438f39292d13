//! The lifetime of a stored response, computed once when it is stored, and the requests that it may serve.

use crate::request::Credentials;
use crate::time::{Millis, Time};

/// The minimum time after its receipt for which a response with a validator is kept, in milliseconds.
pub const KEPT_FOR_VALIDATION: Millis = 86_400_000;

/// The facts about a stored response that decide about reuse. Spans are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    pub(crate) response_time: Time,
    /// `corrected_initial_age` (RFC 9111 §4.2.3).
    pub(crate) initial_age: Millis,
    /// Freshness lifetime: fresh below this age.
    pub(crate) fresh_for: Millis,
    /// Stale window during revalidation, counted from the end of freshness (RFC 5861 §3).
    pub(crate) stale_while_revalidate: Millis,
    /// Stale window when the origin fails, counted from the end of freshness (RFC 5861 §4).
    pub(crate) stale_if_error: Millis,
    pub(crate) flags: u8,
}

/// Must be validated before every use.
pub(crate) const MUST_VALIDATE: u8 = 1;
/// Does not change while fresh (RFC 8246).
pub(crate) const IMMUTABLE: u8 = 1 << 1;
/// May serve requests with a cookie.
pub(crate) const FOR_COOKIES: u8 = 1 << 2;
/// May serve requests with `Authorization` (RFC 9111 §3.5).
pub(crate) const FOR_AUTHORIZATION: u8 = 1 << 3;
/// Has an entity tag or a modification date.
pub(crate) const HAS_VALIDATOR: u8 = 1 << 4;
/// The stale-while-revalidate window is the operator's, not the origin's.
pub(crate) const OPERATORS_WINDOW: u8 = 1 << 5;
/// Is never served stale, whatever the client accepts. Only private caches check this.
pub(crate) const NEVER_STALE: u8 = 1 << 6;
/// Is stored by [`anonymous_ttl`](crate::rules::Rules::anonymous_ttl), which the origin does not know.
pub(crate) const ANONYMOUS: u8 = 1 << 7;

impl Lifetime {
    /// The length of the encoded form in bytes.
    pub const ENCODED_LEN: usize = 41;

    /// The age in milliseconds (RFC 9111 §4.2.3).
    #[inline]
    pub const fn age(&self, now: Time) -> Millis {
        self.initial_age
            .saturating_add(now.since(self.response_time))
    }

    /// The remaining freshness in milliseconds; negative for a stale response.
    #[inline]
    pub fn ttl(&self, now: Time) -> i64 {
        signed(self.fresh_for).saturating_sub(signed(self.age(now)))
    }

    /// Returns true if it may serve requests with these credentials.
    pub const fn is_shareable(&self, credentials: Credentials) -> bool {
        (!credentials.authorization || self.has(FOR_AUTHORIZATION))
            && (!credentials.cookie || self.has(FOR_COOKIES))
    }

    /// Makes it stale as of `now`, which begins the stale windows: a soft purge. From then on its age exceeds `stated`, the
    /// lifetime in its fields, so that caches which receive it find it stale too.
    pub fn expire(&mut self, now: Time, stated: Millis) {
        let age = self.age(now);
        if self.fresh_for > age {
            let aged = match stated {
                0 => 0,
                _ => stated.saturating_add(1_000).saturating_sub(age),
            };
            self.fresh_for = age.saturating_add(aged);
            self.initial_age = self.initial_age.saturating_add(aged);
        }
    }

    /// Requires validation with the origin before the next use (RFC 9111 §4.4).
    pub const fn invalidate(&mut self) {
        self.flags |= MUST_VALIDATE;
    }

    /// The time from which it is of no use: neither fresh, nor within a stale window, nor worth validating.
    pub fn usable_until(&self) -> Time {
        let stale = self.stale_while_revalidate.max(self.stale_if_error);
        let window = self
            .fresh_for
            .saturating_add(stale)
            .saturating_sub(self.initial_age);
        let used = if self.has(MUST_VALIDATE) { 0 } else { window };
        let kept = if self.has(HAS_VALIDATOR) {
            KEPT_FOR_VALIDATION
        } else {
            0
        };
        self.response_time.plus(used.max(kept))
    }

    /// The freshness lifetime in milliseconds, counted from the response's generation.
    pub const fn fresh_for(&self) -> Millis {
        self.fresh_for
    }

    /// The age at its receipt, in milliseconds.
    pub const fn initial_age(&self) -> Millis {
        self.initial_age
    }

    /// The stale window during revalidation, in milliseconds (RFC 5861 §3).
    pub const fn stale_while_revalidate(&self) -> Millis {
        self.stale_while_revalidate
    }

    /// The stale window when the origin fails, in milliseconds (RFC 5861 §4).
    pub const fn stale_if_error(&self) -> Millis {
        self.stale_if_error
    }

    /// Returns true if the origin must confirm it before every use.
    pub const fn must_be_validated(&self) -> bool {
        self.has(MUST_VALIDATE)
    }

    /// Returns true if it is stored by [`anonymous_ttl`](crate::rules::Rules::anonymous_ttl): the origin has marked it as
    /// one client's, or as stale.
    pub const fn is_anonymous(&self) -> bool {
        self.has(ANONYMOUS)
    }

    /// The time of receipt.
    pub const fn response_time(&self) -> Time {
        self.response_time
    }

    /// Replaces the time of receipt, which tiers store as a date.
    #[must_use]
    pub const fn received_at(self, response_time: Time) -> Self {
        Self {
            response_time,
            ..self
        }
    }

    /// Encodes it in a fixed size, for storage.
    pub fn to_bytes(&self) -> [u8; Self::ENCODED_LEN] {
        let numbers = [
            self.response_time.as_millis(),
            self.initial_age,
            self.fresh_for,
            self.stale_while_revalidate,
            self.stale_if_error,
        ];
        let mut bytes = [0; Self::ENCODED_LEN];
        for (chunk, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            chunk.copy_from_slice(&number.to_le_bytes());
        }
        bytes[Self::ENCODED_LEN - 1] = self.flags;
        bytes
    }

    /// Parses the encoded form. `None` if it is malformed.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::ENCODED_LEN] = bytes.try_into().ok()?;
        let mut numbers = [0; 5];
        for (number, chunk) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
            *number = u64::from_le_bytes(chunk.try_into().ok()?);
        }
        let flags = bytes[Self::ENCODED_LEN - 1];
        let [
            response_time,
            initial_age,
            fresh_for,
            stale_while_revalidate,
            stale_if_error,
        ] = numbers;
        Some(Self {
            response_time: Time::from_millis(response_time),
            initial_age,
            fresh_for,
            stale_while_revalidate,
            stale_if_error,
            flags,
        })
    }

    pub(crate) const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

fn signed(span: Millis) -> i64 {
    i64::try_from(span).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{RECEIVED, lifetime};

    #[test]
    fn expiring_makes_it_stale_from_now_on_and_leaves_the_windows() {
        let mut stored = lifetime("Cache-Control: max-age=60");
        stored.expire(RECEIVED.plus(10_000), 60_000);
        assert_eq!(stored.ttl(RECEIVED.plus(10_000)), 0);
        assert_eq!(stored.age(RECEIVED.plus(10_000)), 61_000);
        assert_eq!(stored.age(RECEIVED.plus(12_000)), 63_000);
        assert_eq!(stored.ttl(RECEIVED.plus(12_000)), -2_000);
        assert_eq!(stored.stale_while_revalidate, 10_000);

        let mut stale = lifetime("Cache-Control: max-age=60");
        stale.expire(RECEIVED.plus(90_000), 60_000);
        assert_eq!(stale.age(RECEIVED.plus(90_000)), 90_000);
        assert_eq!(
            stale.ttl(RECEIVED.plus(90_000)),
            -30_000,
            "expiring twice gives no new window"
        );
    }

    #[test]
    fn it_is_kept_while_it_is_good_for_something() {
        let end = |response| lifetime(response).usable_until().since(RECEIVED);
        assert_eq!(end(""), 1_000 + 86_400_000);
        assert_eq!(end("Cache-Control: max-age=60, stale-if-error=0"), 70_000);
        assert_eq!(end("Cache-Control: max-age=60, must-revalidate"), 60_000);
        assert_eq!(
            end("Cache-Control: max-age=60, must-revalidate\nAge: 20"),
            40_000
        );
        assert_eq!(
            end("Cache-Control: max-age=60, must-revalidate\nETag: \"a\""),
            KEPT_FOR_VALIDATION
        );
        assert_eq!(
            end("Cache-Control: no-cache\nETag: \"a\""),
            KEPT_FOR_VALIDATION
        );
    }

    #[test]
    fn only_the_encoded_form_is_read() {
        let stored = lifetime("Cache-Control: max-age=60, public, immutable\nETag: \"a\"\nAge: 7");
        let bytes = stored.to_bytes();
        assert_eq!(Lifetime::from_bytes(&bytes), Some(stored));
        assert_eq!(Lifetime::from_bytes(&bytes[1..]), None);
        assert_eq!(Lifetime::from_bytes(&[]), None);
    }
}
