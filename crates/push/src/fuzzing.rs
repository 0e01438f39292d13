//! Entry points of the fuzz targets: the parsers of client input, without I/O.

use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::{Builder, Runtime};
use url::Url;

use crate::access::read_grant::PushKeys;
use crate::changes::change::{DocumentChange, DocumentContent};
use crate::mercure::{SelectorCache, Update};
use crate::name::{Pattern, Prefix};
use crate::origin::Push;
use crate::settings::PushSettings;
use crate::socket::{Language, Socket};
use crate::subscribing::subscription::{SubscribeRequest, Subscription};

/// A few documents, one of them private.
static PUSH: LazyLock<Push> = LazyLock::new(|| {
    let prefix = |text| vec![Prefix::parse(text).expect("a prefix")];
    let settings = PushSettings {
        prefixes: prefix("/live/"),
        private: prefix("/live/p/"),
        memory: 1 << 20,
        max_subscribers: 10,
        ..PushSettings::default()
    };
    let push = Push::start(settings, PushKeys::default()).expect("documents are kept in memory");
    for (number, name) in ["/live/a", "/live/b/c", "/live/p/hidden"]
        .into_iter()
        .enumerate()
    {
        push.documents().apply(&Arc::new(DocumentChange {
            number: number as u64 + 1,
            name: name.into(),
            content: Some(DocumentContent {
                media_type: "application/json".into(),
                body: format!("{{\"name\":\"{name}\"}}").into(),
            }),
            expires: None,
            delta: None,
        }));
    }
    push
});

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime")
});

/// Returns what a socket sends to a client that writes these bytes in pieces, until it would block.
pub fn socket(bytes: &[u8], piece: usize, is_piper: bool) -> Vec<u8> {
    let _entered = RUNTIME.enter();
    let language = if is_piper {
        Language::piper_at("/live/")
    } else {
        Language::Native {
            pages: None,
            wants_deltas: false,
        }
    };
    let subscription = Subscription::new(PUSH.documents(), SubscribeRequest::default());
    let mut socket = Socket::new(subscription.expect("there is room"), language);
    let mut cx = Context::from_waker(Waker::noop());
    let (mut sent, mut rest) = (Vec::new(), bytes);
    loop {
        let mut space = [0; 4096];
        let mut space = ReadBuf::new(&mut space);
        match Pin::new(&mut socket).poll_read(&mut cx, &mut space) {
            Poll::Ready(Ok(())) if !space.filled().is_empty() => {
                sent.extend_from_slice(space.filled());
                continue;
            }
            Poll::Ready(_) => return sent,
            Poll::Pending => {}
        }
        let piece = &rest[..rest.len().min(piece.max(1))];
        match Pin::new(&mut socket).poll_write(&mut cx, piece) {
            Poll::Ready(Ok(taken)) if taken > 0 => rest = &rest[taken..],
            _ => return sent,
        }
    }
}

/// Parses a publication to the hub; returns its topics, its id and its event.
pub fn publication(form: &[u8]) -> Option<(Vec<String>, String, Vec<u8>)> {
    let update = Update::read(form, &hub(), || "new".to_owned()).ok()?;
    let topics = update.topics.iter().map(ToString::to_string);
    Some((
        topics.collect(),
        update.id.to_string(),
        update.event.to_vec(),
    ))
}

/// Returns whether a topic selector (Mercure 0.x) matches the topic; `None` if it is invalid.
pub fn selects(selector: &str, topic: &str) -> Option<bool> {
    let selector = SelectorCache::default().topic(selector).ok()?;
    Some(selector.matches(topic))
}

/// Returns whether a URL pattern matches the topic; `None` if it is invalid.
pub fn is_like(pattern: &str, topic: &str) -> Option<bool> {
    let pattern = SelectorCache::default().pattern(pattern, &hub()).ok()?;
    Some(pattern.matches(topic))
}

/// Returns whether a pattern matches the document, and the pattern's literal prefix; `None` if it is invalid.
pub fn pattern_matches<'a>(text: &'a str, name: &str) -> Option<(bool, &'a str)> {
    let pattern = Pattern::parse(text).ok()?;
    let fixed = pattern.literal_prefix().len();
    Some((pattern.matches(name), &text[..fixed]))
}

fn hub() -> Arc<Url> {
    let hub = Url::parse("https://hub.example/.well-known/mercure");
    Arc::new(hub.expect("a url"))
}
