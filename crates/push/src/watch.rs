//! Several documents, or all that are like a pattern, in one subscription.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::Method;
use microcache_engine::origin::BoxFuture;
use microcache_engine::{Origin, OriginError, OriginRequest, OriginResponse};
use microcache_policy::key::split_query;
use microcache_policy::{is_event_stream, query};
use tokio::time::timeout;

use crate::answer;
use crate::events::Form;
use crate::name::{Pattern, Prefix};
use crate::origin::{Documents, Push};
use crate::subscription::{EventStream, NoSubscription, Subscription};

/// Where they are subscribed to.
pub const WATCH_PATH: &str = "/.well-known/microcache/watch";

/// The most urls of one subscription, and how many of them may have a star.
const MAX_URLS: usize = 100;
const MAX_STARS: usize = 8;
/// How long somebody waits for something to happen who asks again and again.
const WAIT: Duration = Duration::from_secs(25);
const LONGEST_WAIT: Duration = Duration::from_mins(1);
/// The most changes, and bytes, that are told at once to somebody who asks again and again.
const MAX_TOLD: usize = 1000;
const MAX_TOLD_BYTES: usize = 1024 * 1024;

/// What is answered at [`WATCH_PATH`].
pub struct Watch {
    push: Arc<Push>,
    prefixes: Vec<Prefix>,
}

/// What somebody asks for.
#[derive(Debug)]
struct Wanted {
    patterns: Vec<Pattern>,
    seen: Option<String>,
    wants_deltas: bool,
    wait: Duration,
}

impl Watch {
    /// For documents under these prefixes.
    pub const fn new(push: Arc<Push>, prefixes: Vec<Prefix>) -> Self {
        Self { push, prefixes }
    }

    fn read(&self, request: &OriginRequest) -> Result<Wanted, String> {
        let (_, query) = split_query(&request.target);
        let mut wanted = Wanted {
            patterns: Vec::new(),
            seen: None,
            wants_deltas: false,
            wait: WAIT,
        };
        for parameter in query.into_iter().flat_map(query::parameters) {
            let equals = parameter.iter().position(|&byte| byte == b'=');
            let (name, value) = parameter.split_at(equals.unwrap_or(parameter.len()));
            let value = query::decoded(value).skip(1).collect();
            let value = String::from_utf8(value).map_err(|_| "the query is not UTF-8")?;
            match name {
                b"url" => wanted.patterns.push(self.pattern(&value)?),
                b"last_event_id" | b"lastEventID" => wanted.seen = Some(value),
                b"deltas" => wanted.wants_deltas = value != "0",
                b"wait" => wanted.wait = wait(&value)?,
                _ => {}
            }
        }
        // What a browser says when it comes back is newer than what the url says.
        if let Some(seen) = request.fields.fields().get("last-event-id") {
            wanted.seen = Some(String::from_utf8_lossy(seen).into_owned());
        }
        let stars = wanted.patterns.iter().filter(|pattern| pattern.is_like());
        if stars.count() > MAX_STARS {
            return Err(format!(
                "one subscription has {MAX_STARS} urls with a `*` at most"
            ));
        }
        match wanted.patterns.len() {
            0 => Err(format!(
                "say what to watch: {WATCH_PATH}?url=/live/x, or url=/live/*"
            )),
            1..=MAX_URLS => Ok(wanted),
            _ => Err(format!("one subscription has {MAX_URLS} urls at most")),
        }
    }

    fn pattern(&self, url: &str) -> Result<Pattern, String> {
        let pattern = Pattern::parse(url).map_err(|why| format!("{url}: {why}"))?;
        let begins_with = pattern.begins_with();
        if self
            .prefixes
            .iter()
            .any(|prefix| begins_with.starts_with(prefix.as_str()))
        {
            return Ok(pattern);
        }
        let prefixes: Vec<_> = self.prefixes.iter().map(Prefix::as_str).collect();
        Err(format!(
            "{url} is not under {}, where documents are",
            prefixes.join(", ")
        ))
    }
}

impl Wanted {
    fn subscribe(&self, documents: &Arc<Documents>) -> Result<Subscription, NoSubscription> {
        Subscription::new(
            documents,
            &self.patterns,
            self.seen.as_deref(),
            self.wants_deltas,
        )
    }
}

/// All that has happened, or what happens first.
async fn first_changes(mut subscription: Subscription, wait: Duration) -> OriginResponse {
    let mut told = BytesMut::from(&b"{\"events\":["[..]);
    let mut next = timeout(wait, subscription.next_json()).await.ok();
    let mut count = 0;
    while let Some(event) = next {
        if count > 0 {
            told.put_u8(b',');
        }
        told.extend_from_slice(&event);
        count += 1;
        let has_room = count < MAX_TOLD && told.len() < MAX_TOLD_BYTES;
        next = has_room.then(|| subscription.next_json_at_hand()).flatten();
    }
    told.extend_from_slice(
        format!("],\"last_event_id\":\"{}\"}}", subscription.place()).as_bytes(),
    );
    let mut answer = answer::whole(200, "application/json", Bytes::from(told));
    answer.fields.push("Cache-Control", "no-store");
    answer
}

fn wait(value: &str) -> Result<Duration, String> {
    let seconds = value.parse().ok().map(Duration::from_secs);
    seconds.filter(|wait| *wait <= LONGEST_WAIT).ok_or_else(|| {
        format!(
            "wait is a number of seconds, {} at most",
            LONGEST_WAIT.as_secs()
        )
    })
}

impl Origin for Watch {
    fn fetch(&self, request: OriginRequest) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        Box::pin(async move {
            if request.method != Method::GET {
                let mut answer = answer::problem(405, "changes are watched by GET");
                answer.fields.push("Allow", "GET");
                return Ok(answer);
            }
            let wanted = match self.read(&request) {
                Ok(wanted) => wanted,
                Err(why) => return Ok(answer::problem(400, why)),
            };
            let subscription = match wanted.subscribe(self.push.documents()) {
                Ok(subscription) => subscription,
                Err(why) => return Ok(answer::no_subscription(why)),
            };
            let accepts = request.fields.fields().get("accept").unwrap_or_default();
            Ok(
                if accepts.split(|&byte| byte == b',').any(is_event_stream) {
                    answer::events(EventStream::new(subscription, Form::Told))
                } else {
                    first_changes(subscription, wanted.wait).await
                },
            )
        })
    }
}
