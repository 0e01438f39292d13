//! One request's way through the application, in order.

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

use super::body::{AnswerBody, PageBody};
use super::conditional::Validators;
use super::counters::{COUNTERS, Counters, Event};
use super::options::adjusted;
use super::page::Page;
use super::settings::{PageSettings, Settings};
use super::spread::{Decides, spread};
use super::workers::Workers;

/// How long a request's body may take.
const MAX_UPLOAD: Duration = Duration::from_mins(1);

type Answer = Response<AnswerBody>;

/// The application.
pub(super) struct Application {
    settings: Settings,
    workers: Workers,
    counters: Arc<Counters>,
    started: SystemTime,
    /// Numbers for requests, renders and whole pages; a reset of the counters leaves them alone.
    requests: AtomicU64,
    renders: AtomicU64,
    pages: AtomicU64,
}

impl Application {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            workers: Workers::new(settings.workers, settings.queue),
            settings,
            counters: Arc::default(),
            started: SystemTime::now(),
            requests: AtomicU64::new(0),
            renders: AtomicU64::new(0),
            pages: AtomicU64::new(0),
        }
    }

    pub(super) fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    pub(super) async fn answer(&self, request: Request<Incoming>) -> Answer {
        let (head, mut body) = request.into_parts();
        // What the client sends is read to its end, so that the connection can go on.
        let whole = async { while let Some(Ok(_)) = body.frame().await {} };
        if timeout(MAX_UPLOAD, whole).await.is_err() {
            return told(
                StatusCode::REQUEST_TIMEOUT,
                "The request takes too long to arrive.",
            );
        }
        if head.uri.path() == COUNTERS {
            return self.answer_counters(&head.method, &head.uri);
        }
        self.answer_page(&head.uri, &head.headers).await
    }

    async fn answer_page(&self, uri: &Uri, fields: &HeaderMap) -> Answer {
        let url = uri.path_and_query().map_or("/", |url| url.as_str());
        let in_flight = self.counters.request(url);
        let own = match adjusted(&self.settings.page, uri.query().unwrap_or_default()) {
            Ok(own) => own,
            Err(what) => return told(StatusCode::BAD_REQUEST, &what),
        };
        let settings = own.as_ref().unwrap_or(&self.settings.page);

        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        if self.settings.error_rate.has_nth(number) {
            self.counters.count(Event::Error);
            return told(self.settings.error_status, "This request was to fail.");
        }
        let unchanging = settings.unchanging.has(spread(url, Decides::Change));
        let echo = echoed(settings, fields);
        if unchanging {
            let validators = self.validators(settings, url, echo.as_deref(), None);
            if validators.has(fields) {
                self.counters.count(Event::NotModified);
                return not_modified(settings, url, &validators);
            }
        }
        if self
            .workers
            .render(settings, url, &self.counters)
            .await
            .is_err()
        {
            self.counters.count(Event::Busy);
            let mut busy = told(StatusCode::SERVICE_UNAVAILABLE, "Nobody is free.");
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
            self.counters.count(Event::Truncated);
        }
        let body = PageBody::new(page, settings.slow_body, cut, in_flight);
        let validators = self.validators(settings, url, echo.as_deref(), render);
        let mut answer = Response::new(AnswerBody::Page(Box::new(body)));
        *answer.status_mut() = settings.status;
        let fields = answer.headers_mut();
        fields.insert(CONTENT_TYPE, settings.content_type.clone());
        if let Some(cookie) = &settings.set_cookie {
            fields.insert(SET_COOKIE, cookie.clone());
        }
        add_caching(fields, settings, url, &validators);
        answer
    }

    /// A page that never changes is as old as the application; any other is new with each render.
    fn validators(
        &self,
        settings: &PageSettings,
        url: &str,
        echo: Option<&str>,
        render: Option<u64>,
    ) -> Validators {
        let etag = || {
            let mut etag = format!("\"{:016x}", spread(url, Decides::Text));
            // What it echoes makes it another page.
            if let Some(echo) = echo {
                let _ = write!(etag, "-{:016x}", spread(echo, Decides::Text));
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

    fn answer_counters(&self, method: &Method, uri: &Uri) -> Answer {
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
                let what = "GET reads the counters, DELETE sets them to zero.";
                let mut answer = told(StatusCode::METHOD_NOT_ALLOWED, what);
                let methods = HeaderValue::from_static("GET, HEAD, DELETE, POST");
                answer.headers_mut().insert(ALLOW, methods);
                return answer;
            }
        };
        let mut answer = Response::new(AnswerBody::text(format!("{json}\n")));
        let fields = answer.headers_mut();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        answer
    }
}

fn not_modified(settings: &PageSettings, url: &str, validators: &Validators) -> Answer {
    let mut answer = Response::new(AnswerBody::Text(None));
    *answer.status_mut() = StatusCode::NOT_MODIFIED;
    add_caching(answer.headers_mut(), settings, url, validators);
    answer
}

/// What the request had in the fields that the page is to name: `accept-language: de; cookie: -`.
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

fn rendered(settings: &PageSettings, url: &str, echo: Option<&str>, render: Option<u64>) -> Page {
    let version = render.map(|render| {
        let now = httpdate::fmt_http_date(SystemTime::now());
        format!("Render {render}, {now}")
    });
    let content_type = settings.content_type.to_str().unwrap_or_default();
    Page::new(url, version.as_deref(), echo, content_type, settings.size)
}

/// What a 200 and a 304 both say: RFC 9110 §15.4.5.
fn add_caching(fields: &mut HeaderMap, settings: &PageSettings, url: &str, known: &Validators) {
    let max_age = settings.max_age.map(|range| {
        let seconds = range.pick(spread(url, Decides::MaxAge));
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

fn told(status: StatusCode, what: &str) -> Answer {
    let mut answer = Response::new(AnswerBody::text(format!("{what}\n")));
    *answer.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, plain);
    answer
}

/// Undoes percent-encoding. What is not encoded well stays as it is.
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
