//! Suggestions for misspelt names.

use strsim::osa_distance;

/// Returns the name closest to a text, if one is close enough.
pub fn nearest<'a>(written: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let written = written.to_ascii_lowercase().replace('-', "_");
    let allowed = written.chars().count().div_ceil(3).min(3);
    names
        .into_iter()
        // Letters replaced, inserted, deleted, or swapped with their neighbour.
        .map(|name| (osa_distance(&written, &name.replace('-', "_")), name))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
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
        assert_eq!(nearest("größe", ["rate"]), None);
        assert_eq!(nearest("", names), None);
    }
}
