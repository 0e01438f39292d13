//! Options of error pages, at the top for all routes or in one route.

use std::ops::RangeInclusive;

use super::super::error_pages::ErrorPage;
use super::super::mistake::{Mistake, Mistakes};
use super::super::option::Form::{Table, Text};
use super::super::option::{Opt, opt};
use super::super::raw::Value;
use super::route::RouteDraft;

/// Options of error pages.
pub(in crate::config) const ERROR_PAGES: &[Opt<RouteDraft>] = &[
    opt("error_pages", Table("status codes and files"), "{}")
        .example(r#"{ 404 = "/srv/404.html", 5xx = "/srv/5xx.html" }"#)
        .help("Files with the bodies of error responses, by status code or class")
        .more(
            "For responses that Microcache itself generates; see `error_pages_from`. Status, \
             Retry-After and the other fields stay, Cache-Control is `no-store`. The media type \
             follows the suffix. Read at the start and by a reload, at most 1 MiB each. Requests \
             that are no valid HTTP get plain text.",
        )
        .sets(set_error_pages),
    opt("error_pages_from", Text("microcache|all"), "microcache")
        .example("all")
        .help("Errors that get the pages: those of Microcache, or those of the origin too")
        .sets(|r, v, m| {
            let choices = [("microcache", false), ("all", true)];
            m.put(&mut r.route.error_pages.from_origin, v.choice(&choices));
        }),
];

fn set_error_pages(draft: &mut RouteDraft, value: &Value, mistakes: &mut Mistakes) {
    let Some(table) = mistakes.ok(value.table()) else {
        return;
    };
    let mut pages = Vec::new();
    for (key, file) in table.entries() {
        let Some(statuses) = statuses(&key.name) else {
            let what = format!("`{}` is no error", key.name);
            mistakes.note(
                Mistake::new(&key.place, what)
                    .remedy("write a status from 400 to 599, or \"4xx\" or \"5xx\""),
            );
            continue;
        };
        if let Some(file) = mistakes.ok(file.file()) {
            pages.push(ErrorPage::for_statuses(statuses, file));
        }
    }
    pages.sort_by_key(|page| page.statuses.len());
    draft.route.error_pages.pages = pages;
}

fn statuses(text: &str) -> Option<RangeInclusive<u16>> {
    match text {
        "4xx" => Some(400..=499),
        "5xx" => Some(500..=599),
        _ => text
            .parse()
            .ok()
            .filter(|status| (400..=599).contains(status))
            .map(|status| status..=status),
    }
}
