//! An unsafe request waits until invalidated entries have left the tiers, and for nothing else.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use microcache_engine::{
    Body, BoxFuture, Engine, Origin, OriginError, OriginRequest, OriginResponse,
};
use microcache_policy::{Fields, FieldsBuf, Rules, Scheme, key};
use microcache_store::tiers::scripted::{ScriptedOperation, ScriptedTier};
use microcache_store::{AnyTier, EntryId, TierLimits, Tiers};
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, yield_now};

use crate::asking::{HOST, ask, read};
use crate::support;

/// Answers every request with a storable page.
struct Application;

impl Origin for Application {
    fn fetch(&self, _: OriginRequest) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        let mut fields = FieldsBuf::new();
        fields.push("Cache-Control", "max-age=1000");
        Box::pin(async {
            Ok(OriginResponse {
                status: 200,
                fields,
                length: Some(4),
                body: Body::Full(Bytes::from_static(b"page")),
                tunnel: None,
                waited: 0,
            })
        })
    }
}

fn id(path: &str) -> EntryId {
    let (path, rules) = (path.as_bytes(), Rules::default());
    let fields = Fields::default();
    let key = key::build(Scheme::Http, HOST.as_bytes(), path, fields, false, &rules);
    EntryId::of(&key)
}

fn engine(tier: &ScriptedTier, is_shared: bool, answers_at_once: bool) -> Arc<Engine> {
    let tier = Arc::new(tier.clone());
    let tier = if is_shared {
        AnyTier::Shared(tier)
    } else {
        AnyTier::Local(tier)
    };
    let tiers = Tiers::new(vec![tier], TierLimits::default(), &Handle::current());
    let mut route = support::route(Arc::new(Application), Rules::default());
    route.answers_at_once = answers_at_once;
    support::engine(support::settings(), route, tiers)
}

fn post(engine: &Arc<Engine>, path: &'static str) -> JoinHandle<u16> {
    let engine = Arc::clone(engine);
    tokio::spawn(async move { ask(&engine, &Method::POST, path, "").await.status })
}

/// Lets everything run until it waits.
async fn settle() {
    for _ in 0..200 {
        yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn it_waits_for_its_own_removals_only() {
    for is_shared in [false, true] {
        let tier = ScriptedTier::hanging([id("/slow")]);
        let engine = engine(&tier, is_shared, false);
        read(ask(&engine, &Method::GET, "/quick", "").await).await;
        settle().await;
        let slow = post(&engine, "/slow");
        settle().await;
        assert!(
            tier.begun()
                .contains(&ScriptedOperation::Remove(id("/slow")))
        );
        // The next one is independent of the hanging tier.
        let quick = post(&engine, "/quick");
        settle().await;
        assert!(quick.is_finished(), "it waits for another url");
        assert_eq!(quick.await.expect("it does not panic"), 200);
        assert!(tier.record(id("/quick")).is_none());
        assert!(!slow.is_finished(), "its own removal is not done");
        tier.permit(id("/slow"), 1);
        assert_eq!(slow.await.expect("it does not panic"), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn where_nothing_is_ever_stored_nothing_is_removed() {
    for is_shared in [false, true] {
        let tier = ScriptedTier::hanging([id("/document")]);
        let engine = engine(&tier, is_shared, true);
        let published = post(&engine, "/document");
        settle().await;
        assert!(published.is_finished(), "it waits for a tier");
        assert!(tier.begun().is_empty(), "{:?}", tier.begun());
    }
}
