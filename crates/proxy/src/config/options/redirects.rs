//! Options of lists of redirects, at the top for all routes or in one route.

use super::super::option::Form::Text;
use super::super::option::{Opt, optional};
use super::route::RouteDraft;

/// Options of lists of redirects.
pub(in crate::config) const REDIRECTS: &[Opt<RouteDraft>] = &[optional(
    "redirects",
    Text("FILE"),
    "/etc/microcache/redirects.txt",
)
.help("File with redirects of single URLs, as lines of `/old /new [status]`")
.more(
    "Read at the start and by a reload; at most 100,000 lines, `#` begins a comment. The status is \
     302 unless it says otherwise. A path is redirected with its query, unless the target has one; \
     `/old?id=1` is for that query only.",
)
.sets(|r, v, m| m.put(&mut r.route.redirects_file, v.file().map(Some)))];
