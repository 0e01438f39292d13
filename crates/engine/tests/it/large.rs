//! Bodies that are too large for memory and go to a tier while they arrive. The tier is as slow as
//! the test wants it: nobody who reads such a body waits for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use microcache_engine::{
    Body, BodyError, BoxFuture, Engine, Frame, Origin, OriginError, OriginRequest, OriginResponse,
    Response, Settings, Source,
};
use microcache_policy::{Fields, FieldsBuf, Rules, Scheme, key};
use microcache_store::tier::{Spool, Tier, TierError, TierStats, Token};
use microcache_store::{
    AnyTier, Claim, Content, Entry, EntryId, Got, JournalRecords, Listed, Listing, LocalTier,
    MemoryLimits, Put, TierLimits, Tiers,
};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::yield_now;

use crate::asking::{HOST, ask, read};
use crate::support;

/// Memory takes bodies of so many bytes here.
const LARGEST_IN_MEMORY: u64 = 1 << 16;
const PIECE: usize = 10_000;
/// Everything of a body may wait to be written.
const PIECES: usize = 40;

/// Answers every request with a large page.
#[derive(Default)]
struct Application(Mutex<usize>);

impl Application {
    fn asked(&self) -> usize {
        *self.0.lock().unwrap()
    }
}

impl Origin for Application {
    fn fetch(&self, _: OriginRequest) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        *self.0.lock().unwrap() += 1;
        let mut fields = FieldsBuf::new();
        fields.push("Cache-Control", "max-age=1000");
        Box::pin(async {
            Ok(OriginResponse {
                status: 200,
                fields,
                length: None,
                body: Body::Stream(Box::new(Pieces(PIECES))),
                tunnel: None,
            })
        })
    }
}

struct Pieces(usize);

impl Source for Pieces {
    fn poll_frame(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame, BodyError>>> {
        let piece = self.0.checked_sub(1).map(|left| {
            self.0 = left;
            Ok(Frame::Data(Bytes::from_static(&[b'x'; PIECE])))
        });
        std::task::Poll::Ready(piece)
    }
}

/// A tier that keeps records in memory, and large bodies as soon as it is let.
#[derive(Clone, Debug)]
struct Slow {
    records: Arc<Mutex<HashMap<EntryId, Entry>>>,
    /// What was removed while a body was on its way is not stored.
    removed: Arc<Mutex<Vec<EntryId>>>,
    writes: Arc<Semaphore>,
    names: Arc<Semaphore>,
}

impl Slow {
    fn new(writes: usize, names: usize) -> Self {
        Self {
            records: Arc::default(),
            removed: Arc::default(),
            writes: Arc::new(Semaphore::new(writes)),
            names: Arc::new(Semaphore::new(names)),
        }
    }
}

impl Tier for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn get(&self, id: EntryId, _: Option<Duration>) -> BoxFuture<'_, Result<Got, TierError>> {
        let entry = self.records.lock().unwrap().get(&id).cloned();
        Box::pin(async { Ok(entry.map_or(Got::Missing(None), Got::Entry)) })
    }

    fn claim(&self, _: EntryId, _: Duration) -> BoxFuture<'_, Result<Claim, TierError>> {
        Box::pin(async { Ok(Claim::Theirs) })
    }

    fn release(&self, _: EntryId, _: Token) -> BoxFuture<'_, Result<(), TierError>> {
        Box::pin(async { Ok(()) })
    }

    fn put(
        &self,
        id: EntryId,
        entry: Entry,
        _: Duration,
        _: Option<Token>,
    ) -> BoxFuture<'_, Result<Put, TierError>> {
        self.records.lock().unwrap().insert(id, entry);
        Box::pin(async { Ok(Put::Stored) })
    }

    fn remove(&self, id: EntryId) -> BoxFuture<'_, Result<(), TierError>> {
        self.records.lock().unwrap().remove(&id);
        self.removed.lock().unwrap().push(id);
        Box::pin(async { Ok(()) })
    }

    fn stats(&self) -> TierStats {
        TierStats::default()
    }
}

impl LocalTier for Slow {
    fn at_hand(&self, _: EntryId) -> Option<Entry> {
        None
    }

    fn spool(&self) -> Option<Box<dyn Spool>> {
        Some(Box::new(SlowSpool(self.clone(), Vec::new())))
    }

    fn renew(
        &self,
        _: EntryId,
        _: Entry,
        _: Bytes,
        _: Duration,
    ) -> BoxFuture<'_, Result<Put, TierError>> {
        Box::pin(async { Ok(Put::Refused) })
    }

    fn list(&self, _: Option<EntryId>, _: usize) -> BoxFuture<'_, Result<Listing, TierError>> {
        Box::pin(async { Err(TierError::Down) })
    }

    fn remove_listed<'a>(&'a self, _: &'a Listed) -> BoxFuture<'a, Result<bool, TierError>> {
        Box::pin(async { Err(TierError::Down) })
    }

    fn load_journal(&self) -> BoxFuture<'_, Result<JournalRecords, TierError>> {
        Box::pin(async { Err(TierError::Down) })
    }

    fn append_to_journal(&self, _: Bytes) -> BoxFuture<'_, Result<(), TierError>> {
        Box::pin(async { Err(TierError::Down) })
    }

    fn replace_journal(&self, _: Vec<Bytes>) -> BoxFuture<'_, Result<(), TierError>> {
        Box::pin(async { Err(TierError::Down) })
    }
}

struct SlowSpool(Slow, Vec<u8>);

impl Spool for SlowSpool {
    fn write(&mut self, chunk: Bytes) -> BoxFuture<'_, Result<(), TierError>> {
        Box::pin(async move {
            let written = self.0.writes.acquire().await;
            written.expect("it is open").forget();
            self.1.extend_from_slice(&chunk);
            Ok(())
        })
    }

    fn finish(
        self: Box<Self>,
        id: EntryId,
        head: Bytes,
        _: Duration,
    ) -> BoxFuture<'static, Result<Content, TierError>> {
        Box::pin(async move {
            let Self(tier, written) = *self;
            tier.names.acquire().await.expect("it is open").forget();
            if tier.removed.lock().unwrap().contains(&id) {
                return Err(TierError::Failed("removed meanwhile".into()));
            }
            let body = Content::Bytes(written.into());
            let entry = Entry {
                head,
                body: body.clone(),
            };
            tier.records.lock().unwrap().insert(id, entry);
            Ok(body)
        })
    }
}

fn engine(tier: &Slow) -> (Arc<Engine>, Arc<Application>) {
    let origin = Arc::new(Application::default());
    let settings = Settings {
        memory: MemoryLimits {
            object: LARGEST_IN_MEMORY,
            ..support::settings().memory
        },
        largest: 1 << 30,
        ..support::settings()
    };
    let route = support::route(Arc::clone(&origin) as Arc<_>, Rules::default());
    let local = AnyTier::Local(Arc::new(tier.clone()));
    let tiers = Tiers::new(vec![local], TierLimits::default(), &Handle::current());
    (support::engine(settings, route, tiers), origin)
}

async fn get(engine: &Arc<Engine>) -> Response {
    ask(engine, &Method::GET, "/", "").await
}

/// How much of a body there is, to its end.
async fn length(response: Response) -> usize {
    read(response).await.len()
}

/// Lets everything go on as far as it can.
async fn settle() {
    for _ in 0..200 {
        yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_tier_that_never_writes_keeps_no_reader_waiting() {
    let (engine, origin) = engine(&Slow::new(0, 0));
    assert_eq!(length(get(&engine).await).await, PIECE * PIECES);
    // It is not known whether it is going to be kept: after a while the next one asks for himself.
    assert_eq!(length(get(&engine).await).await, PIECE * PIECES);
    assert_eq!(origin.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn who_comes_before_the_name_is_there_gets_what_was_stored() {
    let tier = Slow::new(usize::MAX >> 4, 0);
    let (engine, origin) = engine(&tier);
    assert_eq!(length(get(&engine).await).await, PIECE * PIECES);
    let next = tokio::spawn({
        let engine = Arc::clone(&engine);
        async move { length(get(&engine).await).await }
    });
    settle().await;
    assert!(!next.is_finished(), "it waits for the name");
    tier.names.add_permits(1);
    assert_eq!(next.await.unwrap(), PIECE * PIECES);
    assert_eq!(origin.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_purged_before_its_name_is_there_does_not_come_back() {
    let tier = Slow::new(usize::MAX >> 4, 0);
    let (engine, origin) = engine(&tier);
    assert_eq!(length(get(&engine).await).await, PIECE * PIECES);
    settle().await;
    let (fields, rules) = (Fields::default(), Rules::default());
    let key = key::build(Scheme::Http, HOST.as_bytes(), b"/", fields, false, &rules);
    engine.cache.purge_key(&key);
    settle().await;
    assert!(tier.removed.lock().unwrap().contains(&EntryId::of(&key)));
    tier.names.add_permits(2);
    settle().await;
    assert!(tier.records.lock().unwrap().is_empty());
    assert_eq!(length(get(&engine).await).await, PIECE * PIECES);
    assert_eq!(origin.asked(), 2);
}
