//! A small server that forwards what it is asked, by the caching layer: what it takes to put a cache into a service
//! of one's own, and a place to point a conformance suite for HTTP caches at.
//!
//! `cargo run --example forward -- 127.0.0.1:8001 http://127.0.0.1:8000 private`

use std::convert::Infallible;
use std::env;
use std::error::Error as StdError;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::uri::{Authority, Scheme};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{Either, Full};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use microcache_client::{BoxError, Cache, CacheBody, Error};
use tokio::net::TcpListener;
use tower::{Layer, ServiceExt};

/// What a request carries, on its way; the cache's own requests carry nothing.
#[derive(Default)]
struct Carried(Option<Incoming>);

impl Body for Carried {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.0 {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let nothing = SizeHint::with_exact(0);
        self.0.as_ref().map_or(nothing, Body::size_hint)
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [address, origin, kind] = &arguments[..] else {
        return Err("say where to listen, the url of the origin, and `private` or `shared`".into());
    };
    let builder = match kind.as_str() {
        "private" => Cache::private(),
        // Nothing is stale that no server says may be.
        "shared" => Cache::shared().stale_while_revalidate(Duration::ZERO),
        other => return Err(format!("{other} is neither `private` nor `shared`").into()),
    };
    let cache = builder.build().await?;
    let origin: Uri = origin.parse()?;
    let origin = origin
        .authority()
        .ok_or("the url of the origin names no host")?
        .clone();

    let listener = TcpListener::bind(address.parse::<SocketAddr>()?).await?;
    println!("forwarding to {origin}, at {}", listener.local_addr()?);
    serve(listener, origin, &cache).await
}

/// Answers all clients, for as long as it is polled.
pub(crate) async fn serve(
    listener: TcpListener,
    origin: Authority,
    cache: &Cache,
) -> Result<(), BoxError> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Carried>();
    let client = cache.layer().layer(client);

    loop {
        let (connection, _) = listener.accept().await?;
        let (client, origin) = (client.clone(), origin.clone());
        let service = service_fn(move |request| {
            let answer = client.clone().oneshot(forwarded(request, &origin));
            async move {
                Ok::<_, Infallible>(
                    answer
                        .await
                        .map_or_else(bad_gateway, |response| response.map(Either::Left)),
                )
            }
        });
        tokio::spawn(async move {
            let connection =
                http1::Builder::new().serve_connection(TokioIo::new(connection), service);
            if let Err(error) = connection.await {
                eprintln!("a connection ended: {error}");
            }
        });
    }
}

/// The same request for the origin.
fn forwarded(request: Request<Incoming>, origin: &Authority) -> Request<Carried> {
    let (mut parts, body) = request.into_parts();
    let mut uri = parts.uri.into_parts();
    uri.scheme = Some(Scheme::HTTP);
    uri.authority = Some(origin.clone());
    parts.uri = Uri::from_parts(uri).expect("it has all parts");
    parts.headers.remove(HOST);
    // What belongs to the connection to us.
    parts.headers.remove("connection");
    Request::from_parts(parts, Carried(Some(body)))
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "it is what there is instead of a response"
)]
fn bad_gateway(error: Error) -> Response<Either<CacheBody<Incoming>, Full<Bytes>>> {
    eprintln!("{}", causes(&error));
    let mut response = Response::new(Either::Right(Full::from("the origin cannot be asked\n")));
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    response
}

/// An error with all its causes.
fn causes(error: &Error) -> String {
    let mut causes = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        causes = format!("{causes}: {cause}");
        next = cause.source();
    }
    causes
}
