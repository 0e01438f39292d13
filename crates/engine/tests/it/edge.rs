//! Pages with tags are divided when they are stored.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use microcache_engine::{
    Body, BoxFuture, Engine, GzipPage, Origin, OriginError, OriginRequest, OriginResponse,
};
use microcache_policy::edge::{EdgeMode, PagePieces};
use microcache_policy::{Coding, Compress, Rules};
use microcache_store::tiers::scripted::ScriptedTier;
use microcache_store::{AnyTier, TierLimits, Tiers};
use tokio::runtime::Handle;
use tokio::task::yield_now;

use crate::asking::{ask, fields_of, read};
use crate::support;

const PAGE: &[u8] = b"a<esi:include src=\"/_fragment\"/>b";

/// Answers every request with a page, and confirms its own entity tag.
struct Application {
    fields: &'static str,
}

impl Origin for Application {
    fn fetch(&self, request: OriginRequest) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        let is_confirmed = request.fields.fields().contains("if-none-match");
        let (status, body) = if is_confirmed {
            (304, Body::Empty)
        } else {
            (200, Body::Full(Bytes::from_static(PAGE)))
        };
        Box::pin(async move {
            Ok(OriginResponse {
                status,
                fields: fields_of(self.fields),
                length: (status == 200).then_some(PAGE.len() as u64),
                body,
                tunnel: None,
                waited: 0,
            })
        })
    }
}

fn engine(edge: EdgeMode, fields: &'static str, tiers: Tiers) -> Arc<Engine> {
    let rules = Rules {
        edge,
        ..Rules::default()
    };
    let route = support::route(Arc::new(Application { fields }), rules);
    support::engine(support::settings(), route, tiers)
}

/// The pieces of the stored page, once it has been requested so often.
async fn pieces(engine: &Arc<Engine>, requests: usize) -> Option<Arc<PagePieces>> {
    for _ in 1..requests {
        let response = ask(engine, &Method::GET, "/", "").await;
        assert_eq!(read(response).await, PAGE);
        for _ in 0..50 {
            yield_now().await;
        }
    }
    match ask(engine, &Method::GET, "/", "").await.body {
        Body::Stored(hit) => hit.pieces().cloned(),
        other => panic!("{other:?}"),
    }
}

const PLAIN: &str = "Content-Type: text/html\r\nCache-Control: max-age=60";
const ANNOUNCED: &str = "Content-Type: text/html\r\nCache-Control: max-age=60\r\n\
    Surrogate-Control: content=\"ESI/1.0\"";

#[tokio::test(start_paused = true)]
async fn only_pages_whose_tags_are_replaced_have_pieces() {
    for (edge, fields, is_divided) in [
        (EdgeMode::Off, ANNOUNCED, false),
        (EdgeMode::Announced, PLAIN, false),
        (EdgeMode::Announced, ANNOUNCED, true),
        (EdgeMode::Always, PLAIN, true),
    ] {
        let engine = engine(edge, fields, Tiers::default());
        let found = pieces(&engine, 2).await;
        assert_eq!(found.is_some(), is_divided, "{edge:?} {fields}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_confirmed_page_keeps_its_pieces() {
    const FIELDS: &str = "Content-Type: text/html\r\nCache-Control: public, no-cache\r\nETag: \"a\"\r\n\
        Surrogate-Control: content=\"ESI/1.0\"";
    let engine = engine(EdgeMode::Announced, FIELDS, Tiers::default());
    let first = pieces(&engine, 2).await.expect("it is confirmed");
    let second = pieces(&engine, 1).await.expect("it is confirmed again");
    assert!(Arc::ptr_eq(&first, &second));
}

#[tokio::test(start_paused = true)]
async fn a_page_from_a_tier_is_divided() {
    let tier = ScriptedTier::new(usize::MAX >> 4, usize::MAX >> 4);
    let tiers = || {
        let local = AnyTier::Local(Arc::new(tier.clone()));
        Tiers::new(vec![local], TierLimits::default(), &Handle::current())
    };
    let before = engine(EdgeMode::Announced, ANNOUNCED, tiers());
    assert!(pieces(&before, 2).await.is_some());
    assert_eq!(tier.len(), 1);
    let after = engine(EdgeMode::Announced, PLAIN, tiers());
    // From the tier, and then from memory.
    assert!(pieces(&after, 1).await.is_some());
    assert!(pieces(&after, 1).await.is_some());
}

/// A page that is worth compressing.
struct Text;

fn text() -> Bytes {
    let rows: Vec<String> = (0..200).map(|row| format!("<p>row {row}</p>")).collect();
    let text = rows.concat();
    format!("{text}<esi:include src=\"/_fragment\"/>{text}").into()
}

impl Origin for Text {
    fn fetch(&self, _request: OriginRequest) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        Box::pin(async {
            Ok(OriginResponse {
                status: 200,
                fields: fields_of(PLAIN),
                length: None,
                body: Body::Full(text()),
                tunnel: None,
                waited: 0,
            })
        })
    }
}

#[tokio::test]
async fn only_the_texts_of_a_page_with_pieces_are_compressed_and_only_by_gzip() {
    let rules = Rules {
        edge: EdgeMode::Always,
        compress: Compress {
            codings: vec![Coding::Zstd, Coding::Brotli, Coding::Gzip],
            dictionaries: true,
            ..Compress::default()
        },
        ..Rules::default()
    };
    let route = support::route(Arc::new(Text), rules);
    let engine = support::engine(support::settings(), route, Tiers::default());
    let hash = "Available-Dictionary: :pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2fFG4=:";
    let get = async |codings: &str| {
        let fields = format!("Accept-Encoding: {codings}\r\n{hash}");
        let response = ask(&engine, &Method::GET, "/", &fields).await;
        assert!(!response.fields().contains("content-encoding"));
        let (is_made, coding) = (
            GzipPage::of(&response).is_some(),
            response.cache_status.coding,
        );
        assert_eq!(coding.is_some(), is_made);
        assert!(read(response).await == text(), "{codings}");
        is_made
    };
    while !get("gzip, deflate, br, zstd, dcb, dcz").await {
        yield_now().await;
    }
    for (codings, is_made) in [
        ("zstd, gzip;q=0.1", true),
        ("br, zstd", false),
        ("gzip;q=0", false),
        ("dcb, dcz", false),
    ] {
        assert_eq!(get(codings).await, is_made, "{codings}");
    }
    let stats = engine.cache.compression_stats();
    assert_eq!(stats.made.map(|made| made.bodies), [1, 0, 0]);
    assert_eq!((stats.deltas, stats.waiting), (0, 0));
    assert_eq!(stats.sent, [2, 0, 0, 0, 0]);
}
