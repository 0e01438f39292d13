//! Random numbers from a seed.

/// Generator of random numbers (`SplitMix64`).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// From 0 to 1, without 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        let bits = u128::from(self.next() >> 11);
        ((bits * limit as u128) >> 53) as usize
    }

    /// Microseconds between these milliseconds, evenly distributed by order of magnitude.
    #[expect(clippy::cast_sign_loss, reason = "a time has no sign")]
    pub(crate) fn micros(&mut self, least: f64, most: f64) -> u32 {
        let milliseconds = least * (most / least).powf(self.unit());
        (milliseconds * 1000.0) as u32
    }

    /// Log-normal size from 100 B to 8 MB.
    #[expect(clippy::cast_sign_loss, reason = "it is at least 100")]
    pub(crate) fn size(&mut self, median: f64, sigma: f64) -> u32 {
        // Box and Muller.
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        let normal = radius * (std::f64::consts::TAU * self.unit()).cos();
        (median * (sigma * normal).exp()).clamp(100.0, 8e6) as u32
    }

    pub(crate) fn shuffle(&mut self, items: &mut [u32]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.below(end + 1));
        }
    }
}

/// Hash of a number.
pub(crate) fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
