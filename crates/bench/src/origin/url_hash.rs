//! Hash of a URL: equal on every run and machine, uniformly distributed.

/// Purpose of a hash. Hashes of one URL for different purposes are independent.
#[derive(Clone, Copy)]
pub(super) enum HashPurpose {
    Change,
    MaxAge,
    Text,
}

/// Returns the hash of a URL: FNV-1a with a finalizer that mixes all bits.
pub(super) fn url_hash(url: &str, decides: HashPurpose) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let seed = BASIS ^ (decides as u64 + 1);
    let mut hash = url.bytes().fold(seed, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(PRIME)
    });
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::values::Fraction;

    #[test]
    fn a_share_of_the_urls_is_near_that_share_of_the_numbers() {
        let quarter = Fraction::percent(25);
        let drawn = |decides| (0..10_000).map(move |i| url_hash(&format!("/page/{i}"), decides));
        let within = drawn(HashPurpose::Change)
            .filter(|&n| quarter.has(n))
            .count();
        assert!((2300..2700).contains(&within), "{within}");
        let both = drawn(HashPurpose::Change)
            .zip(drawn(HashPurpose::MaxAge))
            .filter(|&(a, b)| quarter.has(a) && quarter.has(b))
            .count();
        assert!((500..750).contains(&both), "{both}");
    }
}
