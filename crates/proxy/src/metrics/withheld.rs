//! Names of request fields that were withheld from origins: each is logged once for each route.

use std::collections::HashMap;

use microcache_engine::RouteId;
use parking_lot::Mutex;

/// Limit of names remembered per route: clients can invent any number.
const MAX_NAMES: usize = 32;
/// Bytes of a name that are remembered.
const MAX_NAME: usize = 64;

/// The names that were logged, by route.
#[derive(Default)]
pub(super) struct WithheldNames(Mutex<HashMap<RouteId, Vec<String>>>);

impl WithheldNames {
    /// Returns those of `names` that are new on this route; none once the route has its maximum of names.
    pub(super) fn new_of(&self, route: RouteId, names: &[String]) -> Vec<String> {
        let mut routes = self.0.lock();
        let known = routes.entry(route).or_default();
        let mut new = Vec::new();
        for name in names {
            // Tokens: ASCII.
            let name = &name[..name.len().min(MAX_NAME)];
            if known.len() == MAX_NAMES {
                break;
            }
            if !known.iter().any(|known| known == name) {
                known.push(name.to_owned());
                new.push(name.to_owned());
            }
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_new_once_for_each_route() {
        let all = WithheldNames::default();
        let names = ["x-a".to_owned(), "x-b".to_owned(), "x-a".to_owned()];
        assert_eq!(all.new_of(RouteId(1), &names), ["x-a", "x-b"]);
        assert!(all.new_of(RouteId(1), &names).is_empty());
        assert_eq!(all.new_of(RouteId(2), &names[1..2]), ["x-b"]);
    }

    #[test]
    fn invented_names_are_bounded() {
        let all = WithheldNames::default();
        let names: Vec<_> = (0..1000)
            .map(|i| format!("x-{i}-{}", "a".repeat(1000)))
            .collect();
        let new = all.new_of(RouteId(1), &names);
        assert_eq!(new.len(), MAX_NAMES);
        assert!(new.iter().all(|name| name.len() == MAX_NAME));
    }
}
