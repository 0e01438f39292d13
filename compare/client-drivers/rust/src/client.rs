//! The clients that are compared, each asked in its own way for the same.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT_LANGUAGE, AUTHORIZATION, CACHE_CONTROL, HeaderMap};
use http::{HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Empty};
use http_cache_reqwest::{
    Cache, CacheMode, CacheOptions, HttpCache, HttpCacheOptions, MokaManager,
};
use hyper::body::Body;
use hyper_util::client::legacy::{Client as HyperClient, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use microcache_client::{CacheInfo, CacheService, Tier};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next};
use tower_layer::Layer;
use tower_service::Service;

use crate::plan::{Choice, Plan};

/// What the variants are called.
pub const LANGUAGES: [&str; 4] = ["de", "en", "fr", "it"];

/// What nobody waits for any longer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

type Hyper = HyperClient<HttpConnector, Empty<Bytes>>;

#[derive(Clone)]
pub struct Answer {
    pub status: StatusCode,
    pub outcome: &'static str,
    pub lifetime: Duration,
    pub body: Bytes,
    pub first_byte: Instant,
}

/// What is compared.
enum Kind {
    Hyper(Hyper),
    Microcache(CacheService<Hyper>),
    Reqwest(reqwest::Client),
    HttpCache(ClientWithMiddleware),
    /// Makes no request: what is left is the driver.
    Stub(Vec<Answer>),
}

pub struct Client {
    kind: Kind,
    uris: Vec<Uri>,
    urls: Vec<reqwest::Url>,
}

impl Client {
    pub async fn new(plan: &Plan) -> Self {
        let (client, storage): (String, String) = (
            plan.get("client", String::new()),
            plan.get("storage", String::new()),
        );
        let kind = match (client.as_str(), storage.as_str()) {
            (_, "stub") => Kind::Stub(Vec::new()),
            ("microcache", "none") => Kind::Hyper(hyper()),
            ("microcache", storage) => Kind::Microcache(microcache(plan, storage).await),
            ("http-cache", "none") => Kind::Reqwest(reqwest()),
            ("http-cache", "memory") => Kind::HttpCache(http_cache(plan)),
            _ => panic!("there is no client `{client}` with storage `{storage}`"),
        };
        let of = |url| format!("http://{}{}", plan.origin, plan.path_of(url));
        let mut client = Self {
            uris: (0..plan.urls)
                .map(|url| of(url).parse().expect("a url"))
                .collect(),
            urls: (0..plan.urls)
                .map(|url| of(url).parse().expect("a url"))
                .collect(),
            kind,
        };
        if let Kind::Stub(_) = client.kind {
            client.kind = Kind::Stub(client.all(&hyper()).await);
        }
        client
    }

    async fn all(&self, hyper: &Hyper) -> Vec<Answer> {
        let mut answers = Vec::new();
        for url in 0..self.uris.len() {
            let asked = hyper.request(self.request(&Choice::plain(url)));
            answers.push(
                read(asked.await.expect("an answer"), "hit")
                    .await
                    .expect("a body"),
            );
        }
        answers
    }

    /// One request and all of its answer, or what went wrong in a few words.
    pub async fn ask(&self, choice: &Choice) -> Result<Answer, String> {
        match &self.kind {
            Kind::Hyper(hyper) => {
                in_time(async {
                    let answer = hyper.request(self.request(choice)).await.map_err(told)?;
                    read(answer, "none").await
                })
                .await
            }
            Kind::Microcache(service) => {
                in_time(async {
                    // A layer is asked by `&mut`; what it shares is behind an `Arc`.
                    let answer = service
                        .clone()
                        .call(self.request(choice))
                        .await
                        .map_err(told)?;
                    let outcome = answer
                        .extensions()
                        .get::<CacheInfo>()
                        .map(|info| info.outcome);
                    read(answer, outcome.map_or("none", |outcome| outcome.as_str())).await
                })
                .await
            }
            Kind::Reqwest(client) => {
                in_time(async {
                    let mut request = client.get(self.urls[choice.url].clone());
                    for (name, value) in &fields(choice) {
                        request = request.header(name, value);
                    }
                    let answer = request.send().await.map_err(told)?;
                    read(http::Response::from(answer), "none").await
                })
                .await
            }
            Kind::HttpCache(client) => in_time(self.ask_http_cache(client, choice)).await,
            Kind::Stub(answers) => {
                std::hint::black_box(self.request(choice));
                let mut answer = answers[choice.url].clone();
                answer.first_byte = Instant::now();
                Ok(answer)
            }
        }
    }

    fn request(&self, choice: &Choice) -> Request<Empty<Bytes>> {
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = self.uris[choice.url].clone();
        *request.headers_mut() = fields(choice);
        request
    }

    async fn ask_http_cache(
        &self,
        client: &ClientWithMiddleware,
        choice: &Choice,
    ) -> Result<Answer, String> {
        let asked = Asked::default();
        let mut request = client
            .get(self.urls[choice.url].clone())
            .with_extension(asked.clone());
        for (name, value) in &fields(choice) {
            request = request.header(name, value);
        }
        let answer = http::Response::from(request.send().await.map_err(told)?);
        let outcome = match asked.0.load(Ordering::Relaxed) {
            0 => "hit",
            304 => "validated",
            _ => "miss",
        };
        read(answer, outcome).await
    }
}

fn hyper() -> Hyper {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    HyperClient::builder(TokioExecutor::new()).build(connector)
}

fn reqwest() -> reqwest::Client {
    reqwest::Client::builder()
        .no_proxy()
        .build()
        .expect("a client")
}

/// With a pool, so little memory of its own that it is the pool which is asked, as for the others. As strict as the
/// others, unless it is told otherwise.
async fn microcache(plan: &Plan, storage: &str) -> CacheService<Hyper> {
    let cache = match plan.identities {
        0 => microcache_client::Cache::shared(),
        _ => microcache_client::Cache::private(),
    };
    let cache = cache
        .stale_while_revalidate(plan.stale)
        .stale_if_error(Duration::ZERO);
    let cache = match storage {
        "memcached" => {
            let servers: String = plan.get("memcached", String::new());
            let deadline = Duration::from_millis(plan.get("deadline-ms", 50));
            let pool = Tier::memcached(servers.split(',')).timeout(deadline);
            cache.memory(64 << 10).tier(pool)
        }
        _ => cache.memory(plan.get("bytes", 1 << 30)),
    };
    cache.build().await.expect("a cache").layer().layer(hyper())
}

/// moka bounds by what its weigher says: bytes, as Microcache does.
fn http_cache(plan: &Plan) -> ClientWithMiddleware {
    let store = moka::future::Cache::builder()
        .weigher(|key: &String, entry: &Arc<Vec<u8>>| (key.len() + entry.len()) as u32)
        .max_capacity(plan.get("bytes", u64::MAX))
        .build();
    let cache = Cache(HttpCache {
        mode: CacheMode::Default,
        manager: MokaManager::new(store),
        options: HttpCacheOptions {
            cache_options: Some(CacheOptions {
                shared: plan.identities == 0,
                ..CacheOptions::default()
            }),
            cache_status_headers: false,
            ..HttpCacheOptions::default()
        },
    });
    ClientBuilder::new(reqwest())
        .with(cache)
        .with(Asked::default())
        .build()
}

/// The status that came from the application, for http-cache calls what it has confirmed a hit.
#[derive(Clone, Default)]
struct Asked(Arc<AtomicU16>);

#[async_trait::async_trait]
impl Middleware for Asked {
    async fn handle(
        &self,
        request: reqwest::Request,
        extensions: &mut http::Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<reqwest::Response> {
        let asked = extensions.get::<Asked>().cloned();
        let answer = next.run(request, extensions).await?;
        if let Some(Asked(status)) = asked {
            status.store(answer.status().as_u16(), Ordering::Relaxed);
        }
        Ok(answer)
    }
}

fn fields(choice: &Choice) -> HeaderMap {
    let mut fields = HeaderMap::with_capacity(2);
    let language = HeaderValue::from_static(LANGUAGES[choice.variant]);
    fields.insert(ACCEPT_LANGUAGE, language);
    if let Some(identity) = choice.identity {
        let token = HeaderValue::try_from(format!("Bearer {identity}"));
        fields.insert(AUTHORIZATION, token.expect("a token"));
    }
    fields
}

async fn in_time(asked: impl Future<Output = Result<Answer, String>>) -> Result<Answer, String> {
    match tokio::time::timeout(REQUEST_TIMEOUT, asked).await {
        Ok(answered) => answered,
        Err(_) => Err("no answer in time".to_owned()),
    }
}

/// The whole answer. A body that comes in one piece is not copied.
async fn read<B>(answer: Response<B>, outcome: &'static str) -> Result<Answer, String>
where
    B: Body<Data = Bytes>,
    B::Error: std::fmt::Display,
{
    let (head, body) = answer.into_parts();
    let mut body = pin!(body);
    let mut first_byte = None;
    let mut whole = Bytes::new();
    let mut pieces = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame.map_err(told)?.into_data() else {
            continue;
        };
        first_byte.get_or_insert_with(Instant::now);
        if whole.is_empty() && pieces.is_empty() {
            whole = piece;
        } else {
            pieces.extend_from_slice(&std::mem::take(&mut whole));
            pieces.extend_from_slice(&piece);
        }
    }
    Ok(Answer {
        status: head.status,
        outcome,
        lifetime: lifetime(&head.headers),
        body: if pieces.is_empty() {
            whole
        } else {
            pieces.freeze()
        },
        first_byte: first_byte.unwrap_or_else(Instant::now),
    })
}

fn lifetime(fields: &HeaderMap) -> Duration {
    let told = fields
        .get(CACHE_CONTROL)
        .and_then(|value| value.to_str().ok());
    let seconds = told
        .and_then(|told| told.split("max-age=").nth(1))
        .and_then(|rest| rest.split(',').next())
        .and_then(|seconds| seconds.trim().parse().ok());
    Duration::from_secs(seconds.unwrap_or(0))
}

/// An error in so few words that equal ones can be counted.
fn told(error: impl std::fmt::Display) -> String {
    error
        .to_string()
        .split(" (")
        .next()
        .unwrap_or_default()
        .to_owned()
}
