//! Bodies that do not fit in one item.

use std::collections::VecDeque;

use bytes::Bytes;

use super::keys;
use super::protocol::{Answer, Request, Storing};
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
    let mut pieces = Vec::with_capacity(manifest.sums.len());
    let mut asked = VecDeque::with_capacity(WINDOW);
    let mut numbers = 0..manifest.sums.len();
    while pieces.len() < manifest.sums.len() {
        for number in numbers.by_ref().take(WINDOW - asked.len()) {
            let key = keys::piece(record.id, manifest.generation, number);
            let request = Request::default().get(&key, None);
            // Each has the time of those before it, and its own.
            let deadlines = 1 + asked.len() as u32;
            asked.push_back(
                record
                    .server
                    .send(Lane::of(record.id), request, deadlines)?,
            );
        }
        let Some(next) = asked.pop_front() else {
            return Ok(None);
        };
        match next.await?.pop() {
            Some(Answer::Done(item)) => pieces.push(item.value),
            _ => return Ok(None),
        }
    }
    Ok(manifest.assemble(&pieces))
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
            Answer::Done(_) => {}
            Answer::Refused(_) => return Ok(None),
            other => return Err(other.is_unexpected()),
        }
    }
    Ok(Some(manifest))
}
