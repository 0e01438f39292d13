//! What a request gets, and what the server is asked.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Empty};
use microcache_client::{Cache, CacheInfo, CacheMode, CacheOptions, EventKind, Outcome};
use tokio::time::{Sleep, advance, sleep};
use tower::{Layer, Service, ServiceExt};

use crate::support::{
    Client, Site, SiteFuture, SiteResponse, no_body, page, piecemeal, request, settle, status,
    whole,
};

const MINUTE: &[(&str, &str)] = &[("cache-control", "max-age=60")];

#[tokio::test(start_paused = true)]
async fn a_fresh_response_is_a_hit_with_its_age() {
    let site = Site::says(MINUTE);
    let client = Client::private(&site).await;
    let first = client.get("/a", &[]).await;
    assert_eq!((first.body(), first.outcome()), ("1", Outcome::Miss));
    assert!(first.info.stored);
    assert!(!first.headers.contains_key("age"));
    advance(Duration::from_secs(7)).await;
    let second = client.get("/a", &[]).await;
    assert_eq!((second.body(), second.outcome()), ("1", Outcome::Hit));
    assert_eq!(second.info.age, Some(Duration::from_secs(7)));
    assert_eq!(second.headers["age"], "7");
    assert_eq!(second.headers["content-length"], "1");
    assert_eq!(second.headers["cache-control"], "max-age=60");
    assert!(!second.headers.contains_key("via"));
    advance(Duration::from_secs(54)).await;
    assert_eq!(client.get("/a", &[]).await.body(), "2");
}

/// A service that is ready only after a while.
struct Busy {
    site: Site,
    wait: Pin<Box<Sleep>>,
}

const BUSY: Duration = Duration::from_secs(30);

impl Clone for Busy {
    fn clone(&self) -> Self {
        Self {
            site: self.site.clone(),
            wait: Box::pin(sleep(BUSY)),
        }
    }
}

impl Service<Request<Empty<Bytes>>> for Busy {
    type Response = SiteResponse;
    type Error = io::Error;
    type Future = SiteFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        self.wait.as_mut().poll(cx).map(Ok)
    }

    fn call(&mut self, request: Request<Empty<Bytes>>) -> SiteFuture {
        self.site.call(request)
    }
}

/// RFC 9111 §4.2.3: a response ages from when its request was sent.
#[tokio::test(start_paused = true)]
async fn waiting_for_the_service_does_not_age_a_response() {
    let site = Site::says(&[("cache-control", "max-age=10")]);
    let cache = Cache::private().build().await.unwrap();
    let service = cache.layer().layer(Busy {
        site: site.clone(),
        wait: Box::pin(sleep(BUSY)),
    });
    for outcome in [Outcome::Miss, Outcome::Hit] {
        let response = service.clone().oneshot(request("/", &[])).await.unwrap();
        let info = response.extensions().get::<CacheInfo>().unwrap();
        assert_eq!(info.outcome, outcome);
        response.into_body().collect().await.unwrap();
        settle().await;
    }
    assert_eq!(site.request_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stale_response_is_confirmed_by_its_validator() {
    let site = Site::says(&[("cache-control", "max-age=1"), ("etag", "\"a\"")]);
    let client = Client::private(&site).await;
    assert_eq!(client.get("/", &[]).await.body(), "1");
    advance(Duration::from_secs(2)).await;
    let confirmed = client.get("/", &[]).await;
    assert_eq!(
        (confirmed.status, confirmed.body(), confirmed.outcome()),
        (200, "1", Outcome::Validated)
    );
    assert_eq!(site.seen()[1].headers["if-none-match"], "\"a\"");
    assert_eq!(client.get("/", &[]).await.outcome(), Outcome::Hit);
}

#[tokio::test(start_paused = true)]
async fn the_callers_own_conditions_and_ranges_are_answered() {
    let site = Site::new(|_, _| page("0123456789", &[MINUTE[0], ("etag", "\"a\"")]));
    let client = Client::private(&site).await;
    client.get("/", &[]).await;
    let same = client.get("/", &[("if-none-match", "\"a\"")]).await;
    assert_eq!(
        (same.status, same.body(), same.outcome()),
        (304, "", Outcome::Hit)
    );
    let part = client.get("/", &[("range", "bytes=2-4")]).await;
    assert_eq!((part.status, part.body()), (206, "234"));
    assert_eq!(part.headers["content-range"], "bytes 2-4/10");
    let mut head = request("/", &[]);
    *head.method_mut() = Method::HEAD;
    let head = client.ask(head).await;
    assert_eq!((head.body(), head.outcome()), ("", Outcome::Hit));
    assert_eq!(head.headers["content-length"], "10");
    assert_eq!(site.request_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_wants_less_does_not_read_the_whole_body() {
    let site = Site::new(|_, request| {
        if request.method() == Method::HEAD {
            let mut head = page("", MINUTE);
            head.headers_mut().insert("content-length", 1000.into());
            return head;
        }
        assert_eq!(request.headers()["range"], "bytes=0-0");
        status(206, &[MINUTE[0], ("content-range", "bytes 0-0/1000")])
    });
    let client = Client::private(&site).await;
    for _ in 0..2 {
        let part = client.get("/", &[("range", "bytes=0-0")]).await;
        assert_eq!((part.status, part.outcome()), (206, Outcome::Miss));
        let mut head = request("/", &[]);
        *head.method_mut() = Method::HEAD;
        let head = client.ask(head).await;
        assert_eq!(head.headers["content-length"], "1000");
        assert_eq!((head.outcome(), head.info.stored), (Outcome::Miss, false));
    }
    let seen = site.seen();
    let methods: Vec<_> = seen.iter().map(|seen| &seen.method).collect();
    assert_eq!(methods, ["GET", "HEAD", "GET", "HEAD"]);
}

#[tokio::test(start_paused = true)]
async fn the_first_byte_is_there_when_the_server_has_sent_it() {
    let (pieces, body) = piecemeal();
    let body = std::sync::Mutex::new(Some(body));
    let site = Site::new(move |_, _| {
        let mut response = page("", MINUTE);
        *response.body_mut() = body.lock().unwrap().take().expect("one request");
        response
    });
    let client = Client::private(&site).await;
    pieces.send(Ok("first")).await.unwrap();
    let mut one = client.send(request("/", &[])).await.unwrap();
    let mut other = client.send(request("/", &[])).await.unwrap();
    for response in [&mut one, &mut other] {
        let frame = response.body_mut().frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), "first");
    }
    pieces.send(Ok(" second")).await.unwrap();
    drop(pieces);
    assert_eq!(whole(one).await.body(), " second");
    let other = whole(other).await;
    assert_eq!(
        (other.body(), other.outcome()),
        (" second", Outcome::Collapsed)
    );
    settle().await;
    assert_eq!(client.get("/", &[]).await.body(), "first second");
    assert_eq!(site.request_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn trailers_come_along() {
    let site = Site::new(|_, _| {
        let mut response = page("", MINUTE);
        let trailers = async {
            let mut map = http::HeaderMap::new();
            map.insert("checksum", "1".parse().unwrap());
            Some(Ok(map))
        };
        let body = http_body_util::Full::new(Bytes::from("body"));
        let body = body.map_err(|never| match never {}).with_trailers(trailers);
        *response.body_mut() = body.boxed_unsync();
        response
    });
    let client = Client::private(&site).await;
    let response = client.send(request("/", &[])).await.unwrap();
    let whole = response.into_body().collect().await.unwrap();
    assert_eq!(whole.trailers().unwrap()["checksum"], "1");
    assert_eq!(whole.to_bytes(), "body");
}

#[tokio::test(start_paused = true)]
async fn modes_are_as_in_the_fetch_standard() {
    let site = Site::says(&[("cache-control", "max-age=10"), ("etag", "\"a\"")]);
    let client = Client::private(&site).await;
    let by = async |mode| {
        let got = client.get_by(mode, "/").await;
        (got.status, got.body().to_owned(), got.outcome())
    };
    let said = |status, body: &str, outcome| (status, body.to_owned(), outcome);
    assert_eq!(
        by(CacheMode::OnlyIfCached).await,
        said(504, "", Outcome::Module)
    );
    assert_eq!(
        by(CacheMode::ForceCache).await,
        said(200, "1", Outcome::Miss)
    );
    assert_eq!(
        by(CacheMode::NoCache).await,
        said(200, "1", Outcome::Validated)
    );
    assert_eq!(site.seen()[1].headers["cache-control"], "max-age=0");
    assert_eq!(by(CacheMode::Reload).await, said(200, "3", Outcome::Miss));
    assert!(!site.seen()[2].headers.contains_key("if-none-match"));
    assert_eq!(site.seen()[2].headers["cache-control"], "no-cache");
    assert_eq!(
        by(CacheMode::NoStore).await,
        said(200, "4", Outcome::Bypass)
    );
    assert_eq!(by(CacheMode::Default).await, said(200, "3", Outcome::Hit));
    advance(Duration::from_mins(1)).await;
    assert_eq!(
        by(CacheMode::ForceCache).await,
        said(200, "3", Outcome::Stale)
    );
    assert_eq!(
        by(CacheMode::OnlyIfCached).await,
        said(200, "3", Outcome::Stale)
    );
    assert_eq!(site.request_count(), 4);
    assert_eq!(
        by(CacheMode::Default).await,
        said(200, "3", Outcome::Validated)
    );
}

#[tokio::test(start_paused = true)]
async fn modes_count_in_a_shared_cache_too_and_force_nothing_that_is_forbidden() {
    let site = Site::says(&[
        ("cache-control", "max-age=1, must-revalidate"),
        ("etag", "\"a\""),
    ]);
    for client in [Client::private(&site).await, Client::shared(&site).await] {
        client.get("/", &[]).await;
        let reloaded = client.get_by(CacheMode::NoCache, "/").await;
        assert_eq!(reloaded.outcome(), Outcome::Validated);
        advance(Duration::from_secs(2)).await;
        let refused = client.get_by(CacheMode::OnlyIfCached, "/").await;
        assert_eq!((refused.status, refused.outcome()), (504, Outcome::Module));
        let requested = client.get_by(CacheMode::ForceCache, "/").await;
        assert_eq!(requested.outcome(), Outcome::Validated);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_may_say_how_long_its_answer_is_fresh_and_not_that_it_is_stored() {
    let site = Site::new(|number, request| match request.uri().path() {
        "/secret" => page(number.to_string(), &[("cache-control", "no-store")]),
        _ => page(number.to_string(), &[("cache-control", "max-age=1")]),
    });
    let client = Client::private(&site).await;
    let requested = |path: &str| {
        let mut request = request(path, &[]);
        request
            .extensions_mut()
            .insert(CacheOptions::default().with_ttl(Duration::from_secs(100)));
        request
    };
    assert_eq!(client.ask(requested("/")).await.body(), "1");
    advance(Duration::from_secs(99)).await;
    assert_eq!(client.get("/", &[]).await.body(), "1");
    advance(Duration::from_secs(2)).await;
    assert_eq!(client.get("/", &[]).await.body(), "2");
    assert_eq!(client.ask(requested("/secret")).await.body(), "3");
    assert_eq!(client.ask(requested("/secret")).await.body(), "4");
}

#[tokio::test(start_paused = true)]
async fn keys_of_the_callers_own_share_nothing() {
    let site = Site::says(MINUTE);
    let client = Client::private(&site).await;
    let with_key = |key: Option<&'static str>| {
        let mut request = request("/", &[]);
        let mut options = CacheOptions::default();
        options.key = key.map(Bytes::from);
        request.extensions_mut().insert(options);
        request
    };
    for _ in 0..2 {
        for (key, body) in [
            (None, "1"),
            (Some("a"), "2"),
            (Some("b\r\n\0"), "3"),
            (Some(""), "4"),
        ] {
            assert_eq!(client.ask(with_key(key)).await.body(), body);
        }
    }
    // A host of its own is one of another server, whatever the url says.
    assert_eq!(
        client.get("/", &[("host", "other.example")]).await.body(),
        "5"
    );
    assert_eq!(site.seen()[4].headers["host"], "other.example");
    assert!(
        site.seen().iter().all(|seen| seen.headers.len() <= 1),
        "{:?}",
        site.seen()
    );
}

#[tokio::test(start_paused = true)]
async fn unsafe_requests_pass_and_invalidate() {
    let site = Site::says(MINUTE);
    let client = Client::private(&site).await;
    for lines in [&[][..], &[("authorization", "Bearer 1")]] {
        client.get("/a", lines).await;
        client.get("/b", lines).await;
        assert_eq!(client.get("/a", lines).await.outcome(), Outcome::Hit);
        let mut post = request("/a", lines);
        *post.method_mut() = Method::POST;
        assert_eq!(client.ask(post).await.outcome(), Outcome::Bypass);
        assert_eq!(client.get("/a", lines).await.outcome(), Outcome::Miss);
        assert_eq!(
            client.get("/a", &[]).await.body(),
            client.get("/a", &[]).await.body()
        );
        assert_eq!(client.get("/b", lines).await.outcome(), Outcome::Hit);
    }
    for uri in [
        "http://user:secret@site.example/a",
        "ftp://site.example/a",
        "/a",
    ] {
        let odd = Request::get(uri).body(Empty::new()).unwrap();
        assert_eq!(client.ask(odd).await.outcome(), Outcome::Bypass, "{uri}");
    }
}

#[tokio::test(start_paused = true)]
async fn purges_name_a_url_a_prefix_a_tag_or_everything() {
    let site = Site::new(|number, request| match request.uri().path() {
        "/news/1" => page(
            number.to_string(),
            &[MINUTE[0], ("cache-tag", "front, news")],
        ),
        _ => page(number.to_string(), MINUTE),
    });
    let client = Client::private(&site).await;
    let paths = ["/news/1", "/news/2", "/about"];
    let url = |path: &str| format!("http://SITE.example:80{path}").parse().unwrap();
    let cache = client.cache.clone();
    let left = async || {
        let mut left = Vec::new();
        for path in paths {
            if client.get_by(CacheMode::OnlyIfCached, path).await.status == 200 {
                left.push(path);
            }
        }
        for path in paths {
            client.get(path, &[]).await;
        }
        left
    };
    assert_eq!(left().await, [""; 0]);
    cache.purge(&url("/about")).await.unwrap();
    assert_eq!(left().await, ["/news/1", "/news/2"]);
    cache.purge_tag("front").await.unwrap();
    assert_eq!(left().await, ["/news/2", "/about"]);
    cache.purge_prefix(&url("/news/")).await.unwrap();
    assert_eq!(left().await, ["/about"]);
    cache.clear().await.unwrap();
    assert_eq!(left().await, [""; 0]);
    let error = cache.purge(&"/about".parse().unwrap()).await.unwrap_err();
    assert!(error.to_string().contains("begin with http://"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn it_counts_and_tells() {
    let site = Site::says(MINUTE);
    let client = Client::with(Cache::private().memory(1 << 20), &site).await;
    let mut events = client.cache.events().expect("few listen");
    client.get("/a", &[]).await;
    client.get("/a", &[]).await;
    client.cache.clear().await.unwrap();
    let stored = events.next().await;
    assert_eq!(stored.kind, EventKind::Stored);
    assert_eq!(stored.subject, "http://site.example/a");
    let purged = events.next().await;
    assert_eq!(
        (purged.kind, &purged.subject[..]),
        (EventKind::Purged, "everything")
    );
    let stats = client.cache.stats();
    assert_eq!(stats.requests(Outcome::Hit), 1);
    assert_eq!(stats.requests(Outcome::Miss), 1);
    assert_eq!((stats.errors, stats.capacity), (0, 1 << 20));
}

#[tokio::test(start_paused = true)]
async fn extensions_reach_the_server_with_the_request() {
    #[derive(Clone)]
    struct Mark(u8);
    let site = Site::new(|_, request| {
        let mark = request.extensions().get::<Mark>().map_or(0, |mark| mark.0);
        page(mark.to_string(), MINUTE)
    });
    let client = Client::private(&site).await;
    let mut marked = request("/", &[]);
    marked.extensions_mut().insert(Mark(7));
    assert_eq!(client.ask(marked).await.body(), "7");
}

#[tokio::test(start_paused = true)]
async fn a_response_keeps_the_version_and_extensions_of_its_request() {
    #[derive(Clone, Debug, PartialEq)]
    struct Mark(usize);
    let site = Site::new(|number, request| {
        let lines = match request.uri().path() {
            "/stored" => MINUTE,
            "/checked" => &[("cache-control", "no-cache"), ("etag", "\"a\"")],
            _ => &[("cache-control", "no-store")],
        };
        let mut response = page(number.to_string(), lines);
        if request.headers().contains_key("if-none-match") {
            *response.status_mut() = http::StatusCode::NOT_MODIFIED;
            *response.body_mut() = no_body();
        }
        *response.version_mut() = http::Version::HTTP_2;
        response.extensions_mut().insert(Mark(number));
        response
    });
    let client = Client::private(&site).await;
    let none = (http::Version::HTTP_11, None);
    for (number, path, outcome) in [
        (1, "/stored", Outcome::Miss),
        (0, "/stored", Outcome::Hit),
        (2, "/checked", Outcome::Miss),
        (0, "/checked", Outcome::Validated),
        (4, "/private", Outcome::Miss),
    ] {
        let response = client.send(request(path, &[])).await.unwrap();
        let mark = response.extensions().get::<Mark>().cloned();
        let expected = match number {
            0 => none.clone(),
            number => (http::Version::HTTP_2, Some(Mark(number))),
        };
        assert_eq!((response.version(), mark), expected, "{path} {outcome:?}");
        assert_eq!(whole(response).await.outcome(), outcome);
        settle().await;
    }
    let mut head = request("/head", &[]);
    *head.method_mut() = Method::HEAD;
    let response = client.send(head).await.unwrap();
    assert_eq!(response.extensions().get(), Some(&Mark(5)));
}

#[tokio::test(start_paused = true)]
async fn all_layers_of_a_cache_share_its_entries() {
    let (one, other) = (Site::says(MINUTE), Site::says(MINUTE));
    let client = Client::private(&one).await;
    let second = Client::of(&client.cache.clone(), &other);
    client.get("/", &[]).await;
    assert_eq!(second.get("/", &[]).await.outcome(), Outcome::Hit);
    assert_eq!((one.request_count(), other.request_count()), (1, 0));
}

#[tokio::test]
async fn build_errors_name_the_reason() {
    let reported = |error: microcache_client::BuildError| error.to_string();
    let too_little = Cache::private().memory(10).build().await.unwrap_err();
    assert!(reported(too_little).contains("set at least 65536"));
    let percent = Cache::private().heuristic(101).build().await.unwrap_err();
    assert!(reported(percent).contains("set at most 100"));
    let whose = Cache::shared().partition("a").build().await.unwrap_err();
    assert!(reported(whose).contains("private"));
}

#[test]
fn without_a_runtime_the_build_fails() {
    let mut built = Box::pin(Cache::private().build());
    let mut cx = Context::from_waker(Waker::noop());
    let Poll::Ready(Err(error)) = built.as_mut().poll(&mut cx) else {
        panic!("it is known at once");
    };
    assert!(error.to_string().contains("inside a tokio runtime"));
}

#[tokio::test(start_paused = true)]
async fn an_unsafe_request_invalidates_the_variant_of_its_identity() {
    let site = Site::says(MINUTE);
    let client = Client::private(&site).await;
    let keyed = |method: &Method, key: Option<&'static str>, lines: &[(&str, &str)]| {
        let mut request = request("/", lines);
        *request.method_mut() = method.clone();
        let mut options = CacheOptions::default();
        options.key = key.map(Bytes::from);
        request.extensions_mut().insert(options);
        request
    };
    for (key, lines) in [
        (Some("tenant"), &[][..]),
        (None, &[("host", "other.example")]),
        (None, &[("host", "SITE.example")]),
        (Some("tenant"), &[("authorization", "Bearer 1")]),
    ] {
        client.ask(keyed(&Method::GET, key, lines)).await;
        client.ask(keyed(&Method::GET, key, &[])).await;
        let hit = client.ask(keyed(&Method::GET, key, lines)).await;
        assert_eq!(hit.outcome(), Outcome::Hit);
        client.ask(keyed(&Method::DELETE, key, lines)).await;
        let gone = client.ask(keyed(&Method::GET, key, lines)).await;
        assert_eq!(gone.outcome(), Outcome::Miss, "{key:?} {lines:?}");
    }
    // The URL's own host is not a foreign one.
    let own = client
        .ask(keyed(&Method::GET, None, &[("host", "SITE.example")]))
        .await;
    let plain = client.ask(keyed(&Method::GET, None, &[])).await;
    assert_eq!(own.body(), plain.body());
}

#[tokio::test(start_paused = true)]
async fn a_client_with_a_current_copy_gets_a_304() {
    let site = Site::new(|_, request| match request.headers().get("if-none-match") {
        Some(tag) if tag == "\"a\"" => {
            let mut same = page("", &[("etag", "\"a\""), ("cache-control", "no-store")]);
            *same.status_mut() = http::StatusCode::NOT_MODIFIED;
            same
        }
        _ => page("whole", &[("etag", "\"a\""), ("cache-control", "no-store")]),
    });
    let client = Client::private(&site).await;
    for _ in 0..3 {
        let same = client.get("/", &[("if-none-match", "\"a\"")]).await;
        assert_eq!((same.status, same.body()), (304, ""));
        assert!(
            !same.headers.contains_key("content-length"),
            "{:?}",
            same.headers
        );
        advance(Duration::from_mins(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_without_a_length_has_none_and_changes_nothing() {
    let site = Site::new(|_, request| match *request.method() {
        Method::HEAD => page("", &[MINUTE[0], ("etag", "\"a\"")]),
        _ => page("the page", &[MINUTE[0], ("etag", "\"a\"")]),
    });
    let client = Client::private(&site).await;
    client.get("/", &[]).await;
    let mut head = request("/", &[("cache-control", "no-cache")]);
    *head.method_mut() = Method::HEAD;
    let head = client.ask(head).await;
    assert_eq!(head.status, 200);
    assert!(
        !head.headers.contains_key("content-length"),
        "{:?}",
        head.headers
    );
    assert_eq!(client.get("/", &[]).await.outcome(), Outcome::Hit);
}

#[tokio::test(start_paused = true)]
async fn cache_control_of_a_request_is_forwarded() {
    let site = Site::says(&[("cache-control", "max-age=60"), ("etag", "\"a\"")]);
    for client in [Client::private(&site).await, Client::shared(&site).await] {
        let before = site.request_count();
        client.get("/", &[("cache-control", "max-age=7")]).await;
        client.get_by(CacheMode::NoCache, "/").await;
        client.get_by(CacheMode::Reload, "/").await;
        let seen = &site.seen()[before..];
        let words: Vec<_> = seen
            .iter()
            .map(|seen| &seen.headers["cache-control"])
            .collect();
        assert_eq!(words, ["max-age=7", "max-age=0", "no-cache"]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_version_of_http_is_the_caller_s() {
    let site = Site::new(|_, request| page(format!("{:?}", request.version()), MINUTE));
    let client = Client::private(&site).await;
    let mut request = request("/", &[]);
    *request.version_mut() = http::Version::HTTP_2;
    assert_eq!(client.ask(request).await.body(), "HTTP/2.0");
}

#[tokio::test(start_paused = true)]
async fn a_url_without_a_path_is_purged_too() {
    let site = Site::says(MINUTE);
    let client = Client::private(&site).await;
    let bare = || {
        Request::get("http://site.example?a=b")
            .body(Empty::new())
            .unwrap()
    };
    client.ask(bare()).await;
    assert_eq!(client.ask(bare()).await.outcome(), Outcome::Hit);
    let url = "http://site.example?a=b".parse().unwrap();
    client.cache.purge(&url).await.unwrap();
    assert_eq!(client.ask(bare()).await.outcome(), Outcome::Miss);
}
