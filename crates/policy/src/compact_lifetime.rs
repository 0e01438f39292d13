//! A lifetime in half of its memory.

use crate::lifetime::Lifetime;
use crate::time::{Millis, Time};

/// A [`Lifetime`] with spans of milliseconds or whole seconds. Others have no such form, and few of them exist: a
/// freshness of more than 24 days that does not end with a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactLifetime {
    /// The time of receipt, and the flags in the upper byte.
    received: u64,
    initial_age: CompactSpan,
    fresh_for: CompactSpan,
    stale_while_revalidate: CompactSpan,
    stale_if_error: CompactSpan,
}

impl CompactLifetime {
    const TIME_BITS: u32 = 56;

    /// The compact form. `None` if it has none.
    pub fn of(lifetime: &Lifetime) -> Option<Self> {
        let received = lifetime.response_time.as_millis();
        (received >> Self::TIME_BITS == 0).then_some(())?;
        Some(Self {
            received: received | u64::from(lifetime.flags) << Self::TIME_BITS,
            initial_age: CompactSpan::of(lifetime.initial_age)?,
            fresh_for: CompactSpan::of(lifetime.fresh_for)?,
            stale_while_revalidate: CompactSpan::of(lifetime.stale_while_revalidate)?,
            stale_if_error: CompactSpan::of(lifetime.stale_if_error)?,
        })
    }

    /// The lifetime.
    #[expect(
        clippy::inline_always,
        reason = "it is read twice for each hit, which then costs once"
    )]
    #[inline(always)]
    pub const fn lifetime(&self) -> Lifetime {
        Lifetime {
            response_time: self.response_time(),
            initial_age: self.initial_age.millis(),
            fresh_for: self.fresh_for.millis(),
            stale_while_revalidate: self.stale_while_revalidate.millis(),
            stale_if_error: self.stale_if_error.millis(),
            flags: (self.received >> Self::TIME_BITS) as u8,
        }
    }

    /// The time of receipt.
    #[inline]
    pub const fn response_time(&self) -> Time {
        Time::from_millis(self.received & ((1 << Self::TIME_BITS) - 1))
    }
}

/// Milliseconds, or whole seconds if the highest bit is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CompactSpan(u32);

impl CompactSpan {
    const SECONDS: u32 = 1 << 31;

    fn of(span: Millis) -> Option<Self> {
        let number = |span| {
            u32::try_from(span)
                .ok()
                .filter(|it| it & Self::SECONDS == 0)
        };
        match number(span) {
            Some(millis) => Some(Self(millis)),
            None if span.is_multiple_of(1000) => {
                number(span / 1000).map(|it| Self(it | Self::SECONDS))
            }
            None => None,
        }
    }

    #[inline]
    const fn millis(self) -> Millis {
        // Without a branch: this is read for each hit.
        let unit = 1 + 999 * (self.0 >> 31);
        (self.0 & !Self::SECONDS) as Millis * unit as Millis
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::lifetime;

    #[test]
    fn a_lifetime_has_an_equal_compact_form_or_none() {
        let usual = lifetime("Cache-Control: max-age=60, public, immutable\nETag: \"a\"\nAge: 7");
        let year = lifetime("Cache-Control: max-age=31536000, stale-if-error=2147483647");
        for one in [usual, year] {
            let compact = CompactLifetime::of(&one).expect("it has one");
            assert_eq!(compact.lifetime(), one);
            assert_eq!(compact.response_time(), one.response_time());
        }
        let odd = Lifetime {
            fresh_for: (1 << 31) + 1,
            ..usual
        };
        let late = usual.received_at(Time::from_millis(1 << 56));
        for one in [odd, late] {
            assert_eq!(CompactLifetime::of(&one), None);
        }
    }

    #[test]
    fn spans_are_exact_at_their_bounds() {
        for (span, exact) in [
            (0, true),
            ((1 << 31) - 1, true),
            (1 << 31, false),
            (2_147_484_000, true),
            (((1 << 31) - 1) * 1000, true),
            ((1 << 31) * 1000, false),
            (u64::MAX, false),
        ] {
            let compact = CompactSpan::of(span);
            assert_eq!(compact.is_some(), exact, "{span}");
            assert!(compact.is_none_or(|it| it.millis() == span), "{span}");
        }
    }
}
