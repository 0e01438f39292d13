//! The responses of documents, ready to be served.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use http::Method;
use microcache_engine::clock;
use microcache_policy::{
    Fields, FieldsBuf, Millis, RequestFacts, ResponseFacts, Rules, Storable, Time, Times, date,
    storable,
};
use microcache_store::{Hit, Memory, Stored};
use parking_lot::RwLock;

use crate::changes::change::{DocumentChange, DocumentContent};
use crate::changes::version::DocumentVersion;
use crate::documents::monitor::{MonitorValidator, monitor_link};
use crate::name::DocumentName;

/// Lifetime of a document's response in milliseconds, 68 years: the longest that a stored response has room for in its
/// head.
const ALWAYS: Millis = ((1 << 31) - 1) * 1000;

/// The responses by document name, behind the only lock that readers take.
#[derive(Default)]
pub(crate) struct DocumentResponses(RwLock<HashMap<DocumentName, Hit, RandomState>>);

impl DocumentResponses {
    /// Returns the response for a path.
    pub(crate) fn get(&self, path: &[u8]) -> Option<Hit> {
        let path = std::str::from_utf8(path).ok()?;
        self.0.read().get(path).cloned()
    }

    /// Removes the response of a document.
    pub(crate) fn remove(&self, name: &str) {
        let before = self.0.write().remove(name);
        drop(before);
    }

    /// Replaces the response of a document after a change.
    pub(crate) fn update(
        &self,
        change: &DocumentChange,
        version: DocumentVersion,
        (now, is_private): (Time, bool),
    ) {
        let response = change
            .content
            .as_ref()
            .and_then(|content| response(&change.name, content, version, (now, is_private)));
        let mut responses = self.0.write();
        let before = match response {
            Some(response) => responses.insert(Arc::clone(&change.name), response),
            None => responses.remove(&change.name),
        };
        drop(responses);
        // A large document is freed without holding the lock.
        drop(before);
    }
}

/// Builds the response of a document. Downstream caches revalidate it on every use (`no-cache`); here it is
/// always fresh. A private document must not be stored by shared caches.
fn response(
    name: &str,
    content: &DocumentContent,
    version: DocumentVersion,
    (now, is_private): (Time, bool),
) -> Option<Hit> {
    let mut fields = FieldsBuf::new();
    fields.push("Date", date::format(clock::date(now)));
    fields.push("Content-Type", &*content.media_type);
    fields.push("ETag", version.entity_tag());
    fields.push("X-Content-Type-Options", "nosniff");
    let version = version.to_string();
    if let Some(link) = monitor_link(name.as_bytes(), MonitorValidator::Version(&version)) {
        fields.push("Link", link);
    }
    let rules = Rules {
        forced_ttl: Some(ALWAYS),
        ..Rules::default()
    };
    let get = RequestFacts::read(&Method::GET, Fields::default(), false, &rules);
    let lifetime = {
        let response = ResponseFacts::read(fields.fields(), &rules);
        match storable(&get, 200, &response, Times::at(now)) {
            Storable::Yes(lifetime) => lifetime,
            Storable::No(_) => return None,
        }
    };
    let caching = if is_private {
        "private, no-cache"
    } else {
        "no-cache"
    };
    fields.push("Cache-Control", caching);
    let body = content.body.clone().into();
    let stored = Stored::new(b"", 200, fields.fields(), body, lifetime, now);
    Some(Memory::detached_hit(stored))
}

#[cfg(test)]
mod tests {
    use super::*;
    use microcache_store::allocation::allocated;

    #[test]
    fn a_response_takes_no_more_memory_than_is_counted() {
        let version = DocumentVersion {
            epoch: u64::MAX,
            number: 10_000_000_000,
        };
        for length in [0, 100, 1000, Stored::COMPACT, Stored::COMPACT + 1, 1 << 20] {
            for name in ["/live/a", "/live/of-some-length/12345"] {
                let content = DocumentContent {
                    media_type: "application/json".into(),
                    body: vec![b'x'; length].into(),
                };
                let now = Time::from_millis(1_800_000_000_000);
                let response =
                    response(name, &content, version, (now, true)).expect("it can be stored");
                let shared = if length > Stored::COMPACT {
                    allocated(length)
                } else {
                    0
                };
                let (taken, counted) = (response.weight() - shared, content.response_size(name));
                assert!(
                    taken <= counted,
                    "{length} {name}: {taken}, {counted} counted"
                );
            }
        }
    }
}
