//! Numbers with their nouns.

/// Returns a number and a noun, in the plural unless the number is 1: `1 entry`, `2 entries`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    if number == 1 {
        return format!("1 {noun}");
    }
    let ends = |ends: &[&str]| ends.iter().any(|end| noun.ends_with(end));
    match noun.strip_suffix('y') {
        Some(stem) if !ends(&["ay", "ey", "oy", "uy"]) => format!("{number} {stem}ies"),
        _ if ends(&["s", "x", "ch", "sh"]) => format!("{number} {noun}es"),
        _ => format!("{number} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nouns_are_in_the_singular_after_one_only() {
        let counts = [
            (0, "request", "0 requests"),
            (1, "request", "1 request"),
            (2, "request", "2 requests"),
            (1, "entry", "1 entry"),
            (3, "entry", "3 entries"),
            (3, "key", "3 keys"),
            (1, "miss", "1 miss"),
            (0, "miss", "0 misses"),
            (4, "fetch", "4 fetches"),
        ];
        for (number, noun, expected) in counts {
            assert_eq!(count(number, noun), expected);
        }
    }
}
