//! Real clients, real connections.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use microcache_client::{Cache, CacheInfo, CacheMode, CacheOptions, Outcome, reqwest as cached};
use tokio::net::TcpListener;
use tower::{Layer, ServiceExt};

#[path = "../../examples/forward.rs"]
#[expect(dead_code, reason = "a test has no command line")]
mod forward;

/// What the server was asked: method, path and body.
type RequestLog = Arc<Mutex<Vec<(Method, String, String)>>>;

/// A server whose answers name what was asked. `/moved` leads to `/there` for ever, `/found` for now, and `/again`
/// with the same method; `/away` leads to another site, and `/far` to one that redirects once more.
async fn serve() -> (SocketAddr, RequestLog) {
    // Built together with a program that brings its own, reqwest has none for TLS, and wants one.
    let _may_be_there = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let requested = RequestLog::default();
    let seen = Arc::clone(&requested);
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let seen = Arc::clone(&seen);
            let service = service_fn(move |request| answer(request, Arc::clone(&seen)));
            let connection =
                http1::Builder::new().serve_connection(TokioIo::new(connection), service);
            tokio::spawn(async move { drop(connection.await) });
        }
    });
    (address, requested)
}

async fn answer(
    request: Request<Incoming>,
    seen: RequestLog,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let said = |name: &str| {
        let value = request
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    let (host, language) = (said("host"), said("accept-language"));
    let who = said("authorization") + &said("x-api-key");
    let body = request
        .into_body()
        .collect()
        .await
        .expect("a body")
        .to_bytes();
    let body = String::from_utf8(body.into()).expect("text");
    let response = Response::builder();
    let response = match &path[..] {
        "/moved" => response
            .status(301)
            .header("location", "/there")
            .header("cache-control", "max-age=60"),
        "/found" => response.status(302).header("location", "/there"),
        "/away" | "/far" => {
            let there = host.replace("127.0.0.1", "localhost");
            let page = if path == "/far" { "on" } else { "who" };
            let there = format!("http://{there}/{page}");
            response.status(302).header("location", there)
        }
        "/on" => response.status(302).header("location", "/who"),
        "/again" => response.status(307).header("location", "/there"),
        "/language" => response
            .header("vary", "Accept-Language")
            .header("cache-control", "max-age=60"),
        _ => response.header("cache-control", "max-age=60"),
    };
    let answer = match &path[..] {
        "/who" => who,
        "/language" => language,
        _ => format!("{method} {path} {body}"),
    };
    seen.lock().unwrap().push((method, path, body));
    Ok(response.body(answer.into()).expect("a response"))
}

fn paths(requested: &RequestLog) -> Vec<String> {
    requested
        .lock()
        .unwrap()
        .drain(..)
        .map(|(_, path, _)| path)
        .collect()
}

#[tokio::test]
async fn hyper_with_a_layer() {
    let (address, requested) = serve().await;
    let cache = Cache::private().build().await.unwrap();
    let plain = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let client = cache.layer().layer(plain);
    for outcome in [Outcome::Miss, Outcome::Hit] {
        let request = Request::get(format!("http://{address}/page")).body(Full::default());
        let response = client.clone().oneshot(request.unwrap()).await.unwrap();
        let info = response.extensions().get::<CacheInfo>().unwrap();
        assert_eq!(info.outcome, outcome);
        assert_eq!(response.headers()["content-length"], "10");
        let body = response.into_body().collect().await.unwrap();
        assert_eq!(body.to_bytes(), "GET /page ");
    }
    let post = Request::post(format!("http://{address}/page")).body(Full::from("news"));
    let response = client.clone().oneshot(post.unwrap()).await.unwrap();
    let body = response.into_body().collect().await.unwrap();
    assert_eq!(body.to_bytes(), "POST /page news");
    let request = Request::get(format!("http://{address}/page")).body(Full::default());
    client.clone().oneshot(request.unwrap()).await.unwrap();
    assert_eq!(paths(&requested), ["/page"; 3]);
    // The server is stopped.
    let nobody = Request::get("http://127.0.0.1:1/").body(Full::default());
    let error = client.oneshot(nobody.unwrap()).await.unwrap_err();
    let inner = error.inner::<hyper_util::client::legacy::Error>();
    assert!(inner.is_some_and(hyper_util::client::legacy::Error::is_connect));
}

#[tokio::test]
async fn reqwest_with_a_cache_in_front_of_it() {
    let (address, requested) = serve().await;
    let cache = Cache::private().build().await.unwrap();
    let client = cached::Client::new(&cache, reqwest::Client::builder()).unwrap();
    let url = |path: &str| format!("http://{address}{path}");
    let outcome = |response: &reqwest::Response| {
        let info = response.extensions().get::<CacheInfo>();
        info.expect("it says what was done").outcome
    };
    for path in ["/moved", "/moved"] {
        let response = client.get(url(path)).await.unwrap();
        assert_eq!(response.url().as_str(), url("/there"));
        let requested = outcome(&response) == Outcome::Miss;
        assert_eq!(response.remote_addr().is_some(), requested);
        assert_eq!(response.text().await.unwrap(), "GET /there ");
    }
    assert_eq!(
        paths(&requested),
        ["/moved", "/there"],
        "each is kept by itself"
    );
    let hit = client.get(url("/there")).await.unwrap();
    assert_eq!(outcome(&hit), Outcome::Hit);
    for _ in 0..2 {
        let response = client.get(url("/found")).await.unwrap();
        assert_eq!(outcome(&response), Outcome::Hit);
    }
    assert_eq!(
        paths(&requested),
        ["/found", "/found"],
        "what leads there is asked for again"
    );
    let post = client.request(Method::POST, url("/again")).body("news");
    let response = client.execute(post.build().unwrap()).await.unwrap();
    assert_eq!(response.text().await.unwrap(), "POST /there news");
    paths(&requested);
    let request = client.request(Method::GET, url("/found")).build().unwrap();
    let options = CacheOptions::default().with_mode(CacheMode::Reload);
    let reloaded = client.execute_with(request, options).await.unwrap();
    assert_eq!(outcome(&reloaded), Outcome::Miss);
    assert_eq!(paths(&requested), ["/found", "/there"]);
    let error = client.get("http://127.0.0.1:1/").await.unwrap_err();
    assert!(
        error
            .inner::<reqwest::Error>()
            .is_some_and(reqwest::Error::is_connect)
    );
    assert!(client.get("not a url").await.is_err());
}

#[tokio::test]
async fn the_example_forwards() {
    let (address, requested) = serve().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let front = listener.local_addr().unwrap();
    let origin = address.to_string().parse().unwrap();
    let cache = Cache::shared().build().await.unwrap();
    tokio::spawn(async move { forward::serve(listener, origin, &cache).await.map_err(drop) });
    let client = reqwest::Client::new();
    for _ in 0..2 {
        let response = client
            .get(format!("http://{front}/page"))
            .send()
            .await
            .unwrap();
        assert_eq!(response.text().await.unwrap(), "GET /page ");
    }
    let post = client.post(format!("http://{front}/page")).body("news");
    let response = post.send().await.unwrap();
    assert_eq!(response.text().await.unwrap(), "POST /page news");
    assert_eq!(paths(&requested), ["/page", "/page"]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let front = listener.local_addr().unwrap();
    let (nobody, cache) = (
        "127.0.0.1:1".parse().unwrap(),
        Cache::private().build().await.unwrap(),
    );
    tokio::spawn(async move { forward::serve(listener, nobody, &cache).await.map_err(drop) });
    let response = client
        .get(format!("http://{front}/page"))
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 502);
}

#[tokio::test]
async fn credentials_are_known_to_the_cache_and_to_no_other_site() {
    let (address, _) = serve().await;
    let cache = Cache::private().build().await.unwrap();
    let client_of = |token: &'static str| {
        let client = cached::Client::new(&cache, reqwest::Client::builder()).unwrap();
        let token = http::HeaderValue::from_static(token);
        client.with_default_headers([(http::header::AUTHORIZATION, token)].into_iter().collect())
    };
    let (one, other) = (client_of("Bearer 1"), client_of("Bearer 2"));
    let who = async |client: &cached::Client, path: &str| {
        let response = client.get(format!("http://{address}{path}")).await.unwrap();
        response.text().await.unwrap()
    };
    for _ in 0..2 {
        assert_eq!(who(&one, "/who").await, "Bearer 1");
        assert_eq!(who(&other, "/who").await, "Bearer 2");
        for path in ["/away", "/far"] {
            assert_eq!(who(&one, path).await, "", "another site is told nothing");
        }
    }
}

/// A client of reqwest's that adds this header behind the cache.
fn client_that_adds(
    cache: &Cache,
    name: &'static str,
    value: &str,
    hidden: bool,
) -> cached::Client {
    let mut value = http::HeaderValue::from_str(value).unwrap();
    value.set_sensitive(hidden);
    let headers = [(http::HeaderName::from_static(name), value)];
    let builder = reqwest::Client::builder().default_headers(headers.into_iter().collect());
    cached::Client::new(cache, builder).unwrap()
}

#[tokio::test]
async fn default_headers_of_reqwest_count_as_request_headers() {
    let (address, requested) = serve().await;
    let text = async |client: &cached::Client, path: &str| {
        let response = client.get(format!("http://{address}{path}")).await.unwrap();
        response.text().await.unwrap()
    };
    let private = Cache::private().build().await.unwrap();
    for (name, hidden) in [
        ("authorization", false),
        ("x-api-key", false),
        ("authorization", true),
        ("x-api-key", true),
    ] {
        let [one, other] = ["1", "2"].map(|who| client_that_adds(&private, name, who, hidden));
        let plain = cached::Client::new(&private, reqwest::Client::builder()).unwrap();
        for _ in 0..2 {
            assert_eq!(text(&one, "/who").await, "1", "{name}");
            assert_eq!(text(&other, "/who").await, "2", "{name}");
            assert_eq!(text(&one.clone(), "/who").await, "1", "{name}");
            assert_eq!(text(&plain, "/who").await, "", "{name}");
        }
    }
    // Of two that are shown, the fields are the same as those of a request: two each, and one without.
    assert_eq!(paths(&requested).len(), 9);
    let [one, other] =
        ["de", "fr"].map(|value| client_that_adds(&private, "accept-language", value, false));
    for _ in 0..2 {
        assert_eq!(text(&one, "/language").await, "de");
        assert_eq!(text(&other, "/language").await, "fr");
    }
    assert_eq!(paths(&requested).len(), 2);
    let shared = Cache::shared().build().await.unwrap();
    for hidden in [false, true] {
        let one = client_that_adds(&shared, "x-api-key", "1", hidden);
        let plain = cached::Client::new(&shared, reqwest::Client::builder()).unwrap();
        assert_eq!(text(&one, "/who").await, "1");
        assert_eq!(text(&plain, "/who").await, "");
    }
}

#[tokio::test]
async fn credentials_that_reqwest_adds_go_to_no_other_site() {
    let (address, requested) = serve().await;
    let cache = Cache::private().build().await.unwrap();
    for hidden in [false, true] {
        let client = client_that_adds(&cache, "x-api-key", "1", hidden);
        for path in ["/away", "/far"] {
            let url = format!("http://{address}{path}");
            let response = client.get(url).await.unwrap();
            assert_eq!(response.status(), 302);
            assert_eq!(paths(&requested), [path], "it is not followed");
        }
        let response = client.get(format!("http://{address}/found")).await.unwrap();
        assert_eq!(response.text().await.unwrap(), "GET /there ");
        paths(&requested);
    }
    let harmless = client_that_adds(&cache, "accept-language", "de", false);
    let response = harmless
        .get(format!("http://{address}/away"))
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
}

#[tokio::test]
async fn an_observer_sees_the_exchanges_of_client_and_servers() {
    let (address, _) = serve().await;
    let cache = Cache::private().build().await.unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&seen);
    let client = cached::Client::with_observer(&cache, reqwest::Client::builder(), move |half| {
        let note = match half {
            cached::Exchange::Request(request) => {
                format!("{} {}", request.method(), request.url().path())
            }
            cached::Exchange::Response(response) => response.status().as_str().to_owned(),
            other => panic!("{other:?}"),
        };
        notes.lock().unwrap().push(note);
    });
    let client = client.unwrap();
    for _ in 0..2 {
        let url = format!("http://{address}/moved");
        let text = client.get(url).await.unwrap().text().await.unwrap();
        assert_eq!(text, "GET /there ");
    }
    // The second time both are stored.
    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen, ["GET /moved", "301", "GET /there", "200"]);
    assert_eq!(cache.stats().stored, 2);
}

#[tokio::test]
async fn only_if_cached_requests_are_never_sent() {
    let (address, requested) = serve().await;
    let cache = Cache::private().build().await.unwrap();
    let client = cached::Client::new(&cache, reqwest::Client::builder()).unwrap();
    let only = || CacheOptions::default().with_mode(CacheMode::OnlyIfCached);
    for method in [Method::POST, Method::GET] {
        let request = client.request(method, format!("http://{address}/page"));
        let request = request.header("expect", "100-continue").build().unwrap();
        let response = client.execute_with(request, only()).await.unwrap();
        assert_eq!(response.status(), 504);
        let info = response.extensions().get::<CacheInfo>().unwrap();
        assert_eq!(info.outcome, Outcome::Module);
    }
    assert!(paths(&requested).is_empty());
}

#[tokio::test]
async fn the_lifetime_of_a_response_is_reported() {
    let (address, _) = serve().await;
    let cache = Cache::private().build().await.unwrap();
    let client = cached::Client::new(&cache, reqwest::Client::builder()).unwrap();
    for outcome in [Outcome::Miss, Outcome::Hit] {
        let response = client.get(format!("http://{address}/page")).await.unwrap();
        let info = *response.extensions().get::<CacheInfo>().unwrap();
        let fresh_for = info.fresh_for.expect("it is stored").as_secs();
        assert_eq!(info.outcome, outcome);
        assert!((58..=60).contains(&fresh_for), "{fresh_for}");
        response.text().await.unwrap();
    }
}
