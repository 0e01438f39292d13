//! The clients' requests: an honest one sends what browsers send, a hostile one whatever might do
//! harm.

use std::fmt::Write as _;

use super::{Chance, HONEST_SECRET, HOST, HOSTILE_SECRET, Lines, Page, Version, joined};

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct TestRequest {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) fields: Lines,
    pub(crate) has_body: bool,
}

impl TestRequest {
    fn get(page: &Page) -> Self {
        Self {
            method: "GET".to_owned(),
            target: page.path.clone(),
            fields: vec![("Host".to_owned(), HOST.to_owned())],
            has_body: false,
        }
    }

    fn with(mut self, name: &str, value: &str) -> Self {
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same without conditions and range.
    pub(crate) fn plain(&self) -> Self {
        let mut plain = self.clone();
        let asks_less = |name: &str| matches!(name, "If-None-Match" | "Range");
        plain.fields.retain(|(name, _)| !asks_less(name));
        plain
    }

    /// The request in HTTP/1 notation, without the protocol's own fields.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{} {}\n", self.method, self.target);
        for (name, value) in &self.fields {
            let shown: String = value.chars().take(60).collect();
            let more = if value.len() > 60 { "…" } else { "" };
            writeln!(text, "    {name}: {shown}{more}").expect("a string takes it");
        }
        text
    }
}

/// The request of an ordinary browser: always the same values of the fields that pages vary on.
pub(crate) fn honest(chance: &mut Chance, page: &Page, number: usize) -> TestRequest {
    let usual = USUAL.into_iter();
    let requested = usual.fold(TestRequest::get(page), |requested, (name, value)| {
        requested.with(name, value)
    });
    let mut cookie = format!("_ga=GA1.2.{number}");
    if page.greets && chance.one_in(6) {
        write!(cookie, "; session={HONEST_SECRET}").expect("a string takes it");
    }
    let mut requested = requested
        .with("Cookie", &cookie)
        .with("X-Step", &number.to_string());
    match chance.below(12) {
        0 => requested.method = "HEAD".to_owned(),
        1 => requested = requested.with("Range", "bytes=2-5"),
        2 => {
            let first = page.answer(&requested, Version::default(), 0);
            if let Some(tag) = joined(&first.fields, "etag") {
                requested = requested.with("If-None-Match", &tag);
            }
        }
        _ => {}
    }
    requested
}

/// A request that might do harm. The page defines the origin's reaction to it. `favourite` is the
/// number of the attack that this client repeats.
pub(crate) fn hostile(chance: &mut Chance, page: &Page, favourite: usize) -> TestRequest {
    let mut requested = TestRequest::get(page);
    for _ in 0..[0, 1, 1, 1, 2, 2, 3, 6][chance.below(8)] {
        let any = chance.below(POISONS.len());
        let chosen = if chance.one_in(2) {
            favourite % POISONS.len()
        } else {
            any
        };
        let (name, values) = POISONS[chosen];
        let value = filled_in(chance.pick(values), chance);
        requested = requested.with(name, &value);
    }
    match chance.below(16) {
        0 | 1 => requested.method = "HEAD".to_owned(),
        2 => {
            requested.method = chance
                .pick(&["POST", "DELETE", "FROB", "OPTIONS"])
                .to_owned();
        }
        3 => requested.has_body = true,
        _ => {}
    }
    // The rest is as in honest requests, so that most share their key and selection.
    for (name, value) in USUAL {
        let is_there = requested
            .fields
            .iter()
            .any(|(n, _)| n.eq_ignore_ascii_case(name));
        if !is_there && !chance.one_in(12) {
            requested = requested.with(name, value);
        }
    }
    requested
}

/// Fills in values that are too long, or too many, for a table.
fn filled_in(value: &str, chance: &mut Chance) -> String {
    match value {
        "BIG" => "x".repeat(10_000),
        "MANY" => {
            let members: Vec<_> = (0..71).map(|number| format!("x{number}")).collect();
            format!("{}, fr, br", members.join(","))
        }
        _ => value
            .replace('#', &chance.below(1_000).to_string())
            .replace("SECRET", HOSTILE_SECRET),
    }
}

/// The values that honest clients send in the fields that pages vary on.
const USUAL: [(&str, &str); 4] = [
    ("User-Agent", "Mozilla/5.0"),
    ("Accept-Encoding", "gzip, deflate, br, zstd"),
    ("Accept-Language", "de-AT,de;q=0.8,en;q=0.5"),
    ("X-Lang", "a"),
];

/// Fields and their harmful values. `#` is a number, `BIG` a value that is too large, `MANY` a long
/// list.
const POISONS: &[(&str, &[&str])] = &[
    (
        "Accept-Encoding",
        &[
            "",
            "gzip",
            "br",
            "identity",
            "*",
            "*;q=0",
            "gzip;x",
            "gzip;q=0, br;q=0",
            "identity;q=0",
            "GZIP, BR;q=0",
            "zstd",
            "gzip;q=2",
            "x#",
            "MANY",
        ],
    ),
    (
        "Accept-Language",
        &[
            "",
            "zz",
            "*",
            "fr",
            "en",
            "de;q=0.1, fr;q=0.2",
            "de;q=0",
            "*, de;q=0",
            "de;x",
            "fr-CA, *",
            "en-US,en;q=0.5",
            "x#",
            "MANY",
        ],
    ),
    (
        "X-Lang",
        &["", "odd", "odd", "odd", "b", "a, b", "a ", "A", "x#"],
    ),
    ("x-lang", &["a", "odd", "x#"]),
    (
        "Origin",
        &["https://evil.example", "null", "", "https://#.example"],
    ),
    ("User-Agent", &["evil", "Mobile", "", "x#"]),
    ("X-Big", &["BIG"]),
    (
        "Cookie",
        &[
            "session=SECRET",
            "a=b",
            "theme=dark",
            "_ga=6; theme=light",
            "_ga=#",
            "theme=#",
        ],
    ),
    ("Authorization", &["Basic SECRET"]),
    (
        "Range",
        &[
            "bytes=0-0",
            "bytes=999999-",
            "bytes=-1",
            "bytes=2-1",
            "bytes=0-0,2-3",
            "lines=1-2",
        ],
    ),
    ("If-Match", &["\"no\"", "*", "W/\"no\""]),
    ("If-None-Match", &["*", "\"no\"", "no"]),
    (
        "If-Modified-Since",
        &["Thu, 31 Jan 2030 08:00:00 GMT", "yesterday"],
    ),
    ("If-Unmodified-Since", &["Fri, 01 Jan 1999 08:00:00 GMT"]),
    ("If-Range", &["\"no\"", "*"]),
    (
        "Cache-Control",
        &[
            "no-store",
            "no-cache",
            "max-age=0",
            "max-age=1",
            "min-fresh=99999",
            "only-if-cached",
            "max-stale",
            "no-transform",
            "No-Store=x",
            "max-age=x",
        ],
    ),
    ("Cache-Control", &["max-age=1", "min-fresh=99999"]),
    ("Pragma", &["no-cache"]),
    (
        "Connection",
        &[
            "x-lang",
            "accept-language, accept-encoding",
            "cookie",
            "close",
            "x-step, vary",
        ],
    ),
    ("X-Forwarded-Host", &["evil.example"]),
    ("X_Forwarded_Host", &["evil.example"]),
    ("Accept", &["text/event-stream", "*/*"]),
    ("TE", &["trailers"]),
    ("X-Crash", &["500", "502", "drop", "garbage"]),
    ("X-Delay", &["100", "1000", "3000"]),
];
