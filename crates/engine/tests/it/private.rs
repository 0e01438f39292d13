//! A private cache: the engine under the policy rules of one user's own cache.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Method;
use microcache_engine::{
    Body, BoxFuture, Engine, Origin, OriginError, OriginRequest, OriginResponse, Response,
};
use microcache_policy::{FieldsBuf, Rules};
use microcache_store::Tiers;
use tokio::task::yield_now;
use tokio::time::advance;

use crate::asking::{ask, fields_of, read};
use crate::support;

/// Answers every request with these field lines and the number of the request; a conditional one
/// with 304; while it is failing, with 503.
#[derive(Default)]
struct Site {
    lines: Mutex<String>,
    is_down: Mutex<bool>,
    seen: Mutex<Vec<FieldsBuf>>,
}

impl Origin for Site {
    fn fetch(&self, request: OriginRequest) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        let mut seen = self.seen.lock().unwrap();
        let confirms = request.fields.fields().contains("if-none-match");
        seen.push(request.fields);
        let status = match (*self.is_down.lock().unwrap(), confirms) {
            (true, _) => 503,
            (false, true) => 304,
            (false, false) => 200,
        };
        let body = if confirms {
            Body::Empty
        } else {
            Body::Full(seen.len().to_string().into())
        };
        let response = OriginResponse {
            status,
            fields: fields_of(&self.lines.lock().unwrap()),
            length: None,
            body,
            tunnel: None,
            waited: 0,
        };
        Box::pin(async { Ok(response) })
    }
}

struct World {
    engine: Arc<Engine>,
    site: Arc<Site>,
}

impl World {
    /// An origin with these field lines on every page.
    fn new(lines: &str, rules: Rules) -> Self {
        let site = Arc::new(Site::default());
        let route = support::route(Arc::clone(&site) as Arc<_>, rules);
        let engine = support::engine(support::settings(), route, Tiers::default());
        let world = Self { engine, site };
        world.says(lines);
        world
    }

    fn private(lines: &str) -> Self {
        Self::new(lines, Rules::private())
    }

    fn says(&self, lines: &str) {
        lines.clone_into(&mut self.site.lines.lock().unwrap());
    }

    fn is_down(&self) {
        *self.site.is_down.lock().unwrap() = true;
    }

    fn request_count(&self) -> usize {
        self.site.seen.lock().unwrap().len()
    }

    /// Checks that the last request to the origin had this field.
    fn last_request_has(&self, name: &str) -> bool {
        let seen = self.site.seen.lock().unwrap();
        seen.last()
            .is_some_and(|fields| fields.fields().contains(name))
    }

    async fn response(&self, fields: &str) -> Response {
        ask(&self.engine, &Method::GET, "/", fields).await
    }

    /// The body: the number of the origin request that brought it.
    async fn get(&self, fields: &str) -> String {
        let body = read(self.response(fields).await).await;
        for _ in 0..50 {
            yield_now().await;
        }
        String::from_utf8(body).expect("a number")
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_for_one_user_is_reused_for_that_user() {
    let lines = "Cache-Control: private, max-age=60\r\nSet-Cookie: id=1";
    let world = World::private(lines);
    assert_eq!(world.get("").await, "1");
    let response = world.response("").await;
    assert!(response.cache_status.hit);
    assert!(response.fields().contains("set-cookie"), "it is his own");
    assert_eq!(read(response).await, b"1");
    let shared = World::new(lines, Rules::default());
    assert_eq!(
        (shared.get("").await, shared.get("").await),
        ("1".into(), "2".into())
    );
}

#[tokio::test(start_paused = true)]
async fn credentials_are_answered_from_the_cache_each_identity_from_its_own() {
    let world = World::private("Cache-Control: max-age=60");
    assert_eq!(world.get("Authorization: Bearer 1").await, "1");
    assert!(world.last_request_has("authorization"));
    assert_eq!(world.get("Authorization: Bearer 1").await, "1");
    assert_eq!(world.get("Authorization: Bearer 2").await, "2");
    assert_eq!(world.get("").await, "3");
    assert_eq!(world.get("Authorization: Bearer 1").await, "1");
    assert_eq!(world.get("Cookie: session=1").await, "3");
    assert_eq!(world.request_count(), 3);
}

#[tokio::test(start_paused = true)]
async fn two_of_the_same_identity_share_one_fetch() {
    let world = World::private("Cache-Control: private, max-age=60");
    let fields = "Authorization: Bearer 1";
    let (one, other) = tokio::join!(world.get(fields), world.get(fields));
    assert_eq!((one, other), ("1".into(), "1".into()));
    assert_eq!(world.request_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn words_for_shared_caches_do_not_count() {
    let world =
        World::private("Cache-Control: max-age=5, s-maxage=60\r\nCDN-Cache-Control: no-store");
    assert_eq!(world.get("").await, "1");
    assert_eq!(world.get("").await, "1");
    advance(Duration::from_secs(6)).await;
    assert_eq!(world.get("").await, "2");
}

#[tokio::test(start_paused = true)]
async fn only_must_revalidate_keeps_a_stale_copy_back_when_the_origin_fails() {
    for (also, status) in [
        ("proxy-revalidate", 200),
        ("s-maxage=5", 200),
        ("must-revalidate", 503),
    ] {
        let lines = format!("Cache-Control: max-age=5, stale-if-error=60, {also}");
        let world = World::private(&lines);
        assert_eq!(world.get("").await, "1");
        world.is_down();
        advance(Duration::from_secs(6)).await;
        assert_eq!(world.response("").await.status, status, "{also}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_word_nothing_stale_is_used() {
    let world = World::private("Cache-Control: max-age=5");
    assert_eq!(world.get("").await, "1");
    advance(Duration::from_secs(6)).await;
    assert_eq!(world.get("").await, "2");
    world.is_down();
    advance(Duration::from_secs(6)).await;
    assert_eq!(world.response("").await.status, 503);
}

#[tokio::test(start_paused = true)]
async fn a_reload_reaches_the_origin_and_renews_the_entry() {
    let world = World::private("Cache-Control: max-age=60");
    assert_eq!(world.get("").await, "1");
    assert_eq!(world.get("Cache-Control: no-cache").await, "2");
    assert!(world.last_request_has("cache-control"), "it is his word");
    assert_eq!(world.get("").await, "2");
    assert_eq!(world.request_count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_response_with_a_validator_is_stored_and_revalidated_each_time() {
    let world = World::private("ETag: \"a\"");
    assert_eq!(world.get("").await, "1");
    for requested in [2, 3] {
        let response = world.response("").await;
        assert_eq!(response.cache_status.fwd_status, Some(304));
        assert_eq!(read(response).await, b"1");
        assert_eq!(world.request_count(), requested);
        assert!(world.last_request_has("if-none-match"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_user_may_accept_stale() {
    let world = World::private("Cache-Control: max-age=5");
    assert_eq!(world.get("").await, "1");
    advance(Duration::from_secs(10)).await;
    assert_eq!(world.get("Cache-Control: max-stale=20").await, "1");
    assert_eq!(world.request_count(), 1);
    assert_eq!(world.get("Cache-Control: max-stale=2").await, "2");
    world.says("Cache-Control: max-age=5, must-revalidate");
    assert_eq!(world.get("Cache-Control: no-cache").await, "3");
    advance(Duration::from_secs(10)).await;
    assert_eq!(world.get("Cache-Control: max-stale=20").await, "4");
}

#[tokio::test(start_paused = true)]
async fn it_is_no_intermediary() {
    for (rules, via) in [(Rules::private(), false), (Rules::default(), true)] {
        let world = World::new("Cache-Control: max-age=60", rules);
        for _ in 0..2 {
            let response = world.response("").await;
            assert_eq!(response.fields().contains("via"), via);
            read(response).await;
        }
        assert_eq!(world.request_count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn an_unsafe_request_invalidates_the_entries_of_its_identity() {
    let world = World::private("Cache-Control: private, max-age=60");
    let one = "Authorization: Bearer 1";
    assert_eq!(world.get(one).await, "1");
    ask(&world.engine, &Method::POST, "/", one).await;
    assert_eq!(world.get(one).await, "3");
}
