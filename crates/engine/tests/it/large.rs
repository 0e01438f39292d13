//! Bodies that are too large for memory and are stored in a tier while they arrive. The tier is as
//! slow as the test makes it: readers of such a body do not wait for it.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::Method;
use microcache_engine::{
    Body, BodyError, BoxFuture, Engine, Frame, Origin, OriginError, OriginRequest, OriginResponse,
    Response, Settings, Source,
};
use microcache_policy::{Fields, FieldsBuf, Rules, Scheme, key};
use microcache_store::tiers::scripted::{ScriptedOperation, ScriptedTier};
use microcache_store::{AnyTier, EntryId, MemoryLimits, TierLimits, Tiers};
use tokio::runtime::Handle;
use tokio::task::yield_now;

use crate::asking::{HOST, ask, read};
use crate::support;

/// The largest body stored in memory, in bytes.
const LARGEST_IN_MEMORY: u64 = 1 << 16;
const PIECE: usize = 10_000;
/// Pieces of a body; all of them may wait to be written.
const PIECES: usize = 40;

/// Answers every request with a large page.
#[derive(Default)]
struct Application(Mutex<usize>);

impl Application {
    fn request_count(&self) -> usize {
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
                waited: 0,
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

fn engine(tier: &ScriptedTier) -> (Arc<Engine>, Arc<Application>) {
    let origin = Arc::new(Application::default());
    let settings = Settings {
        memory: MemoryLimits {
            object: LARGEST_IN_MEMORY,
            ..support::settings().memory
        },
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

/// The length of a body, read to its end.
async fn length(response: Response) -> usize {
    read(response).await.len()
}

/// Lets everything run until it waits.
async fn settle() {
    for _ in 0..200 {
        yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_tier_that_never_writes_keeps_no_reader_waiting() {
    let (engine, origin) = engine(&ScriptedTier::new(0, 0));
    assert_eq!(length(get(&engine).await).await, PIECE * PIECES);
    // It is unknown whether the response will be stored, so after a while the next request is sent
    // directly.
    assert_eq!(length(get(&engine).await).await, PIECE * PIECES);
    assert_eq!(origin.request_count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_request_before_the_vary_names_are_known_gets_the_stored_response() {
    let tier = ScriptedTier::new(usize::MAX >> 4, 0);
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
    assert_eq!(origin.request_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_response_purged_before_its_vary_names_are_known_does_not_return() {
    let tier = ScriptedTier::new(usize::MAX >> 4, 0);
    let (engine, origin) = engine(&tier);
    assert_eq!(length(get(&engine).await).await, PIECE * PIECES);
    settle().await;
    let (fields, rules) = (Fields::default(), Rules::default());
    let key = key::build(Scheme::Http, HOST.as_bytes(), b"/", fields, false, &rules);
    engine.cache.purge_key(&key);
    settle().await;
    assert!(
        tier.begun()
            .contains(&ScriptedOperation::Remove(EntryId::of(&key)))
    );
    tier.names.add_permits(2);
    settle().await;
    assert!(tier.is_empty());
    assert_eq!(length(get(&engine).await).await, PIECE * PIECES);
    assert_eq!(origin.request_count(), 2);
}
