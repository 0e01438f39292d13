//! Uses: a stored response is evicted last if it is served often.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use microcache_engine::cache::entries::{EntryFilter, ListingOrder};
use microcache_engine::{
    Body, BoxFuture, Engine, Origin, OriginError, OriginRequest, OriginResponse,
};
use microcache_policy::Rules;
use microcache_store::Tiers;

use crate::asking::{ask, fields_of, read};
use crate::support;

/// Answers every request with the same fresh page.
struct Page;

impl Origin for Page {
    fn fetch(&self, _: OriginRequest) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        Box::pin(async {
            Ok(OriginResponse {
                status: 200,
                fields: fields_of("Cache-Control: max-age=1000\r\nETag: \"a\""),
                length: Some(4),
                body: Body::Full(Bytes::from_static(b"page")),
                tunnel: None,
                waited: 0,
            })
        })
    }
}

/// The uses of the only stored response.
async fn uses(engine: &Engine) -> u32 {
    let (all, order) = (EntryFilter::default(), ListingOrder::Uses);
    let listed = engine.cache.entries(&all, order, None, 10).await.entries;
    let [page] = &listed[..] else {
        panic!("one page is stored: {listed:?}");
    };
    page.uses
}

#[tokio::test(start_paused = true)]
async fn each_response_from_the_cache_is_a_use_and_the_first_one_is_none() {
    let route = support::route(Arc::new(Page), Rules::default());
    let engine = support::engine(support::settings(), route, Tiers::default());
    for (number, (method, fields, status, hit)) in (0..).zip([
        (Method::GET, "", 200, false),
        (Method::GET, "", 200, true),
        (Method::GET, "If-None-Match: \"a\"", 304, true),
        (Method::GET, "If-None-Match: \"b\"", 200, true),
        (Method::GET, "Range: bytes=0-1", 206, true),
        (Method::HEAD, "", 200, true),
    ]) {
        let response = ask(&engine, &method, "/", fields).await;
        let answer = (response.status, response.cache_status.hit);
        assert_eq!(answer, (status, hit), "{method} {fields}");
        read(response).await;
        assert_eq!(uses(&engine).await, number, "{method} {fields}");
    }
}
