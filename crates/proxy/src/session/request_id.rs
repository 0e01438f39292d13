//! Identifiers of requests, for logs and for fields that the operator sets.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use microcache_engine::{Request, RequestId};
use microcache_policy::Fields;

/// Longest identifier of a trusted proxy, in bytes.
const LONGEST: usize = 128;

thread_local! {
    /// Keys of a keyed hash, and the number of the next request.
    static NEXT: (RandomState, Cell<u64>) = (RandomState::new(), Cell::new(0));
}

/// Returns a new identifier. Those of other requests do not help to guess it.
#[cold]
#[inline(never)]
pub(super) fn assign() -> RequestId {
    NEXT.with(|(keys, number)| {
        let number_now = number.replace(number.get().wrapping_add(1));
        RequestId::of([0_u8, 1].map(|half| keys.hash_one((number_now, half))))
    })
}

/// Returns the identifier of a request: that of the trusted proxy in front, or else the one assigned here, if any.
pub fn request_id<'a>(request: &Request<'a>) -> Option<Cow<'a, [u8]>> {
    let id = request.id?;
    let of_proxy = request.is_trusted.then(|| sent(request.fields)).flatten();
    Some(of_proxy.map_or_else(|| id.to_string().into_bytes().into(), Cow::from))
}

/// Returns the only `X-Request-ID`, if it is short and visible ASCII.
fn sent(fields: Fields<'_>) -> Option<&[u8]> {
    let mut values = fields.all("X-Request-ID");
    let value = values.next().filter(|_| values.next().is_none())?;
    let is_usual = (1..=LONGEST).contains(&value.len()) && value.iter().all(u8::is_ascii_graphic);
    is_usual.then_some(value)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use microcache_policy::{FieldsBuf, Scheme};

    use super::*;

    fn id_of(id: Option<RequestId>, is_trusted: bool, values: &[&str]) -> Option<String> {
        let mut fields = FieldsBuf::new();
        for value in values {
            fields.push("x-request-id", value);
        }
        let request = Request {
            fields: fields.fields(),
            is_trusted,
            id,
            ..Request::of_url(Scheme::Http, b"a", b"/")
        };
        let text = request_id(&request)?;
        Some(String::from_utf8(text.into_owned()).expect("text"))
    }

    #[test]
    fn the_value_of_a_trusted_proxy_comes_before_our_own() {
        let id = RequestId::of([1, u64::MAX]);
        let own = Some("0000000000000001ffffffffffffffff".to_owned());
        let long = "a".repeat(LONGEST + 1);
        assert_eq!(id_of(Some(id), true, &["r-1"]), Some("r-1".to_owned()));
        assert_eq!(
            id_of(Some(id), true, &[&long[1..]]),
            Some(long[1..].to_owned())
        );
        for (is_trusted, values) in [
            (false, &["r-1"][..]),
            (true, &[]),
            (true, &["r-1", "r-2"]),
            (true, &[""]),
            (true, &["a b"]),
            (true, &[&long]),
        ] {
            assert_eq!(id_of(Some(id), is_trusted, values), own, "{values:?}");
        }
        assert_eq!(id_of(None, true, &["r-1"]), None);
    }

    #[test]
    fn each_request_has_its_own() {
        let assigned = || (0..1000).map(|_| assign().to_string()).collect::<Vec<_>>();
        let other = std::thread::spawn(assigned).join().expect("no panic");
        let all: HashSet<String> = assigned().into_iter().chain(other).collect();
        assert_eq!(all.len(), 2000);
        assert!(all.iter().all(|id| id.len() == 32));
    }
}
