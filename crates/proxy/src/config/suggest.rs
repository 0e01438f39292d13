//! Did you mean …?

/// The name closest to what was written, if any is close enough to be meant.
pub fn nearest<'a>(written: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let written = written.to_ascii_lowercase().replace('-', "_");
    let allowed = written.len().div_ceil(3).min(3);
    names
        .into_iter()
        .map(|name| (distance(&written, &name.replace('-', "_")), name))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// How many letters have to be changed, put in, taken out or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = changed.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_hand_are_understood() {
        let names = ["ttl", "listen", "memory", "max_object", "stale_if_error"];
        assert_eq!(nearest("tll", names), Some("ttl"));
        assert_eq!(nearest("Listen", names), Some("listen"));
        assert_eq!(nearest("memroy", names), Some("memory"));
        assert_eq!(nearest("max-object", names), Some("max_object"));
        assert_eq!(nearest("stale_on_error", names), Some("stale_if_error"));
        assert_eq!(nearest("colour", names), None);
        assert_eq!(nearest("", names), None);
    }
}
