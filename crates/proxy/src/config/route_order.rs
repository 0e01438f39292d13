//! Checks of routes against those above them.

use std::collections::HashSet;

use super::mistake::{Mistake, Mistakes};
use super::options::RouteDraft;
use super::place::Place;
use super::route_index::RouteIndex;

/// A route with its places, for comparison with earlier ones.
pub(super) struct ReadRoute {
    pub(super) route: RouteDraft,
    pub(super) match_place: Place,
    pub(super) name_place: Place,
    pub(super) matcher_is_good: bool,
}

/// Notes names that are used twice, and routes that are never reached.
pub(super) fn check_order(routes: &[ReadRoute], mistakes: &mut Mistakes) {
    let mut names = HashSet::new();
    for read in routes {
        let name = &read.route.route.name;
        if !names.insert(name) {
            let what = format!("the name \"{name}\" is used by an earlier route");
            mistakes.note(Mistake::new(&read.name_place, what));
        }
    }
    let good: Vec<_> = routes.iter().filter(|read| read.matcher_is_good).collect();
    let index = RouteIndex::of(good.iter().map(|read| &read.route.route.matcher));
    for (number, read) in good.iter().enumerate() {
        let matcher = &read.route.route.matcher;
        let mut above = index
            .candidates_to_cover(matcher)
            .take_while(|it| *it < number);
        if let Some(covering) = above.find(|it| good[*it].route.route.matcher.covers(matcher)) {
            let what = format!(
                "this route is never reached: \"{}\" above matches all of its requests",
                good[covering].route.route.name
            );
            mistakes.note(Mistake::new(&read.match_place, what).remedy("move it up"));
        }
    }
}
