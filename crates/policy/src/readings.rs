//! The paths that applications may read a raw path as.
//!
//! The cache decodes nothing: keys and forwarded targets are raw. But an application may serve `/account` for
//! `/static/..%2faccount`, so rules about paths check all readings.

use memchr::{memchr, memchr3};

use crate::percent;

/// Maximum number of readings of one path. Real paths have a handful.
pub const MAX_READINGS: usize = 64;

/// Maximum number of decodings in a row: by a server in front of the application, and by the application.
const DECODINGS: usize = 2;

/// A transformation that some programs apply, in any order. `None` if it changes nothing.
type PathTransformation = fn(&[u8]) -> Option<Vec<u8>>;

const STEPS: [PathTransformation; 5] = [
    cut_short,
    without_parameters,
    with_slashes,
    with_merged_slashes,
    without_dot_segments,
];

/// Returns true if every program reads a path unchanged. Bytes that no raw path can have (`\`, `#`, NUL) are not
/// checked.
#[inline]
pub fn is_plain(path: &[u8]) -> bool {
    // On the hot path of routes by path: blocks of a fixed length compile to a few vector instructions. The last block
    // overlaps the one before it.
    let Some(last) = path.last_chunk::<BLOCK>() else {
        return !path.first().copied().is_some_and(is_odd)
            && !path.windows(2).any(|pair| is_odd_pair(pair[0], pair[1]));
    };
    let mut rest = path;
    while let Some(block) = rest.first_chunk::<BLOCK>() {
        if has_odd(block) {
            return false;
        }
        rest = &rest[BLOCK - 1..];
    }
    !has_odd(last)
}

/// The number of bytes that are checked together: 16, each with its successor.
const BLOCK: usize = 17;

fn has_odd(block: &[u8; BLOCK]) -> bool {
    let mut found = is_odd(block[0]);
    for at in 0..BLOCK - 1 {
        found |= is_odd_pair(block[at], block[at + 1]);
    }
    found
}

/// Returns true for a byte that makes a path ambiguous.
#[inline]
#[expect(
    clippy::needless_bitwise_bool,
    reason = "without branches the loop is vectorised"
)]
fn is_odd(byte: u8) -> bool {
    (byte == b'%') | (byte == b';')
}

/// Returns true if the second byte is odd, or if the two begin an empty segment or one with a dot.
#[inline]
#[expect(
    clippy::needless_bitwise_bool,
    reason = "without branches the loop is vectorised"
)]
fn is_odd_pair(first: u8, second: u8) -> bool {
    is_odd(second) | (first == b'/') & ((second == b'/') | (second == b'.'))
}

/// All readings of a path, itself first; `None` if there are more than [`MAX_READINGS`].
pub fn readings(path: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut all = vec![path.to_vec()];
    let mut begin = 0;
    for _ in 0..DECODINGS {
        close(&mut all, begin)?;
        let decoded: Vec<_> = all[begin..].iter().filter_map(|one| decoded(one)).collect();
        begin = all.len();
        for one in decoded {
            add(&mut all, one)?;
        }
    }
    close(&mut all, begin)?;
    Some(all)
}

/// Adds the results of all steps, in any order, to the paths from `begin` on.
fn close(all: &mut Vec<Vec<u8>>, begin: usize) -> Option<()> {
    let mut at = begin;
    while at < all.len() {
        for step in STEPS {
            if let Some(next) = step(&all[at]) {
                add(all, next)?;
            }
        }
        at += 1;
    }
    Some(())
}

fn add(all: &mut Vec<Vec<u8>>, one: Vec<u8>) -> Option<()> {
    if !all.contains(&one) {
        if all.len() == MAX_READINGS {
            return None;
        }
        all.push(one);
    }
    Some(())
}

/// Decodes `%XX` once. Invalid codes stay.
fn decoded(path: &[u8]) -> Option<Vec<u8>> {
    memchr(b'%', path)?;
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some(&byte) = rest.first() {
        let (length, byte) = percent::code(rest).map_or((1, byte), |code| (3, code));
        out.push(byte);
        rest = &rest[length..];
    }
    (out != path).then_some(out)
}

/// Cuts the path at a query or fragment that was encoded, or at NUL, like C strings.
fn cut_short(path: &[u8]) -> Option<Vec<u8>> {
    memchr3(b'?', b'#', 0, path).map(|at| path[..at].to_vec())
}

/// Removes path parameters, from `;` to the end of each segment, like servlet containers.
fn without_parameters(path: &[u8]) -> Option<Vec<u8>> {
    memchr(b';', path)?;
    let segments = path.split(|&byte| byte == b'/');
    let names = segments.map(|one| &one[..memchr(b';', one).unwrap_or(one.len())]);
    Some(names.collect::<Vec<_>>().join(&b'/'))
}

/// Replaces `\` by `/`, like programs on Windows.
fn with_slashes(path: &[u8]) -> Option<Vec<u8>> {
    memchr(b'\\', path)?;
    let slash = |&byte: &u8| if byte == b'\\' { b'/' } else { byte };
    Some(path.iter().map(slash).collect())
}

/// Merges consecutive slashes, like most servers.
fn with_merged_slashes(path: &[u8]) -> Option<Vec<u8>> {
    let mut out = path.to_vec();
    out.dedup_by(|next, before| *next == b'/' && *before == b'/');
    (out.len() < path.len()).then_some(out)
}

/// Removes dot segments (RFC 3986 §5.2.4). The root has no parent.
fn without_dot_segments(path: &[u8]) -> Option<Vec<u8>> {
    let relative = path.strip_prefix(b"/")?;
    let mut kept: Vec<&[u8]> = Vec::new();
    let mut segments = relative.split(|&byte| byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        match segment {
            b"." => {}
            b".." => {
                kept.pop();
            }
            name => {
                kept.push(name);
                continue;
            }
        }
        if segments.peek().is_none() {
            kept.push(b"");
        }
    }
    let out = [b"/", &*kept.join(&b'/')].concat();
    (out != path).then_some(out)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use proptest::prelude::*;

    use super::*;

    fn all(path: &str) -> Vec<String> {
        let text = |one| String::from_utf8(one).unwrap();
        let all = readings(path.as_bytes()).expect("few readings");
        all.into_iter().map(text).collect()
    }

    #[test]
    fn a_path_is_read_in_every_way_that_some_program_reads_it() {
        for (path, reading) in [
            ("/static/..%2faccount", "/account"),
            ("/static/..%2Faccount", "/account"),
            ("/static/../account", "/account"),
            ("/static/%2e%2e/account", "/account"),
            ("/static/.%2e/account", "/account"),
            ("/static/..;/account", "/account"),
            ("/static/..;a=b/account", "/account"),
            ("/static/..%3b/account", "/account"),
            ("/static/x;/%2e%2e/..;/account", "/account"),
            ("/static/..\\account", "/account"),
            ("/static/..%5caccount", "/account"),
            ("/static/%252e%252e%252faccount", "/account"),
            ("/static/%252e%252e%255caccount", "/account"),
            ("/static//../account", "/account"),
            ("/static//../account", "/static/account"),
            ("/static/./../account", "/account"),
            ("/static/../../account", "/account"),
            ("/account%3fx.css", "/account"),
            ("/account%23x.css", "/account"),
            ("/account%00.css", "/account"),
            ("/account;x.css", "/account"),
            // The parameter ends with the raw segment, or with the decoded one.
            ("/a/b;%2f../c", "/a/c"),
            ("/a/b;%2f../c", "/a/b/c"),
            ("/%6cogin", "/login"),
            ("/%256cogin", "/login"),
            ("//login", "/login"),
            ("/./login", "/login"),
            ("/login/.", "/login/"),
            ("/login/x/..", "/login/"),
            ("/.//login", "//login"),
            ("/../..", "/"),
        ] {
            let all = all(path);
            assert!(all.iter().any(|one| one == reading), "{path}: {all:?}");
            assert!(!is_plain(path.as_bytes()) || path.contains('\\'), "{path}");
        }
    }

    #[test]
    fn an_unambiguous_path_has_one_reading() {
        for path in ["/", "/a/b.css", "/a..b/c.", "/@scope/x+y", "*", "", "/a/b/"] {
            assert!(is_plain(path.as_bytes()), "{path}");
            assert_eq!(all(path), [path]);
        }
        // It is checked, and has a single reading.
        for path in ["/.well-known/x", "/a/.b/...", "/%", "/a%2", "/50%zz"] {
            assert!(!is_plain(path.as_bytes()), "{path}");
            assert_eq!(all(path), [path]);
        }
    }

    #[test]
    fn a_path_without_encoding_has_few_readings() {
        for (path, readings) in [
            (
                "/api/v4/projects/a%2Fb",
                &["/api/v4/projects/a%2Fb", "/api/v4/projects/a/b"][..],
            ),
            ("/@scope%2fpkg", &["/@scope%2fpkg", "/@scope/pkg"]),
            ("/caf%c3%a9%25", &["/caf%c3%a9%25"]),
            ("/a;v=1/b", &["/a;v=1/b", "/a/b"]),
            ("//a", &["//a", "/a"]),
        ] {
            let read = super::readings(path.as_bytes()).unwrap();
            let expected = readings.iter().map(|one| one.as_bytes());
            assert!(
                expected.eq(read.iter().take(readings.len()).map(Vec::as_slice)),
                "{path}"
            );
        }
    }

    #[test]
    fn a_path_with_too_many_readings_has_none() {
        let path = "/a;%3f/%2e%2e/%255c;%252f//..%5c%3b//%2523/./x%25%32%65".repeat(3);
        assert_eq!(readings(path.as_bytes()), None);
    }

    /// Paths in which each byte is special to some step.
    fn odd_path() -> impl Strategy<Value = String> {
        "(/|a|\\.|\\.\\.|;|%2f|%2e|%5c|%3b|%25){0,6}".prop_map(|rest| format!("/{rest}"))
    }

    proptest! {
        #[test]
        fn a_path_without_anything_to_read_has_one_reading(path in "/[a-c/.%;]{0,12}") {
            if is_plain(path.as_bytes()) {
                prop_assert_eq!(all(&path), [path]);
            }
        }

        #[test]
        fn readings_are_there_in_any_order_of_the_steps(path in odd_path(), steps in prop::collection::vec(0..6_usize, 0..8)) {
            let Some(all) = readings(path.as_bytes()) else { return Ok(()) };
            let (mut read, mut decodings) = (path.into_bytes(), 0);
            for step in steps {
                let next = match STEPS.get(step) {
                    Some(step) => step(&read),
                    None if decodings < DECODINGS => { decodings += 1; decoded(&read) }
                    None => None,
                };
                read = next.unwrap_or(read);
            }
            prop_assert!(all.contains(&read), "{:?}", String::from_utf8_lossy(&read));
        }

        #[test]
        fn encoded_characters_are_decoded(path in "/[a-c/.]{0,8}", encoded in any::<u16>(), twice in any::<bool>()) {
            let percent = if twice { "%25" } else { "%" };
            let raw = path.bytes().enumerate().fold(String::new(), |mut raw, (at, byte)| {
                if at > 0 && encoded >> at & 1 == 1 {
                    write!(raw, "{percent}{byte:02x}").unwrap();
                } else {
                    raw.push(byte.into());
                }
                raw
            });
            prop_assert!(all(&raw).contains(&path), "{}", raw);
        }

        #[test]
        fn any_bytes_are_read(path in any::<Vec<u8>>()) {
            readings(&path);
        }
    }
}
