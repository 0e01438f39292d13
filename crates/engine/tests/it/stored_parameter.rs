//! `stored` of `Cache-Status`: what the answer says of a response that arrived whole is what memory decided.

use std::sync::Arc;

use http::Method;
use microcache_engine::{
    Body, BoxFuture, Origin, OriginError, OriginRequest, OriginResponse, Settings,
};
use microcache_policy::{FieldsBuf, Rules};
use microcache_store::{MemoryLimits, Tiers};

use crate::asking::{ask, read};
use crate::support;

/// Largest entry in memory, in bytes: its key, its fields and its body.
const LARGEST_IN_MEMORY: u64 = 1 << 12;
const BODY: &[u8] = &[b'x'; 3_800];

/// Answers every request with a body that fits into memory, and a field as long as the path asks for.
struct LongFields;

impl Origin for LongFields {
    fn fetch(&self, request: OriginRequest) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        let target = String::from_utf8_lossy(&request.target).into_owned();
        let length = target.trim_start_matches('/').parse().expect("a length");
        let mut fields = FieldsBuf::new();
        fields.push("Cache-Control", "max-age=1000");
        fields.push("X-Long", "y".repeat(length));
        Box::pin(async {
            Ok(OriginResponse {
                status: 200,
                fields,
                length: Some(BODY.len() as u64),
                body: Body::Full(BODY.into()),
                tunnel: None,
                waited: 0,
            })
        })
    }
}

#[tokio::test]
async fn a_response_that_memory_refuses_is_not_called_stored() {
    let settings = Settings {
        memory: MemoryLimits {
            object: LARGEST_IN_MEMORY,
            ..support::settings().memory
        },
        ..support::settings()
    };
    let route = support::route(Arc::new(LongFields), Rules::default());
    let engine = support::engine(settings, route, Tiers::default());
    for (target, is_stored) in [("/10", true), ("/1000", false)] {
        let first = ask(&engine, &Method::GET, target, "").await;
        assert_eq!(first.cache_status.stored, is_stored, "{target}");
        assert_eq!(read(first).await, BODY, "{target}");
        let second = ask(&engine, &Method::GET, target, "").await;
        assert_eq!(second.cache_status.hit, is_stored, "{target}");
    }
}
