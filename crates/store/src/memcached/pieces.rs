//! Bodies that exceed the item size, stored in pieces.

use std::collections::VecDeque;

use bytes::Bytes;

use super::keys;
use super::protocol::{MetaItem, MetaRequest, MetaResponse, SetOptions};
use super::record_item::RecordItem;
use super::server::ConnectionLane;
use super::value::Manifest;
use crate::random;
use crate::tier::TierError;

/// Concurrent requests for the pieces of a body.
const WINDOW: usize = 16;

/// Fetches the pieces of a body. `None` if one is missing or damaged.
pub(super) async fn fetch(
    record: &RecordItem<'_>,
    manifest: &Manifest,
) -> Result<Option<Bytes>, TierError> {
    let items = for_each(record, manifest, |key| {
        MetaRequest::default().get(key, None)
    })
    .await?;
    let pieces = items.map(|items| items.into_iter().map(|item| item.value).collect::<Vec<_>>());
    Ok(pieces.and_then(|pieces| manifest.assemble(&pieces)))
}

/// Extends the lifetime of all pieces. Returns whether all of them still exist.
pub(super) async fn renew(
    record: &RecordItem<'_>,
    manifest: &Manifest,
    expires: u64,
) -> Result<bool, TierError> {
    let touch = |key: &str| MetaRequest::default().touch(key, expires);
    let items = for_each(record, manifest, touch).await?;
    Ok(items.is_some())
}

/// Sends a request for each piece, with a window of concurrent ones. `None` if one is missing.
async fn for_each(
    record: &RecordItem<'_>,
    manifest: &Manifest,
    request: impl Fn(&str) -> MetaRequest,
) -> Result<Option<Vec<MetaItem>>, TierError> {
    let mut items = Vec::with_capacity(manifest.sums.len());
    let mut pending = VecDeque::with_capacity(WINDOW);
    let mut numbers = 0..manifest.sums.len();
    while items.len() < manifest.sums.len() {
        for number in numbers.by_ref().take(WINDOW - pending.len()) {
            let key = keys::piece(record.id, manifest.generation, number);
            // The deadline covers the preceding requests in the window.
            let deadlines = 1 + pending.len() as u32;
            let lane = ConnectionLane::of(record.id);
            pending.push_back(record.server.send(lane, request(&key), deadlines)?);
        }
        let Some(next) = pending.pop_front() else {
            return Ok(None);
        };
        match next.await?.pop() {
            Some(MetaResponse::Done(item)) => items.push(item),
            _ => return Ok(None),
        }
    }
    Ok(Some(items))
}

/// Stores the pieces of a body, before the manifest that refers to them. `None` if the server rejects them.
pub(super) async fn store(
    record: &RecordItem<'_>,
    head: Bytes,
    body: &Bytes,
    expires: u64,
) -> Result<Option<Manifest>, TierError> {
    let generation = u128::from(random::number()) << 64 | u128::from(random::number());
    let manifest = Manifest::new(head, body, record.max_item as u32, generation);
    if manifest.encoded_len() > record.max_item {
        return Ok(None);
    }
    let how = SetOptions {
        expires,
        ..SetOptions::default()
    };
    for (number, piece) in body.chunks(record.max_item).enumerate() {
        let key = keys::piece(record.id, generation, number);
        let request = MetaRequest::default().set(&key, [body.slice_ref(piece)], how);
        match record.request(request).await? {
            MetaResponse::Done(_) => {}
            MetaResponse::Refused(_) => return Ok(None),
            other => return Err(other.to_unexpected_error()),
        }
    }
    Ok(Some(manifest))
}
