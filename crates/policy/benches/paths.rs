//! The cost of reading a path in all ways, which a request pays where a route goes by the path.

#[path = "../../engine/benches/support/mod.rs"]
#[expect(dead_code, reason = "nothing here has fields")]
mod support;

use std::hint::black_box;

use microcache_policy::readings::{is_plain, readings};
use support::Case;

/// One look at a path, and all its readings if it has several.
fn reading(path: &'static str, count: usize) -> Box<dyn FnMut()> {
    Box::new(move || {
        let path = black_box(path.as_bytes());
        let read = if is_plain(path) {
            1
        } else {
            readings(path).map_or(0, |all| all.len())
        };
        assert_eq!(read, count);
    })
}

const CASES: &[Case] = &[
    Case {
        name: "a plain path",
        prepare: || reading("/articles/2026/a-page-worth-caching", 1),
    },
    Case {
        name: "a path with `%20`",
        prepare: || reading("/articles/2026/a%20page", 2),
    },
    Case {
        name: "a path with `%2F`",
        prepare: || reading("/api/v4/projects/group%2Fproject", 2),
    },
    Case {
        name: "a path with `..%252f`",
        prepare: || reading("/static/..%252faccount", 4),
    },
];

fn main() {
    support::main("Reading paths", CASES);
}
