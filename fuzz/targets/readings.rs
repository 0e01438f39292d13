//! The readings of a path, against a plain model that takes every step in every order.

#![no_main]

use std::collections::{BTreeSet, VecDeque};

use libfuzzer_sys::fuzz_target;
use microcache_policy::readings::{MAX_READINGS, is_plain, readings};

fuzz_target!(|path: &[u8]| {
    let model = model(path);
    let Some(all) = readings(path) else {
        assert!(model.len() > MAX_READINGS, "it has few readings");
        return;
    };
    assert_eq!(all[0], path, "the raw path comes first");
    let distinct: BTreeSet<_> = all.iter().cloned().collect();
    assert_eq!(distinct.len(), all.len(), "none is there twice");
    assert_eq!(distinct, model);
    if !is_odd(path) {
        assert_eq!(all.len(), 1, "it says nothing that is read in two ways");
    }
    // What no raw path can have is not looked for.
    if is_plain(path) && !path.iter().any(|byte| b"\\?#\0".contains(byte)) {
        assert_eq!(all.len(), 1, "a plain path has one reading");
    }
    for reading in all.iter().filter(|reading| !reading.contains(&b'%')) {
        let again = readings(reading).expect("no more than there were");
        let new = again.iter().find(|one| !distinct.contains(*one));
        assert_eq!(new, None, "a reading has no others than its path");
    }
});

/// Returns true if some program might read a path otherwise than it stands.
fn is_odd(path: &[u8]) -> bool {
    let mut segments = path.split(|&byte| byte == b'/').skip(1);
    path.iter().any(|byte| b"%\\;?#\0".contains(byte))
        || path.windows(2).any(|two| two == b"//")
        || segments.any(|one| one == b"." || one == b"..")
}

/// Returns all paths that the steps, in any order, make of a path. At most two of them decode. It ends where there are
/// too many.
fn model(path: &[u8]) -> BTreeSet<Vec<u8>> {
    let mut seen = BTreeSet::from([(path.to_vec(), 0)]);
    let mut left = VecDeque::from([(path.to_vec(), 0)]);
    let mut paths = BTreeSet::from([path.to_vec()]);
    while let Some((path, decodings)) = left.pop_front() {
        let steps = [
            (until(&path, b"?#\0").to_vec(), decodings),
            (
                by_segment(&path, |one| until(one, b";").to_vec()),
                decodings,
            ),
            (replaced(&path, b'\\', b'/'), decodings),
            (merged(&path), decodings),
            (resolved(&path), decodings),
            (decoded(&path), decodings + 1),
        ];
        for next in steps {
            if next.1 <= 2 && seen.insert(next.clone()) {
                paths.insert(next.0.clone());
                left.push_back(next);
            }
        }
        if paths.len() > MAX_READINGS {
            break;
        }
    }
    paths
}

fn until<'a>(text: &'a [u8], ends: &[u8]) -> &'a [u8] {
    let end = text.iter().position(|byte| ends.contains(byte));
    &text[..end.unwrap_or(text.len())]
}

fn by_segment(path: &[u8], each: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let segments: Vec<_> = path.split(|&byte| byte == b'/').map(each).collect();
    segments.join(&b'/')
}

fn replaced(path: &[u8], old: u8, new: u8) -> Vec<u8> {
    let one = |&byte: &u8| if byte == old { new } else { byte };
    path.iter().map(one).collect()
}

fn merged(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for &byte in path {
        if byte != b'/' || out.last() != Some(&b'/') {
            out.push(byte);
        }
    }
    out
}

/// RFC 3986 §5.2.4, as it stands there: from one buffer into another.
fn resolved(path: &[u8]) -> Vec<u8> {
    if !path.starts_with(b"/") {
        return path.to_vec();
    }
    let (mut input, mut output) = (path.to_vec(), Vec::new());
    while !input.is_empty() {
        if input.starts_with(b"/./") {
            input.drain(..2);
        } else if input == b"/." {
            input.truncate(1);
        } else if input.starts_with(b"/../") || input == b"/.." {
            input.splice(..input.len().min(4), *b"/");
            let last = output.iter().rposition(|&byte| byte == b'/');
            output.truncate(last.unwrap_or(0));
        } else {
            let next = input.iter().skip(1).position(|&byte| byte == b'/');
            output.extend(input.drain(..next.map_or(input.len(), |at| at + 1)));
        }
    }
    output
}

fn decoded(path: &[u8]) -> Vec<u8> {
    let digit = |at: usize| path.get(at).and_then(|&byte| char::from(byte).to_digit(16));
    let (mut out, mut at) = (Vec::new(), 0);
    while let Some(&byte) = path.get(at) {
        if let (b'%', Some(high), Some(low)) = (byte, digit(at + 1), digit(at + 2)) {
            out.push((high * 16 + low) as u8);
            at += 3;
        } else {
            out.push(byte);
            at += 1;
        }
    }
    out
}
