//! Responses for one client: their effect on the stored response.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Method;
use microcache_engine::cache::{Scope, Strength};
use microcache_engine::{
    Body, BoxFuture, Engine, Origin, OriginError, OriginRequest, OriginResponse, Response,
};
use microcache_policy::{Fields, Reload, Rules, SetCookie};
use microcache_store::Tiers;
use tokio::sync::Semaphore;
use tokio::task::yield_now;
use tokio::time::advance;

use crate::asking::{ask, fields_of, incoming, read};
use crate::support;

/// A status and field lines, with `#` for the number of the request.
type Answer = (u16, &'static str);

/// Answers conditional and other requests as the test says.
struct Site {
    conditional: Mutex<Answer>,
    whole: Mutex<Answer>,
    requested: AtomicUsize,
    places: Semaphore,
}

impl Origin for Site {
    fn fetch(&self, request: OriginRequest) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        Box::pin(async move {
            let number = (self.requested.fetch_add(1, Ordering::Relaxed) + 1).to_string();
            self.places.acquire().await.unwrap().forget();
            let is_conditional = request.fields.fields().contains("if-none-match");
            let answer = if is_conditional {
                &self.conditional
            } else {
                &self.whole
            };
            let (status, lines) = *answer.lock().unwrap();
            let body = if status == 304 || request.method == Method::HEAD {
                Body::Empty
            } else {
                Body::Full(number.clone().into())
            };
            Ok(OriginResponse {
                status,
                fields: fields_of(&lines.replace('#', &number)),
                length: None,
                body,
                tunnel: None,
                waited: 0,
            })
        })
    }
}

struct World {
    engine: Arc<Engine>,
    site: Arc<Site>,
}

impl World {
    /// Stores a page: the first response, with the body `1`.
    async fn with_page(rules: Rules, collapse: bool, page: &'static str) -> Self {
        let site = Arc::new(Site {
            conditional: Mutex::new((304, page)),
            whole: Mutex::new((200, page)),
            requested: AtomicUsize::new(0),
            places: Semaphore::new(1_000),
        });
        let mut route = support::route(Arc::clone(&site) as Arc<_>, rules);
        route.collapse = collapse;
        let engine = support::engine(support::settings(), route, Tiers::default());
        let world = Self { engine, site };
        assert_eq!(world.get("").await, got("1", None, None));
        world
    }

    fn says(&self, conditional: Answer, whole: Answer) {
        *self.site.conditional.lock().unwrap() = conditional;
        *self.site.whole.lock().unwrap() = whole;
    }

    fn request_count(&self) -> usize {
        self.site.requested.load(Ordering::Relaxed)
    }

    async fn get(&self, fields: &str) -> Got {
        let response = ask(&self.engine, &Method::GET, "/", fields).await;
        let got = Got::of(response).await;
        settle().await;
        got
    }

    /// Three concurrent requests.
    async fn three(&self) -> Vec<Got> {
        let places = self.site.places.forget_permits(1_000);
        let asking = (0..3).map(|_| {
            let engine = Arc::clone(&self.engine);
            tokio::spawn(async move { ask(&engine, &Method::GET, "/", "").await })
        });
        let asking: Vec<_> = asking.collect();
        settle().await;
        self.site.places.add_permits(places);
        let mut all = Vec::new();
        for one in asking {
            all.push(Got::of(one.await.unwrap()).await);
        }
        all
    }
}

/// Lets background tasks run until they wait.
async fn settle() {
    for _ in 0..50 {
        yield_now().await;
    }
}

/// A body, and the two fields that are for one client.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Got {
    body: String,
    cookie: Option<String>,
    csrf: Option<String>,
}

impl Got {
    async fn of(response: Response) -> Self {
        let value = |name| {
            let value = response.fields().get(name)?;
            Some(String::from_utf8(value.to_vec()).unwrap())
        };
        let (cookie, csrf) = (value("set-cookie"), value("x-csrf"));
        let body = String::from_utf8(read(response).await).unwrap();
        Self { body, cookie, csrf }
    }
}

fn got(body: &str, cookie: Option<&str>, csrf: Option<&str>) -> Got {
    Got {
        body: body.to_owned(),
        cookie: cookie.map(str::to_owned),
        csrf: csrf.map(str::to_owned),
    }
}

fn own(body: &str, number: &str) -> Got {
    got(body, Some(&format!("id={number}")), Some(number))
}

const PAGE: &str = "Cache-Control: max-age=10\r\nETag: \"a\"";
const NOT_STALE: &str = "Cache-Control: s-maxage=10\r\nETag: \"a\"";
const WITH_COOKIE: &str =
    "Cache-Control: max-age=10\r\nETag: \"a\"\r\nSet-Cookie: id=#\r\nX-Csrf: #";
const FAILED: Answer = (503, "");

#[tokio::test(start_paused = true)]
async fn a_304_with_set_cookie_is_for_the_leader_only() {
    let world = World::with_page(Rules::default(), true, NOT_STALE).await;
    advance(Duration::from_secs(11)).await;
    world.says((304, WITH_COOKIE), (200, WITH_COOKIE));
    let mut all = world.three().await;
    all.sort();
    assert_eq!(all, [own("1", "2"), own("3", "3"), own("4", "4")]);
    assert_eq!(
        world.get("").await,
        own("5", "5"),
        "for a while all ask alone"
    );
}

#[tokio::test(start_paused = true)]
async fn the_cookie_of_a_refresh_is_dropped_and_the_copy_stays_for_errors() {
    for status in [304, 200] {
        let world = World::with_page(Rules::default(), true, PAGE).await;
        advance(Duration::from_secs(11)).await;
        world.says((status, WITH_COOKIE), (200, WITH_COOKIE));
        let stored = got("1", None, None);
        assert_eq!(world.get("").await, stored, "stale, and refreshed");
        assert_eq!(world.request_count(), 2);
        assert_eq!(world.get("").await, own("3", "3"), "{status}");
        world.says(FAILED, FAILED);
        assert_eq!(world.get("").await, stored, "{status}: the copy stays");
    }
}

#[tokio::test(start_paused = true)]
async fn with_cookies_stripped_the_leader_gets_its_own_cookie() {
    let rules = Rules {
        set_cookie: SetCookie::Strip,
        ..Rules::default()
    };
    let world = World::with_page(rules, true, NOT_STALE).await;
    advance(Duration::from_secs(11)).await;
    world.says((304, WITH_COOKIE), (200, WITH_COOKIE));
    let mut all = world.three().await;
    all.sort();
    let shared = got("1", None, Some("2"));
    assert_eq!(all, [shared, got("1", None, Some("2")), own("1", "2")]);
    assert_eq!(world.request_count(), 2);
}

/// A private cache takes over all fields (RFC 9111 §3.2).
#[tokio::test(start_paused = true)]
async fn in_a_private_cache_a_304_with_a_cookie_freshens() {
    let world = World::with_page(Rules::private(), true, PAGE).await;
    advance(Duration::from_secs(11)).await;
    world.says((304, WITH_COOKIE), FAILED);
    assert_eq!(world.get("").await, own("1", "2"));
    assert_eq!(world.get("").await, own("1", "2"));
    assert_eq!(world.request_count(), 2);
}

/// A HEAD that is sent to the origin as such.
async fn head(world: &World, fields: &str) -> Got {
    let response = ask(&world.engine, &Method::HEAD, "/", fields).await;
    Got::of(response).await
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_head_that_is_for_one_client_changes_nothing() {
    for (cookie, lines) in [
        (Some("id=2"), WITH_COOKIE),
        (Some("id=2"), "ETag: \"b\"\r\nSet-Cookie: id=#"),
        (None, "ETag: \"b\"\r\nCache-Control: private"),
        (None, "ETag: \"b\"\r\nCache-Control: no-store"),
    ] {
        let rules = Rules {
            reload: Reload::Honour,
            ..Rules::default()
        };
        let world = World::with_page(rules, false, NOT_STALE).await;
        world.says(FAILED, (200, lines));
        advance(Duration::from_secs(9)).await;
        let answer = head(&world, "Cache-Control: no-cache").await;
        assert_eq!(
            (world.request_count(), answer.cookie.as_deref()),
            (2, cookie)
        );
        assert_eq!(world.get("").await, got("1", None, None), "{lines}");
        assert_eq!(world.request_count(), 2, "{lines}: the page is fresh");
        advance(Duration::from_secs(2)).await;
        world.get("").await;
        assert_eq!(world.request_count(), 3, "{lines}: no longer than before");
    }
}

#[tokio::test(start_paused = true)]
async fn private_and_no_store_end_the_copy_where_the_fetch_was_for_all() {
    for lines in ["Cache-Control: private", "Cache-Control: no-store"] {
        for status in [304, 200] {
            let world = World::with_page(Rules::default(), true, PAGE).await;
            advance(Duration::from_secs(11)).await;
            world.says((status, lines), (200, lines));
            assert_eq!(world.get("").await.body, "1", "stale, and refreshed");
            world.says(FAILED, FAILED);
            assert_eq!(world.get("").await.body, "3", "{status} {lines}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn private_and_no_store_end_nothing_where_a_client_asks_for_himself() {
    for fields in ["Authorization: Basic eDp5", "Cookie: session=1"] {
        for lines in ["Cache-Control: private", "Cache-Control: no-store"] {
            let world = World::with_page(Rules::default(), true, PAGE).await;
            advance(Duration::from_secs(25)).await;
            world.says((304, lines), (200, lines));
            assert_eq!(world.get(fields).await.body, "2");
            world.says(FAILED, FAILED);
            assert_eq!(world.get("").await.body, "1", "{fields} {lines}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_entry_purged_meanwhile_is_not_reported_as_stored() {
    for status in [200, 304] {
        for by_rule in [false, true] {
            let world = World::with_page(Rules::default(), true, NOT_STALE).await;
            advance(Duration::from_secs(11)).await;
            world.says((status, NOT_STALE), (200, NOT_STALE));
            world.site.places.forget_permits(1_000);
            let engine = Arc::clone(&world.engine);
            let asking = tokio::spawn(async move { ask(&engine, &Method::GET, "/", "").await });
            settle().await;
            assert_eq!(world.request_count(), 2);
            if by_rule {
                let rule = (Scope::Everything, Strength::Hard);
                let purged = world.engine.cache.purge([rule]).await;
                purged.written.expect("it is written down");
            } else {
                let post = incoming(&Method::POST, "/", "");
                let purging =
                    world
                        .engine
                        .invalidate_after(&post.as_request(), 200, Fields::default());
                purging.await;
            }
            world.site.places.add_permits(1_000);
            let response = asking.await.unwrap();
            assert!(!response.cache_status.stored, "{status} {by_rule}");
            read(response).await;
            settle().await;
            let response = ask(&world.engine, &Method::GET, "/", "").await;
            assert!(response.cache_status.stored, "{status} {by_rule}");
        }
    }
}
