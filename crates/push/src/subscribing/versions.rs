//! The stored versions of documents in one response, for clients that begin with more than the current one.

use std::collections::BinaryHeap;
use std::iter::Peekable;
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

/// The newest stored versions of some documents, as many as a response may have.
struct StoredVersions {
    /// The newest one first.
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
    let mut events = Vec::new();
    let mut size = 0;
    for (change, version) in &found.versions {
        if !events.is_empty() && size >= MAX_BYTES {
            found.are_all = false;
            break;
        }
        let event = encode(change, *version, EventFormat::Json);
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
        let names = request
            .documents
            .iter()
            .filter_map(|pattern| match pattern {
                Pattern::Exact(name) => Some(name),
                Pattern::Glob(_) | Pattern::Template(_) => None,
            });
        let histories: Vec<_> = names.filter_map(|name| index.document(name)).collect();
        let have_all = histories.iter().all(|document| document.has_all(most));
        let changes = histories.iter().map(|document| document.newest(most));
        let (newest, has_more) = newest_of(changes);
        let versions = newest.into_iter().map(|change| {
            let version = index.generations.version(change.number);
            (Arc::clone(change), version)
        });
        Self {
            versions: versions.collect(),
            position: EventId {
                version: DocumentVersion {
                    epoch: index.generations.current(),
                    number: index.newest,
                },
                snapshot_through: 0,
            },
            are_all: have_all && !has_more,
        }
    }
}

/// Returns the newest [`MAX_VERSIONS`] of the changes of several documents, newest first, and whether there are more. Of the
/// changes, each document's newest first, not one more than these is looked at, but for the next one of each document: the
/// index is locked.
fn newest_of<'a>(
    documents: impl Iterator<Item = impl Iterator<Item = &'a Arc<DocumentChange>>>,
) -> (Vec<&'a Arc<DocumentChange>>, bool) {
    let mut documents: Vec<_> = documents.map(Iterator::peekable).collect();
    let numbered = |(at, changes): (usize, &mut Peekable<_>)| {
        let next: Option<&&Arc<DocumentChange>> = changes.peek();
        next.map(|change| (change.number, at))
    };
    let heads = documents.iter_mut().enumerate().filter_map(numbered);
    let mut heads: BinaryHeap<_> = heads.collect();
    let mut newest = Vec::new();
    while newest.len() < MAX_VERSIONS
        && let Some((_, at)) = heads.pop()
    {
        newest.extend(documents[at].next());
        heads.extend(numbered((at, &mut documents[at])));
    }
    (newest, !heads.is_empty())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn changes(numbers: impl Iterator<Item = u64>) -> Vec<Arc<DocumentChange>> {
        let change = |number| {
            Arc::new(DocumentChange {
                number,
                name: "/live/x".into(),
                content: None,
                expires: None,
                delta: None,
            })
        };
        numbers.map(change).collect()
    }

    #[test]
    fn the_newest_changes_of_all_documents_are_found_without_the_others() {
        const DOCUMENTS: u64 = 100;
        for (each, expected, is_more_expected) in [
            (0, 0, false),
            (3, 300, false),
            (10, MAX_VERSIONS as u64, false),
            (1000, MAX_VERSIONS as u64, true),
        ] {
            let newest = each * DOCUMENTS;
            let of = |document| (0..each).map(move |age| newest - document - age * DOCUMENTS);
            let documents: Vec<_> = (0..DOCUMENTS)
                .map(|document| changes(of(document)))
                .collect();
            let looked_at = Cell::new(0);
            let counted = documents.iter().map(|changes| {
                changes
                    .iter()
                    .inspect(|_| looked_at.set(looked_at.get() + 1))
            });
            let (found, are_more) = newest_of(counted);
            let numbers: Vec<_> = found.iter().map(|change| change.number).collect();
            let expected: Vec<_> = (0..expected).map(|age| newest - age).collect();
            assert_eq!((numbers, are_more), (expected, is_more_expected), "{each}");
            assert!(
                looked_at.get() <= MAX_VERSIONS as u64 + DOCUMENTS,
                "{each}: {}",
                looked_at.get()
            );
        }
    }
}
