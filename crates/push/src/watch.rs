//! Subscriptions to several documents, patterns or pages at once.

use std::io::Write as _;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use flate2::Compression;
use flate2::write::GzEncoder;
use http::Method;
use microcache_engine::origin::BoxFuture;
use microcache_engine::{Origin, OriginError, OriginRequest, OriginResponse};
use microcache_policy::compression::{Coding, Compress};
use microcache_policy::key::split_query;
use microcache_policy::{Fields, is_event_stream};
use tokio::time::{Instant, timeout_at};

use crate::access::cors;
use crate::answer;
use crate::origin::Push;
use crate::paths::{SCRIPT_PATHS, WATCH_PATH};
use crate::socket::{Language, PageResolver, Subprotocol, handshake, is_websocket_request};
use crate::subscribing::params::SubscribeParams;
use crate::subscribing::stream::EventStream;
use crate::subscribing::subscription::{SubscribeError, Subscription, WatchEvents};
use crate::subscribing::urls::{FindPage, resolve};
use crate::subscribing::versions::stored_versions;

/// The scripts at [`SCRIPT_PATHS`].
static SCRIPTS: LazyLock<[Script; 2]> = LazyLock::new(|| {
    [
        Script::new(include_str!("live.js")),
        Script::new(include_str!("client.min.js")),
    ]
});

/// A script in both encodings in which it is served.
struct Script {
    whole: Bytes,
    gzip: Bytes,
}

/// Limits of one long-polling response: events, and bytes.
const MAX_EVENTS: usize = 1000;
const MAX_EVENT_BYTES: usize = 1024 * 1024;

/// The origin behind [`WATCH_PATH`] and [`SCRIPT_PATHS`].
pub struct WatchOrigin {
    push: Arc<Push>,
    find_page: FindPage,
}

impl WatchOrigin {
    /// Serves the documents of `push`, and the pages that `find_page` resolves.
    pub fn new(push: Arc<Push>, find_page: FindPage) -> Self {
        Self { push, find_page }
    }

    async fn watch(&self, request: &OriginRequest) -> OriginResponse {
        let documents = self.push.documents();
        if is_websocket_request(request) {
            return self.open(request).unwrap_or_else(|refused| refused);
        }
        let params = match self.read(request) {
            Ok(params) => params,
            Err(refused) => return refused,
        };
        if params.is_empty() {
            let why = format!("no URL to watch: use {WATCH_PATH}?url=/a/page, or url=/live/*");
            return answer::problem(400, why);
        }
        if let Some(most) = params.history {
            return stored_versions(documents, &params.request, most);
        }
        let subscription =
            match Subscription::new(documents, params.request.without_lost_versions(documents)) {
                Ok(subscription) => subscription,
                Err(why) => return why.answer(),
            };
        let accepts = request.fields.fields().get("accept").unwrap_or_default();
        if accepts.split(|&byte| byte == b',').any(is_event_stream) {
            let events = WatchEvents(subscription);
            EventStream::new(events, params.has_placeholder_id).answer()
        } else {
            first_changes(subscription, params.wait).await
        }
    }

    /// Opens a WebSocket, which may start without any subscription.
    fn open(&self, request: &OriginRequest) -> Result<OriginResponse, OriginResponse> {
        let documents = self.push.documents();
        let handshake = handshake(documents, request, &[Subprotocol::Microcache])?;
        let subscribe_request = self.read(request)?.request.without_lost_versions(documents);
        let wants_deltas = subscribe_request.options.deltas;
        let subscription =
            Subscription::new(documents, subscribe_request).map_err(SubscribeError::answer)?;
        let language = Language::Native {
            pages: Some(PageResolver::new(request, &self.find_page)),
            wants_deltas,
        };
        Ok(handshake.open(subscription, language))
    }

    fn read(&self, request: &OriginRequest) -> Result<SubscribeParams, OriginResponse> {
        let documents = self.push.documents();
        let credentials = documents.credentials(request, &request.target);
        let find_page = |url: &str| (self.find_page)(request, url);
        SubscribeParams::read(request, documents, credentials, |url| {
            resolve(url, &documents.settings.prefixes, find_page)
        })
    }
}

/// Answers long polling: with all pending events, or with the first one that arrives within `wait`.
async fn first_changes(mut subscription: Subscription, wait: Duration) -> OriginResponse {
    let mut body = BytesMut::from(&b"{\"events\":["[..]);
    let ends = subscription.grant().ends();
    let until = ends.map_or(Instant::now() + wait, |end| end.min(Instant::now() + wait));
    let mut next = timeout_at(until, subscription.next_json()).await.ok();
    let mut count = 0;
    while let Some(event) = next {
        if count > 0 {
            body.put_u8(b',');
        }
        body.extend_from_slice(&event);
        count += 1;
        let has_room = count < MAX_EVENTS && body.len() < MAX_EVENT_BYTES;
        next = has_room.then(|| subscription.try_next_json()).flatten();
    }
    body.extend_from_slice(
        format!("],\"last_event_id\":\"{}\"}}", subscription.position()).as_bytes(),
    );
    let mut answer = answer::whole(200, "application/json", Bytes::from(body));
    answer.fields.push("Cache-Control", "no-store");
    answer
}

impl Origin for WatchOrigin {
    fn fetch(&self, request: OriginRequest) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        Box::pin(async move {
            let (path, _) = split_query(&request.target);
            let fields = request.fields.fields();
            let script = SCRIPT_PATHS.iter().position(|it| it.as_bytes() == path);
            if let Some(script) = script.filter(|_| is_read(&request.method)) {
                return Ok(SCRIPTS[script].answer(fields));
            }
            let sites = &self.push.documents().settings.allow_origins;
            let mut answer = if is_read(&request.method) {
                self.watch(&request).await
            } else if let Some(allowed) = cors::preflight(sites, fields) {
                allowed
            } else {
                let mut answer = answer::problem(405, "the method is not allowed; use GET or HEAD");
                answer.fields.push("Allow", "GET, HEAD");
                answer
            };
            let granted = cors::response_fields(sites, fields, self.push.documents().cookie_use());
            answer.fields.extend_if(granted.fields(), |_, _| true);
            Ok(answer)
        })
    }
}

const fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

impl Script {
    /// Minifies a script: removes comments, indentation and empty lines.
    fn new(text: &str) -> Self {
        let lines = text.lines().map(str::trim_start);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("//"));
        let whole = lines.flat_map(|line| [line, "\n"]).collect::<String>();
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        let written = encoder.write_all(whole.as_bytes());
        let gzip = written.and_then(|()| encoder.finish());
        Self {
            whole: whole.into(),
            // Writing to memory cannot fail.
            gzip: gzip.unwrap_or_default().into(),
        }
    }

    /// Answers a request for the script.
    fn answer(&self, request: Fields<'_>) -> OriginResponse {
        let gzip = Compress {
            codings: vec![Coding::Gzip],
            ..Compress::default()
        };
        let is_encoded = !gzip.wanted(request).is_identity();
        let body = if is_encoded { &self.gzip } else { &self.whole };
        let mut answer = answer::whole(200, "text/javascript; charset=utf-8", body.clone());
        if is_encoded {
            answer.fields.push("Content-Encoding", "gzip");
        }
        answer.fields.push("Vary", "Accept-Encoding");
        answer.fields.push("Cache-Control", "max-age=3600");
        answer.fields.push("X-Content-Type-Options", "nosniff");
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use microcache_engine::Body;

    use super::*;

    #[test]
    fn the_scripts_of_pages_are_sent_in_two_and_four_kilobytes() {
        let sent = |script: usize, request: &[u8]| {
            let answer = SCRIPTS[script].answer(Fields::new(request));
            let Body::Full(body) = answer.body else {
                panic!("it is whole");
            };
            let coding = answer.fields.fields().get("content-encoding");
            (coding.map(<[u8]>::to_vec), body)
        };
        for (script, most) in [4096, 2048].into_iter().enumerate() {
            let (coding, whole) = sent(script, b"");
            assert_eq!(coding, None);
            let (coding, small) = sent(script, b"Accept-Encoding: gzip, deflate, br\r\n");
            assert_eq!(coding.as_deref(), Some(&b"gzip"[..]));
            assert!(small.len() <= most, "{script}: {}", small.len());
            let mut text = Vec::new();
            let decoded = flate2::read::GzDecoder::new(&small[..]).read_to_end(&mut text);
            decoded.expect("gzip");
            assert_eq!(text, whole);
        }
    }

    #[test]
    fn the_minified_client_is_that_of_its_source() {
        let mut sum = flate2::Crc::new();
        sum.update(include_bytes!("client.js"));
        let first = format!("// client.js {}\n", sum.sum());
        let is_current = include_str!("client.min.js").starts_with(&first);
        assert!(is_current, "run `make client.min.js`");
    }
}
