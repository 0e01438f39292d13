//! A number for each url: the same on every run and every machine, and spread over all numbers.

/// What the number decides. Two decisions about one url are independent of each other.
#[derive(Clone, Copy)]
pub(super) enum Decides {
    Change,
    MaxAge,
    Text,
}

/// FNV-1a, and a finish that lets every bit of the url reach every bit of the number.
pub(super) fn spread(url: &str, decides: Decides) -> u64 {
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
    use crate::origin::values::Share;

    #[test]
    fn a_share_of_the_urls_is_near_that_share_of_the_numbers() {
        let quarter = Share::percent(25);
        let drawn = |decides| (0..10_000).map(move |i| spread(&format!("/page/{i}"), decides));
        let within = drawn(Decides::Change).filter(|&n| quarter.has(n)).count();
        assert!((2300..2700).contains(&within), "{within}");
        let both = drawn(Decides::Change)
            .zip(drawn(Decides::MaxAge))
            .filter(|&(a, b)| quarter.has(a) && quarter.has(b))
            .count();
        assert!((500..750).contains(&both), "{both}");
    }
}
