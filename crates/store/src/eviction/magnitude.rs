//! Numbers on a logarithmic scale, in one byte.

/// Number on a logarithmic scale with eight steps to an octave, rounded down by less than an eighth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Magnitude(u8);

impl Magnitude {
    /// Steps to an octave.
    pub(super) const OCTAVE: i32 = 8;

    /// Returns the magnitude of a number; that of 0 is that of 1, and the greatest is 2³² − 2²⁸.
    pub(super) const fn of(number: u64) -> Self {
        let number = if number == 0 { 1 } else { number };
        let octave = number.ilog2();
        if octave > 31 {
            return Self(u8::MAX);
        }
        // The three bits after the first one.
        let step = (number << 3 >> octave) & 7;
        Self((octave << 3) as u8 | step as u8)
    }

    pub(super) const fn from_step(step: u8) -> Self {
        Self(step)
    }

    pub(super) const fn step(self) -> u8 {
        self.0
    }

    /// Least number of this magnitude.
    pub(super) const fn number(self) -> u64 {
        (8 + (self.0 & 7) as u64) << (self.0 >> 3) >> 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_ends_of_the_scale() {
        assert_eq!(Magnitude::of(0), Magnitude::of(1));
        assert_eq!(Magnitude::of(1).step(), 0);
        assert_eq!(Magnitude::of(u64::MAX).step(), 255);
        assert_eq!(Magnitude::of(u64::MAX).number(), (1 << 32) - (1 << 28));
    }

    proptest! {
        #[test]
        fn less_than_an_eighth_is_lost(number in 1..(1u64 << 32)) {
            let rounded = Magnitude::of(number).number();
            prop_assert!(rounded <= number && number - rounded <= number / 8);
            prop_assert!(Magnitude::of(number) <= Magnitude::of(number + 1));
        }
    }
}
