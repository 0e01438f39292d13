//! The stored versions of documents in one response, for clients that begin with more than the current one.

use std::sync::Arc;

use bytes::Bytes;
use microcache_engine::OriginResponse;

use crate::answer;
use crate::changes::change::DocumentChange;
use crate::changes::events::{EventFormat, encode};
use crate::changes::version::{DocumentVersion, EventId};
use crate::documents::Documents;
use crate::name::Pattern;
use crate::subscribing::subscription::{SubscribeError, SubscribeRequest};

/// Limits of a response: versions, and bytes. The newest version is sent whatever its size.
pub(crate) const MAX_VERSIONS: usize = 1000;
const MAX_BYTES: usize = 1024 * 1024;

/// A version, with the name that its event has.
type NamedVersion = (Arc<DocumentChange>, DocumentVersion);

/// The stored versions of some documents.
struct StoredVersions {
    versions: Vec<NamedVersion>,
    /// The position from which a subscription continues.
    position: EventId,
    /// True if all versions since the documents were created are there.
    are_all: bool,
}

/// Answers with up to `most` versions of each document, oldest first, and the id from which a subscription continues.
pub(crate) fn stored_versions(
    documents: &Documents,
    request: &SubscribeRequest,
    most: usize,
) -> OriginResponse {
    if !documents.are_loaded() {
        return SubscribeError::NoDocuments.answer();
    }
    let has_others = !request.pages.is_empty();
    if has_others || request.documents.iter().any(Pattern::matches_several) {
        return answer::problem(
            400,
            "history is that of documents: name them in `url`, without pages and patterns",
        );
    }
    let mut found = StoredVersions::of(documents, request, most);
    // The rest is done outside of the lock.
    found
        .versions
        .sort_unstable_by_key(|(change, _)| change.number);
    let mut events = Vec::new();
    let mut size = 0;
    while let Some((change, version)) = found.versions.pop() {
        if !events.is_empty() && (events.len() == MAX_VERSIONS || size >= MAX_BYTES) {
            found.are_all = false;
            break;
        }
        let event = encode(&change, version, EventFormat::Json);
        size += event.len();
        events.push(event);
    }
    events.reverse();
    let end = format!(
        "],\"last_event_id\":\"{}\",\"complete\":{}}}",
        found.position, found.are_all
    );
    let body = [
        &b"{\"events\":["[..],
        &events.join(&b","[..]),
        end.as_bytes(),
    ]
    .concat();
    let mut answer = answer::whole(200, "application/json", Bytes::from(body));
    answer.fields.push("Cache-Control", "no-store");
    answer
}

impl StoredVersions {
    fn of(documents: &Documents, request: &SubscribeRequest, most: usize) -> Self {
        let index = documents.index.lock();
        let (mut versions, mut are_all) = (Vec::new(), true);
        let names = request
            .documents
            .iter()
            .filter_map(|pattern| match pattern {
                Pattern::Exact(name) => Some(name),
                Pattern::Glob(_) | Pattern::Template(_) => None,
            });
        for document in names.filter_map(|name| index.document(name)) {
            are_all &= document.has_all(most);
            versions.extend(document.newest(most).map(|change| {
                let version = index.generations.version(change.number);
                (Arc::clone(change), version)
            }));
        }
        Self {
            versions,
            position: EventId {
                version: DocumentVersion {
                    epoch: index.generations.current(),
                    number: index.newest,
                },
                snapshot_through: 0,
            },
            are_all,
        }
    }
}
