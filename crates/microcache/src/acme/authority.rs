//! Requests to the authority: one TLS connection each, with a timeout and a maximum size.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, RETRY_AFTER};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use microcache_policy::{Time, date};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::failed::shortened;
use super::schedule;

/// The timeout of a request, from the connection to the last byte of the answer.
const TIME_LIMIT: Duration = Duration::from_secs(30);
/// The maximum size of an answer.
const LARGEST: usize = 256 * 1024;
/// The maximum size of its head.
const LARGEST_HEAD: usize = 32 * 1024;

tokio::task_local! {
    /// The last Retry-After of the authority, for requests of this task.
    static HEARD: RetryAfter;
}

/// The Retry-After of an authority.
#[derive(Clone, Default)]
pub(super) struct RetryAfter(Arc<Mutex<Option<Duration>>>);

impl RetryAfter {
    /// Records the Retry-After of these requests.
    pub(super) async fn listening<T>(&self, requests: impl Future<Output = T>) -> T {
        HEARD.scope(self.clone(), requests).await
    }

    pub(super) fn last(&self) -> Option<Duration> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, said: Option<Duration>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = said;
    }
}

/// An authority, verified by its certificate.
pub(super) struct Authority {
    pub(super) tls: Arc<ClientConfig>,
}

impl HttpClient for Authority {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        let heard = HEARD.try_with(RetryAfter::clone).unwrap_or_default();
        Box::pin(async move {
            let uri = request.uri().clone();
            let failed = |why: String| Error::Other(format!("{uri}: {why}").into());
            let answered = timeout(TIME_LIMIT, exchange(connector, request)).await;
            let response = answered
                .map_err(|_| failed(format!("no answer in {} s", TIME_LIMIT.as_secs())))?
                .map_err(|error| failed(error.to_string()))?;
            // On success, Retry-After is the polling interval.
            let is_refused =
                response.status().is_client_error() || response.status().is_server_error();
            heard.hear(retry_after(response.headers()).filter(|_| is_refused));
            if let Some(why) = no_problem(&response) {
                return Err(failed(why));
            }
            let (parts, body) = response.into_parts();
            let body = Box::new(body);
            Ok(BytesResponse { parts, body })
        })
    }
}

/// The task of a connection, which ends with its request.
struct ConnectionTask(AbortHandle);

impl Drop for ConnectionTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn exchange(
    connector: TlsConnector,
    mut request: Request<BodyWrapper<Bytes>>,
) -> io::Result<Response<Bytes>> {
    let uri = request.uri().clone();
    let (host, port) = address(&uri).ok_or_else(|| io::Error::other("not an https:// URL"))?;
    let socket = TcpStream::connect((host, port)).await?;
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let stream = TokioIo::new(connector.connect(name, socket).await?);
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(LARGEST_HEAD)
        .handshake(stream)
        .await
        .map_err(io::Error::other)?;
    let _driven = ConnectionTask(tokio::spawn(connection).abort_handle());
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let fields = request.headers_mut();
    fields.insert(
        HOST,
        HeaderValue::from_str(authority).map_err(io::Error::other)?,
    );
    fields.insert(CONNECTION, HeaderValue::from_static("close"));
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    *request.uri_mut() = target.parse().map_err(io::Error::other)?;
    let response = sender.send_request(request).await;
    whole(response.map_err(io::Error::other)?).await
}

/// Reads the whole answer, up to the maximum size.
async fn whole(response: Response<Incoming>) -> io::Result<Response<Bytes>> {
    let (parts, body) = response.into_parts();
    let read = Limited::new(body, LARGEST).collect().await;
    let read =
        read.map_err(|error| io::Error::other(format!("its answer was cut off: {error}")))?;
    Ok(Response::from_parts(parts, read.to_bytes()))
}

fn address(uri: &Uri) -> Option<(&str, u16)> {
    let host = uri.host().filter(|_| uri.scheme_str() == Some("https"))?;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    Some((bare, uri.port_u16().unwrap_or(443)))
}

/// Describes a failure that is not a problem document (RFC 8555 §6.7), such as that of a proxy.
fn no_problem(response: &Response<Bytes>) -> Option<String> {
    let status = response.status();
    if !status.is_client_error() && !status.is_server_error() {
        return None;
    }
    let kind = response.headers().get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let is_problem = kind.contains("json")
        && serde_json::from_slice::<serde_json::Map<_, _>>(response.body()).is_ok();
    (!is_problem).then(|| {
        let text = String::from_utf8_lossy(response.body());
        shortened(format!("status {status}: {}", text.trim()).trim_end_matches([':', ' ']))
    })
}

/// Parses Retry-After (RFC 9110 §10.2.3).
fn retry_after(fields: &HeaderMap) -> Option<Duration> {
    let text = fields.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let now = Time::from_secs(schedule::now().cast_unsigned());
    let until = date::parse(text.as_bytes(), now)?.as_secs();
    let wait = until.checked_sub(now.as_secs())?;
    Some(Duration::from_secs(wait))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_to_come_again_is_seconds_or_a_date() {
        let of = |text: &str| {
            let mut fields = HeaderMap::new();
            fields.insert(RETRY_AFTER, text.parse().unwrap());
            retry_after(&fields)
        };
        assert_eq!(of("120"), Some(Duration::from_mins(2)));
        assert!(of("Fri, 31 Dec 2100 23:59:59 GMT") > Some(Duration::from_hours(24)));
        assert_eq!(of("Fri, 31 Dec 1999 23:59:59 GMT"), None);
        assert_eq!(of("soon"), None);
    }

    #[test]
    fn only_https_urls_are_requested() {
        let of = |url: &str| {
            let uri: Uri = url.parse().unwrap();
            address(&uri).map(|(host, port)| (host.to_owned(), port))
        };
        assert_eq!(
            of("https://a.example/x"),
            Some(("a.example".to_owned(), 443))
        );
        assert_eq!(of("https://[::1]:14000/x"), Some(("::1".to_owned(), 14000)));
        assert_eq!(of("http://a.example/x"), None);
        assert_eq!(of("/x"), None);
    }

    #[test]
    fn an_error_that_is_no_acme_problem_is_reported_as_it_is() {
        let of = |status: u16, kind: &str, body: &'static str| {
            let response = Response::builder()
                .status(status)
                .header(CONTENT_TYPE, kind);
            no_problem(&response.body(Bytes::from_static(body.as_bytes())).unwrap())
        };
        assert_eq!(of(200, "text/html", "<html>"), None);
        assert_eq!(of(400, "application/problem+json", "{}"), None);
        let text = of(503, "text/html", "<h1>\nlater</h1>").unwrap();
        assert_eq!(text, "status 503 Service Unavailable: <h1> later</h1>");
        let text = of(500, "application/json", "[]").unwrap();
        assert_eq!(text, "status 500 Internal Server Error: []");
        assert!(of(500, "", "").unwrap().ends_with("Error"));
    }
}
