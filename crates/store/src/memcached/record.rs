//! What can be done with one record on the server that has it.

use std::time::Duration;

use bytes::Bytes;

use super::claims::{Grant, Purpose};
use super::connection::MetaResponses;
use super::pieces;
use super::protocol::{Item, MetaResponse, Request, Storing};
use super::server::{Lane, Server};
use super::value::{self, Manifest, Value};
use super::{keys, time};
use crate::content::Content;
use crate::tier::{Claim, Entry, EntryId, Got, Put, TierError};

/// The place of a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    pub(super) id: EntryId,
    pub(super) server: &'a Server,
    /// The server's place in the pool.
    pub(super) index: usize,
    pub(super) max_item: usize,
    pub(super) max_object: u64,
}

/// What a look at an item says.
enum Look {
    Entry(Entry),
    /// Nothing but the wish for something, and whether the caller is the one to bring it.
    Nothing(Claim),
    /// The beginning of a record whose rest is gone, or something marked as stale.
    Useless,
    /// Not a record.
    Damaged,
}

impl Record<'_> {
    /// What there is.
    pub(super) async fn get(&self) -> Result<Option<Entry>, TierError> {
        Ok(match self.look(None).await? {
            Look::Entry(entry) => Some(entry),
            _ => None,
        })
    }

    /// The same, and whoever finds nothing is told whether to bring it.
    pub(super) async fn get_or_claim(&self, hold: Duration) -> Result<Got, TierError> {
        match self.look(Some(hold)).await? {
            Look::Entry(entry) => Ok(Got::Entry(entry)),
            Look::Nothing(claim) => Ok(Got::Missing(claim)),
            Look::Useless | Look::Damaged => {
                let key = keys::record(self.id);
                Err(TierError::Failed(format!("{key} cannot be claimed")))
            }
        }
    }

    async fn look(&self, claim: Option<Duration>) -> Result<Look, TierError> {
        let key = keys::record(self.id);
        let purpose = claim.map(|_| Purpose::Fill);
        let claim = claim.map(time::expiry);
        // What is of no use is removed, and then there is nothing, which can be claimed.
        for _ in 0..2 {
            let answer = self.ask(Request::default().get(&key, claim)).await;
            let item = match self.noted(purpose, answer)? {
                MetaResponse::Done(item) => item,
                MetaResponse::Missing => break,
                MetaResponse::TooLong => return Err(self.discard(None).await),
                other => return Err(other.is_unexpected()),
            };
            let number = item.number;
            if let Some(expires) = claim
                && item.taken
                && item.value.is_empty()
            {
                self.shorten(&key, &item, expires).await?;
            }
            match self.look_at(item).await? {
                Look::Useless => {
                    self.ask(Request::default().delete(&key, Some(number)))
                        .await?;
                }
                Look::Damaged => return Err(self.discard(Some(number)).await),
                look @ (Look::Entry(_) | Look::Nothing(_)) => return Ok(look),
            }
        }
        Ok(Look::Useless)
    }

    async fn look_at(&self, item: Item) -> Result<Look, TierError> {
        if item.stale {
            return Ok(Look::Useless);
        }
        if item.value.is_empty() {
            return Ok(match item {
                Item { won: true, .. } => Look::Nothing(self.won(Purpose::Fill, item.number)),
                Item { taken: true, .. } if self.server.unsure.take(self.id) => Look::Useless,
                Item { taken: true, .. } => Look::Nothing(Claim::Theirs),
                // Nobody was told to bring anything, and nobody would be.
                _ => Look::Useless,
            });
        }
        Ok(match Value::decode(&item.value, self.max_object) {
            None => Look::Damaged,
            Some(Value::Whole { head, body }) => Look::Entry(Entry {
                head,
                body: Content::Bytes(body),
            }),
            Some(Value::Manifest(manifest)) => match pieces::fetch(self, &manifest).await? {
                Some(body) => Look::Entry(Entry {
                    head: manifest.head,
                    body: Content::Bytes(body),
                }),
                None => Look::Useless,
            },
        })
    }

    /// Removes what is no record.
    async fn discard(&self, number: Option<u64>) -> TierError {
        let key = keys::record(self.id);
        match self.ask(Request::default().delete(&key, number)).await {
            Ok(_) => TierError::Corrupt(format!("{key} is not a record")),
            Err(error) => error,
        }
    }

    /// Claims the renewal of what there is, or the filling of what there is no more.
    pub(super) async fn claim(&self, hold: Duration) -> Result<Claim, TierError> {
        let lock = Storing {
            expires: time::expiry(hold),
            only_new: true,
            only_if: None,
        };
        let request = Request::default()
            .set(&keys::lock(self.id), [], lock)
            .peek(&keys::record(self.id), lock.expires)
            .lifetime(&keys::lock(self.id));
        let answers = self.ask_all(request).await;
        let answers = self.noted(Some(Purpose::Renewal), answers)?;
        if let [MetaResponse::NotStored, _, MetaResponse::Done(other)] = &answers[..] {
            self.shorten(&keys::lock(self.id), other, lock.expires)
                .await?;
        }
        let (locked, item) = match &answers[..] {
            [MetaResponse::Done(_), MetaResponse::Done(item), ..] => (true, item.clone()),
            [MetaResponse::NotStored, MetaResponse::Done(item), ..] => (false, item.clone()),
            [MetaResponse::Done(_) | MetaResponse::NotStored, other] | [other, ..] => {
                return Err(other.is_unexpected());
            }
            [] => return Err(TierError::Down),
        };
        if !locked && self.server.unsure.take(self.id) {
            // The next one to ask gets it.
            self.unlock();
        }
        if locked && !item.won && !item.taken {
            return Ok(self.won(Purpose::Renewal, item.number));
        }
        if locked {
            // There is nothing to renew any more.
            self.unlock();
        }
        Ok(if item.won {
            self.won(Purpose::Fill, item.number)
        } else {
            Claim::Theirs
        })
    }

    /// Has a claim that lasts longer than one of this process would end like one: it is forged, or of a process
    /// with another `claim_timeout`, and requests would wait for it again and again.
    async fn shorten(&self, key: &str, claim: &Item, expires: u64) -> Result<(), TierError> {
        let lasts_too_long = claim
            .seconds_left
            .is_some_and(|left| left > time::longest_left(expires));
        if lasts_too_long {
            self.ask(Request::default().touch(key, expires)).await?;
        }
        Ok(())
    }

    /// Ends a claim: now, or when the server answers again.
    pub(super) async fn release(&self, grant: Grant) -> Result<(), TierError> {
        let released = self.release_now(grant).await;
        if released.is_err() {
            self.server.unsure.note(self.id, grant.purpose);
        }
        released
    }

    async fn release_now(&self, grant: Grant) -> Result<(), TierError> {
        let request = match grant.purpose {
            Purpose::Fill => Request::default().delete(&keys::record(self.id), Some(grant.number)),
            Purpose::Renewal => Request::default().delete(&keys::lock(self.id), None),
        };
        match self.ask(request).await? {
            MetaResponse::Done(_) | MetaResponse::Missing | MetaResponse::Changed => Ok(()),
            other => Err(other.is_unexpected()),
        }
    }

    /// Stores a record in one item, or in several if it does not fit.
    pub(super) async fn put(
        &self,
        head: Bytes,
        body: Bytes,
        expires: Duration,
        grant: Option<Grant>,
    ) -> Result<Put, TierError> {
        let key = keys::record(self.id);
        let how = Storing {
            expires: time::expiry(expires),
            only_if: grant.map(|grant| grant.number),
            only_new: false,
        };
        let first = value::whole(&head);
        let request = if first.len() + body.len() <= self.max_item {
            Request::default().set(&key, [first, body], how)
        } else {
            match pieces::store(self, head, &body, how.expires).await? {
                Some(manifest) => Request::default().set(&key, [manifest.encode()], how),
                None => return Ok(Put::Refused),
            }
        };
        self.stored(request, grant).await
    }

    /// The head of what there is. Of a body in pieces, no piece is fetched.
    pub(super) async fn head(&self) -> Result<Option<Bytes>, TierError> {
        let item = self.item().await?;
        let value = item.and_then(|item| Value::decode(&item.value, self.max_object));
        Ok(value.map(|value| match value {
            Value::Whole { head, .. } | Value::Manifest(Manifest { head, .. }) => head,
        }))
    }

    /// Another head for the record with this one. A body in pieces stays where it is, for as long as
    /// the head. What was stored or removed since the head was looked at, is left as it is.
    pub(super) async fn renew(
        &self,
        from: &Bytes,
        head: Bytes,
        expires: Duration,
        grant: Option<Grant>,
    ) -> Result<Put, TierError> {
        let claimed = |item: &Item| {
            grant.is_none_or(|grant| (grant.server, grant.number) == (self.index, item.number))
        };
        let Some(item) = self.item().await?.filter(claimed) else {
            return Ok(Put::Superseded);
        };
        let expires = time::expiry(expires);
        let value = match Value::decode(&item.value, self.max_object) {
            Some(Value::Whole { head: old, body }) if old == *from => [value::whole(&head), body],
            Some(Value::Manifest(old)) if old.head == *from => {
                let manifest = Manifest { head, ..old };
                if !pieces::renew(self, &manifest, expires).await? {
                    return Ok(Put::Superseded);
                }
                [manifest.encode(), Bytes::new()]
            }
            _ => return Ok(Put::Superseded),
        };
        if value.iter().map(Bytes::len).sum::<usize>() > self.max_item {
            return Ok(Put::Refused);
        }
        let how = Storing {
            expires,
            only_if: Some(item.number),
            only_new: false,
        };
        let request = Request::default().set(&keys::record(self.id), value, how);
        self.stored(request, grant).await
    }

    /// Stores a record, and ends the claim that it was stored with.
    async fn stored(&self, request: Request, grant: Option<Grant>) -> Result<Put, TierError> {
        match self.ask(request).await? {
            MetaResponse::Done(_) => {}
            MetaResponse::Changed | MetaResponse::Missing => return Ok(Put::Superseded),
            MetaResponse::Refused(_) => return Ok(Put::Refused),
            other => return Err(other.is_unexpected()),
        }
        if grant.is_some_and(|grant| grant.purpose == Purpose::Renewal) {
            self.unlock();
        }
        Ok(Put::Stored)
    }

    /// What lies under the record's name, unless it is stale, or longer than we take.
    async fn item(&self) -> Result<Option<Item>, TierError> {
        let key = keys::record(self.id);
        match self.ask(Request::default().get(&key, None)).await? {
            MetaResponse::Done(item) => Ok((!item.stale).then_some(item)),
            MetaResponse::Missing | MetaResponse::TooLong => Ok(None),
            other => Err(other.is_unexpected()),
        }
    }

    /// Nobody waits for this: if it does not arrive, the lock expires.
    fn unlock(&self) {
        let unlock = Request::default().delete(&keys::lock(self.id), None);
        drop(self.server.send(Lane::of(self.id), unlock, 1));
    }

    /// A claim that was sent and not answered may be given all the same.
    fn noted<T>(
        &self,
        purpose: Option<Purpose>,
        answer: Result<T, TierError>,
    ) -> Result<T, TierError> {
        let was_sent = |error: &TierError| *error != TierError::Down;
        if let Some(purpose) = purpose
            && answer.as_ref().is_err_and(was_sent)
        {
            self.server.unsure.note(self.id, purpose);
        }
        answer
    }

    fn won(&self, purpose: Purpose, number: u64) -> Claim {
        let grant = Grant {
            purpose,
            server: self.index,
            number,
        };
        grant.to_token().map_or(Claim::Theirs, Claim::Mine)
    }

    pub(super) async fn ask(&self, request: Request) -> Result<MetaResponse, TierError> {
        self.server.ask(Lane::of(self.id), request).await
    }

    async fn ask_all(&self, request: Request) -> Result<MetaResponses, TierError> {
        self.server.send(Lane::of(self.id), request, 1)?.await
    }
}
