//! Bodies that do not fit in one item.

use std::collections::VecDeque;

use bytes::Bytes;

use super::keys;
use super::protocol::{Item, MetaResponse, Request, Storing};
use super::record::Record;
use super::server::Lane;
use super::value::Manifest;
use crate::random;
use crate::tier::TierError;

/// Pieces of one body that are asked for at once.
const WINDOW: usize = 16;

/// Fetches the pieces of a body. `None` if one is gone, or is not what was stored.
pub(super) async fn fetch(
    record: &Record<'_>,
    manifest: &Manifest,
) -> Result<Option<Bytes>, TierError> {
    let items = for_each(record, manifest, |key| Request::default().get(key, None)).await?;
    let pieces = items.map(|items| items.into_iter().map(|item| item.value).collect::<Vec<_>>());
    Ok(pieces.and_then(|pieces| manifest.assemble(&pieces)))
}

/// Has the pieces of a body kept for so long from now on. Says whether all of them are still there.
pub(super) async fn renew(
    record: &Record<'_>,
    manifest: &Manifest,
    expires: u64,
) -> Result<bool, TierError> {
    let touch = |key: &str| Request::default().touch(key, expires);
    let items = for_each(record, manifest, touch).await?;
    Ok(items.is_some())
}

/// Asks something of each piece of a body, some of them at once. `None` if one is gone.
async fn for_each(
    record: &Record<'_>,
    manifest: &Manifest,
    ask: impl Fn(&str) -> Request,
) -> Result<Option<Vec<Item>>, TierError> {
    let mut items = Vec::with_capacity(manifest.sums.len());
    let mut asked = VecDeque::with_capacity(WINDOW);
    let mut numbers = 0..manifest.sums.len();
    while items.len() < manifest.sums.len() {
        for number in numbers.by_ref().take(WINDOW - asked.len()) {
            let key = keys::piece(record.id, manifest.generation, number);
            // Each has the time of those before it, and its own.
            let deadlines = 1 + asked.len() as u32;
            let lane = Lane::of(record.id);
            asked.push_back(record.server.send(lane, ask(&key), deadlines)?);
        }
        let Some(next) = asked.pop_front() else {
            return Ok(None);
        };
        match next.await?.pop() {
            Some(MetaResponse::Done(item)) => items.push(item),
            _ => return Ok(None),
        }
    }
    Ok(Some(items))
}

/// Stores a body in pieces, before anything says that they are there. `None` if the server does not
/// take them.
pub(super) async fn store(
    record: &Record<'_>,
    head: Bytes,
    body: &Bytes,
    expires: u64,
) -> Result<Option<Manifest>, TierError> {
    let generation = u128::from(random::number()) << 64 | u128::from(random::number());
    let manifest = Manifest::new(head, body, record.max_item as u32, generation);
    if manifest.encoded_len() > record.max_item {
        return Ok(None);
    }
    let how = Storing {
        expires,
        ..Storing::default()
    };
    for (number, piece) in body.chunks(record.max_item).enumerate() {
        let key = keys::piece(record.id, generation, number);
        let request = Request::default().set(&key, [body.slice_ref(piece)], how);
        match record.ask(request).await? {
            MetaResponse::Done(_) => {}
            MetaResponse::Refused(_) => return Ok(None),
            other => return Err(other.is_unexpected()),
        }
    }
    Ok(Some(manifest))
}
