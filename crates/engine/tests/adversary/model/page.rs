//! The origin's pages: each is a function of the request and of the page's version.

use super::request::TestRequest;
use super::selection::{choice, cookie};
use super::{Chance, Lines, all, joined};

/// A page.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub(crate) path: String,
    /// The fields it always varies on; and one more if the first has an odd value.
    pub(crate) vary: Vec<&'static str>,
    pub(crate) deeper: Option<&'static str>,
    /// Its caching directives, and the freshness that they give.
    pub(crate) says: &'static str,
    pub(crate) fresh: u64,
    pub(crate) tags: bool,
    pub(crate) dates: bool,
    /// Logged-in readers are greeted by name.
    pub(crate) greets: bool,
    /// The response to requests whose `x-lang` is "odd".
    pub(crate) odd: Odd,
    pub(crate) size: usize,
    pub(crate) chunked: bool,
    /// The lifetime of a version in milliseconds.
    pub(crate) period: u64,
}

/// The peculiarity of the response for one value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Odd {
    Nothing,
    Private,
    NoStore,
    SetCookie,
    Redirect,
    NotFound,
    Forbidden,
    VaryAny,
}

/// A version of a page: its edition by time, and the number of edits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) edits: u64,
    pub(crate) edition: u64,
}

/// A response of the origin.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) fields: Lines,
    pub(crate) body: Vec<u8>,
    pub(crate) chunked: bool,
    /// The response may be served to every request that selects the same representation.
    pub(crate) shareable: bool,
}

const WAYS: [(&str, u64); 10] = [
    ("", 1_000),
    ("max-age=60", 60_000),
    ("public, max-age=60", 60_000),
    ("s-maxage=30", 30_000),
    ("max-age=20, must-revalidate", 20_000),
    (
        "max-age=5, stale-while-revalidate=5, stale-if-error=60",
        5_000,
    ),
    ("no-cache", 0),
    ("private, max-age=60", 0),
    ("no-store", 0),
    ("max-age=60, no-transform", 60_000),
];

impl Page {
    /// A page that every cache should store for a minute, whatever it varies on.
    pub(crate) fn front(chance: &mut Chance) -> Self {
        Self {
            says: chance.pick(&["max-age=60", "public, max-age=60"]),
            fresh: 60_000,
            size: chance.below(3) * 1_000,
            ..Self::any(chance, 0)
        }
        .honest()
    }

    /// Removes contradictions: a page declared shareable that is not would be the origin's own
    /// mistake.
    fn honest(mut self) -> Self {
        let for_everyone = ["public", "s-maxage", "must-revalidate"];
        self.greets &= !for_everyone.iter().any(|word| self.says.contains(word));
        self
    }

    pub(crate) fn any(chance: &mut Chance, number: usize) -> Self {
        const FIELDS: [&str; 6] = [
            "accept-encoding",
            "accept-language",
            "x-lang",
            "cookie",
            "origin",
            "user-agent",
        ];
        const ODD: [Odd; 8] = [
            Odd::Nothing,
            Odd::Private,
            Odd::NoStore,
            Odd::SetCookie,
            Odd::Redirect,
            Odd::NotFound,
            Odd::Forbidden,
            Odd::VaryAny,
        ];
        const SIZES: [usize; 4] = [0, 1_000, 40_000, 200_000];
        let mut vary = Vec::new();
        for _ in 0..chance.below(4) {
            let name = chance.pick(&FIELDS);
            if !vary.contains(&name) {
                vary.push(name);
            }
        }
        let (says, fresh) = WAYS[chance.below(WAYS.len())];
        Self {
            path: format!("/page-{number}"),
            deeper: (!vary.is_empty() && chance.one_in(3)).then(|| chance.pick(&FIELDS)),
            vary,
            says,
            fresh,
            tags: chance.one_in(2),
            dates: chance.one_in(2),
            greets: chance.one_in(2),
            odd: ODD[chance.below(ODD.len())],
            size: SIZES[chance.below(SIZES.len())],
            chunked: chance.one_in(2),
            period: [3_000, 50_000, 1 << 40][chance.below(3)],
        }
        .honest()
    }

    /// Returns true if clients can create any number of variants.
    pub(crate) fn has_any_number_of_variants(&self) -> bool {
        let any = |name: &&str| *name != "accept-encoding";
        self.vary.iter().any(any) || self.deeper.as_ref().is_some_and(any)
    }

    /// Returns true if some responses have `Vary: *`.
    pub(crate) fn may_depend_on_anything(&self) -> bool {
        self.odd == Odd::VaryAny
    }

    /// The origin's response. `serial` differs between requests.
    pub(crate) fn answer(&self, requested: &TestRequest, version: Version, serial: usize) -> Reply {
        if requested
            .fields
            .iter()
            .any(|(_, value)| value.len() > 8_000)
        {
            return Reply::of_one(431, "too large");
        }
        if joined(&requested.fields, "user-agent").is_some_and(|agent| agent.contains("evil")) {
            return Reply::of_one(403, "go away");
        }
        if requested.has_body && requested.method == "GET" {
            return Reply::of_one(200, "you sent a body");
        }
        let whole = self.whole(requested, version, serial);
        if (200..300).contains(&whole.status) {
            part_of(whole, requested)
        } else {
            whole
        }
    }

    /// The representation that the request selects, regardless of its conditions.
    fn whole(&self, requested: &TestRequest, version: Version, serial: usize) -> Reply {
        let mut names = self.vary.clone();
        let first = names.first().map(|name| choice(name, &requested.fields));
        let is_odd = first.is_some_and(|first| !matches!(first.as_str(), "en" | "br" | "-"));
        names.extend(
            self.deeper
                .filter(|name| is_odd && !self.vary.contains(name)),
        );
        let choices: Vec<_> = names
            .iter()
            .map(|name| format!("{name}={}", choice(name, &requested.fields)))
            .collect();
        let reader = if self.greets {
            reader(&requested.fields)
        } else {
            None
        };
        let made_for = format!(
            "http://{}{} e{} v{} {} {}",
            joined(&requested.fields, "host").unwrap_or_default(),
            self.path,
            version.edits,
            version.edition,
            choices.join(" "),
            reader.as_deref().unwrap_or("everyone")
        );
        let mut body = format!("{made_for} ").into_bytes();
        body.resize(body.len() + self.size, b'.');
        let mut reply = Reply {
            status: 200,
            fields: vec![("X-Made-For".to_owned(), made_for.clone())],
            body,
            chunked: self.chunked,
            shareable: self.fresh > 0 && reader.is_none(),
        };
        for name in &names {
            // Always, each on a line of its own.
            let spelled = if self.chunked {
                name.to_uppercase()
            } else {
                (*name).to_owned()
            };
            reply.push("Vary", &spelled);
            if *name == "accept-encoding" && choice(name, &requested.fields) != "identity" {
                reply.push("Content-Encoding", &choice(name, &requested.fields));
            }
        }
        if let Some(reader) = &reader {
            // Half of the applications forget to mark this as private.
            let says = if self.tags { "private" } else { "max-age=60" };
            reply.push("Cache-Control", says);
            reply.push("X-Reader", reader);
            return reply;
        }
        if !self.says.is_empty() {
            reply.push("Cache-Control", self.says);
        }
        if self.tags {
            reply.push("ETag", &format!("\"{:x}\"", digest(&made_for)));
        }
        if self.dates && names.is_empty() && version.edits == 0 {
            let (minute, second) = (version.edition / 60 % 60, version.edition % 60);
            let date = format!("Mon, 01 Feb 2010 08:{minute:02}:{second:02} GMT");
            reply.push("Last-Modified", &date);
        }
        let is_odd = names.contains(&"x-lang")
            && joined(&requested.fields, "x-lang").is_some_and(|value| value == "odd");
        if is_odd {
            self.odd.change(&mut reply, serial);
        }
        reply
    }
}

impl Odd {
    fn change(self, reply: &mut Reply, serial: usize) {
        let status = match self {
            Self::Redirect => 302,
            Self::NotFound => 404,
            Self::Forbidden => 403,
            _ => 200,
        };
        if status != 200 {
            reply.fields.retain(|(name, _)| {
                !matches!(name.as_str(), "ETag" | "Last-Modified" | "Cache-Control")
            });
            reply.status = status;
        }
        match self {
            Self::Private => reply.set("Cache-Control", "private"),
            Self::NoStore => reply.set("Cache-Control", "no-store"),
            Self::SetCookie => reply.push("Set-Cookie", &format!("id={serial}")),
            Self::Redirect => reply.push("Location", "/elsewhere"),
            Self::VaryAny => reply.push("Vary", "*"),
            Self::NotFound | Self::Forbidden | Self::Nothing => {}
        }
        reply.shareable &= matches!(self, Self::Nothing);
    }
}

impl Reply {
    /// A response without caching directives, of a kind that is for one client only.
    fn of_one(status: u16, text: &str) -> Self {
        let mut fields = vec![("X-Made-For".to_owned(), text.to_owned())];
        if status == 200 {
            fields.push(("Cache-Control".to_owned(), "max-age=60".to_owned()));
        }
        Self {
            status,
            fields,
            body: text.as_bytes().to_vec(),
            chunked: false,
            shareable: false,
        }
    }

    pub(crate) fn push(&mut self, name: &str, value: &str) {
        self.fields.push((name.to_owned(), value.to_owned()));
    }

    /// Checks whether this is the response that such a request gets.
    pub(crate) fn matches(
        &self,
        requested: &TestRequest,
        status: u16,
        fields: &Lines,
        body: &[u8],
    ) -> bool {
        let bodiless = requested.method == "HEAD" || status == 304;
        let made_for = |fields| joined(fields, "x-made-for");
        self.status == status
            && body == if bodiless { &[] } else { self.body.as_slice() }
            && (made_for(&self.fields) == made_for(fields) || status == 304)
    }

    fn set(&mut self, name: &str, value: &str) {
        self.fields.retain(|(n, _)| n != name);
        self.push(name, value);
    }
}

/// The name of the logged-in reader, by any kind of credential.
fn reader(request: &Lines) -> Option<String> {
    let cookie = cookie(request, "session").map(str::to_owned);
    cookie.or_else(|| joined(request, "authorization"))
}

/// Evaluates conditions and ranges (RFC 9110 §13.2.2).
fn part_of(whole: Reply, requested: &TestRequest) -> Reply {
    let field = |name| joined(&requested.fields, name);
    let tag = all(&whole.fields, "etag").next();
    let modified = all(&whole.fields, "last-modified").next();
    let names_it = |list: &str| {
        list.trim() == "*" || tag.is_some_and(|tag| list.split(',').any(|one| one.trim() == tag))
    };
    if let Some(list) = field("if-match") {
        if !names_it(&list) {
            return failed(whole);
        }
    } else if field("if-unmodified-since").is_some_and(|date| date.contains("1999")) {
        return failed(whole);
    }
    let unmodified = match field("if-none-match") {
        Some(list) => names_it(&list),
        None => field("if-modified-since")
            .is_some_and(|date| Some(date.as_str()) == modified || date.contains("2030")),
    };
    if unmodified {
        return not_modified(whole);
    }
    let holds = field("if-range").is_none_or(|value| Some(value.as_str()) == tag);
    match field("range") {
        Some(range) if holds && requested.method == "GET" && whole.status == 200 => {
            cut(whole, &range)
        }
        _ => whole,
    }
}

fn failed(whole: Reply) -> Reply {
    Reply {
        status: 412,
        body: b"no".to_vec(),
        chunked: false,
        ..whole
    }
}

fn not_modified(whole: Reply) -> Reply {
    let mut reply = Reply {
        status: 304,
        body: Vec::new(),
        chunked: false,
        ..whole
    };
    reply.fields.retain(|(name, _)| name != "Content-Encoding");
    reply
}

fn cut(mut whole: Reply, range: &str) -> Reply {
    let length = whole.body.len();
    let bounds = range.strip_prefix("bytes=").and_then(|range| {
        let (first, last) = range.split_once('-')?;
        let last = if last.is_empty() {
            length - 1
        } else {
            last.parse().ok()?
        };
        Some((first.parse::<usize>().ok()?, last.min(length - 1)))
    });
    match bounds {
        Some((first, last)) if first <= last => {
            whole.status = 206;
            whole.push("Content-Range", &format!("bytes {first}-{last}/{length}"));
            whole.body = whole.body[first..=last].to_vec();
        }
        Some((first, _)) if first >= length => {
            whole.status = 416;
            whole.push("Content-Range", &format!("bytes */{length}"));
            whole.body = Vec::new();
        }
        _ => return whole,
    }
    whole.chunked = false;
    whole
}

fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
