//! Request handling of the simulated origin.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, ETAG, LAST_MODIFIED, RETRY_AFTER, SET_COOKIE, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout;

use super::body::{OriginBody, PageBody};
use super::conditional::Validators;
use super::counters::{COUNTERS, OriginCounters, OriginEvent};
use super::options::overridden;
use super::page::GeneratedPage;
use super::settings::{PageSettings, Settings};
use super::url_hash::{HashPurpose, url_hash};
use super::workers::WorkerPool;

/// Time limit for receiving a request's content.
const MAX_UPLOAD: Duration = Duration::from_mins(1);

type OriginAnswer = Response<OriginBody>;

/// Simulated application.
pub(super) struct Application {
    settings: Settings,
    workers: WorkerPool,
    counters: Arc<OriginCounters>,
    started: SystemTime,
    /// Sequence numbers of requests, renders and complete pages, unaffected by a reset of the counters.
    requests: AtomicU64,
    renders: AtomicU64,
    pages: AtomicU64,
}

impl Application {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            workers: WorkerPool::new(settings.workers, settings.queue),
            settings,
            counters: Arc::default(),
            started: SystemTime::now(),
            requests: AtomicU64::new(0),
            renders: AtomicU64::new(0),
            pages: AtomicU64::new(0),
        }
    }

    pub(super) fn counters(&self) -> &Arc<OriginCounters> {
        &self.counters
    }

    pub(super) async fn answer(&self, request: Request<Incoming>) -> OriginAnswer {
        let (head, mut body) = request.into_parts();
        // Drains the request content, so that the connection can be reused.
        let whole = async { while let Some(Ok(_)) = body.frame().await {} };
        if timeout(MAX_UPLOAD, whole).await.is_err() {
            return plain_text(StatusCode::REQUEST_TIMEOUT, "Request timeout.");
        }
        if head.uri.path() == COUNTERS {
            return self.answer_counters(&head.method, &head.uri);
        }
        self.answer_page(&head.uri, &head.headers).await
    }

    async fn answer_page(&self, uri: &Uri, fields: &HeaderMap) -> OriginAnswer {
        let url = uri.path_and_query().map_or("/", |url| url.as_str());
        let in_flight = self.counters.request(url);
        let overrides = match overridden(&self.settings.page, uri.query().unwrap_or_default()) {
            Ok(overrides) => overrides,
            Err(what) => return plain_text(StatusCode::BAD_REQUEST, &what),
        };
        let settings = overrides.as_ref().unwrap_or(&self.settings.page);

        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        if self.settings.error_rate.has_nth(number) {
            self.counters.count(OriginEvent::Error);
            return plain_text(self.settings.error_status, "Simulated error.");
        }
        let unchanging = settings.unchanging.has(url_hash(url, HashPurpose::Change));
        let echo = echoed(settings, fields);
        if unchanging {
            let validators = self.validators(settings, url, echo.as_deref(), None);
            if validators.has(fields) {
                self.counters.count(OriginEvent::NotModified);
                return not_modified(settings, url, &validators);
            }
        }
        if self
            .workers
            .render(settings, url, &self.counters)
            .await
            .is_err()
        {
            self.counters.count(OriginEvent::Busy);
            let mut busy = plain_text(StatusCode::SERVICE_UNAVAILABLE, "All workers are busy.");
            busy.headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from_static("1"));
            return busy;
        }
        let render = self.renders.fetch_add(1, Ordering::Relaxed) + 1;
        let render = (!unchanging).then_some(render);
        let page = rendered(settings, url, echo.as_deref(), render);
        let cut = self
            .settings
            .truncate_rate
            .has_nth(self.pages.fetch_add(1, Ordering::Relaxed));
        if cut {
            self.counters.count(OriginEvent::Truncated);
        }
        let body = PageBody::new(page, settings.slow_body, cut, in_flight);
        let validators = self.validators(settings, url, echo.as_deref(), render);
        let mut answer = Response::new(OriginBody::Page(Box::new(body)));
        *answer.status_mut() = settings.status;
        let fields = answer.headers_mut();
        fields.insert(CONTENT_TYPE, settings.content_type.clone());
        if let Some(cookie) = &settings.set_cookie {
            fields.insert(SET_COOKIE, cookie.clone());
        }
        add_caching(fields, settings, url, &validators);
        answer
    }

    /// Returns the validators. An unchanging page is as old as the process; any other changes with each
    /// render.
    fn validators(
        &self,
        settings: &PageSettings,
        url: &str,
        echo: Option<&str>,
        render: Option<u64>,
    ) -> Validators {
        let etag = || {
            let mut etag = format!("\"{:016x}", url_hash(url, HashPurpose::Text));
            // The echoed fields are part of the representation.
            if let Some(echo) = echo {
                let _ = write!(etag, "-{:016x}", url_hash(echo, HashPurpose::Text));
            }
            if let Some(render) = render {
                let _ = write!(etag, "-{render}");
            }
            etag + "\""
        };
        let modified = || match render {
            None => self.started,
            Some(_) => SystemTime::now(),
        };
        Validators {
            etag: settings.etag.then(etag),
            last_modified: settings.last_modified.then(modified),
        }
    }

    fn answer_counters(&self, method: &Method, uri: &Uri) -> OriginAnswer {
        let query = uri.query().unwrap_or_default();
        let json = match *method {
            Method::GET | Method::HEAD => match query.strip_prefix("url=") {
                Some(url) => self.counters.url_as_json(&decoded(url)),
                None => self.counters.all_as_json(),
            },
            Method::DELETE | Method::POST => {
                self.counters.reset();
                self.counters.all_as_json()
            }
            _ => {
                let what = "GET returns the counters, DELETE resets them.";
                let mut answer = plain_text(StatusCode::METHOD_NOT_ALLOWED, what);
                let methods = HeaderValue::from_static("GET, HEAD, DELETE, POST");
                answer.headers_mut().insert(ALLOW, methods);
                return answer;
            }
        };
        let mut answer = Response::new(OriginBody::text(format!("{json}\n")));
        let fields = answer.headers_mut();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        answer
    }
}

fn not_modified(settings: &PageSettings, url: &str, validators: &Validators) -> OriginAnswer {
    let mut answer = Response::new(OriginBody::Text(None));
    *answer.status_mut() = StatusCode::NOT_MODIFIED;
    add_caching(answer.headers_mut(), settings, url, validators);
    answer
}

/// Returns the request fields to repeat in the page: `accept-language: de; cookie: -`.
fn echoed(settings: &PageSettings, fields: &HeaderMap) -> Option<String> {
    let one = |name: &HeaderName| {
        let values = fields.get_all(name).iter();
        let values: Vec<_> = values.filter_map(|value| value.to_str().ok()).collect();
        let values = values.join(", ");
        format!("{name}: {}", if values.is_empty() { "-" } else { &values })
    };
    let all: Vec<_> = settings.echo.iter().map(one).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

fn rendered(
    settings: &PageSettings,
    url: &str,
    echo: Option<&str>,
    render: Option<u64>,
) -> GeneratedPage {
    let version = render.map(|render| {
        let now = httpdate::fmt_http_date(SystemTime::now());
        format!("Render {render}, {now}")
    });
    let content_type = settings.content_type.to_str().unwrap_or_default();
    GeneratedPage::new(url, version.as_deref(), echo, content_type, settings.size)
}

/// Adds the fields that a 200 and a 304 have in common (RFC 9110 §15.4.5).
fn add_caching(fields: &mut HeaderMap, settings: &PageSettings, url: &str, known: &Validators) {
    let max_age = settings.max_age.map(|range| {
        let seconds = range.pick(url_hash(url, HashPurpose::MaxAge));
        format!("max-age={seconds}")
    });
    let max_age = max_age
        .as_deref()
        .and_then(|text| HeaderValue::from_str(text).ok());
    for directives in settings.cache_control.iter().cloned().chain(max_age) {
        fields.append(CACHE_CONTROL, directives);
    }
    if let Some(vary) = &settings.vary {
        fields.insert(VARY, vary.clone());
    }
    let etag = known.etag.as_deref();
    if let Some(etag) = etag.and_then(|etag| HeaderValue::from_str(etag).ok()) {
        fields.insert(ETAG, etag);
    }
    let modified = known.last_modified.map(httpdate::fmt_http_date);
    if let Some(modified) = modified.and_then(|date| HeaderValue::try_from(date).ok()) {
        fields.insert(LAST_MODIFIED, modified);
    }
}

fn plain_text(status: StatusCode, what: &str) -> OriginAnswer {
    let mut answer = Response::new(OriginBody::text(format!("{what}\n")));
    *answer.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, plain);
    answer
}

/// Decodes percent-encoding. Invalid sequences are left as they are.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let pair = after
            .get(..2)
            .and_then(|pair| std::str::from_utf8(pair).ok());
        let byte = pair.and_then(|pair| u8::from_str_radix(pair, 16).ok());
        match byte {
            Some(byte) if first == b'%' => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_encoding_is_undone() {
        assert_eq!(decoded("/a%3Fb%3dc"), "/a?b=c");
        assert_eq!(decoded("/100%/%zz%2"), "/100%/%zz%2");
    }
}
