//! Explains requests that the server answers itself: documents, subscriptions to documents, pages
//! and Mercure topics, and the scripts for pages.

use http::Method;
use microcache_engine::Decision;
use microcache_policy::Detail;
use microcache_policy::key::split_query;
use microcache_proxy::{BuiltinService, RequestExplanation};

use super::phrases::ExplanationStep;

/// Classifies a request by the built-in origin that serves it.
#[derive(Clone, Copy)]
enum Meaning {
    /// Answered immediately with the current content.
    Read,
    /// Answered immediately, past the cache.
    ReadPast(Detail),
    /// There is no such document.
    Missing,
    /// The request has no permission to read the document.
    Private,
    Stream,
    /// Request to the subscriptions API of the Mercure hub.
    WhoSubscribes,
    Socket,
    LongPoll,
    Publish,
    /// CORS preflight.
    Preflight,
    /// The method is not supported.
    NotAllowed,
}

/// Returns true if the response comes from memory, like a hit.
pub(super) fn is_available(place: BuiltinService, outlook: &RequestExplanation) -> bool {
    matches!(meaning(place, outlook), Meaning::Read)
}

fn meaning(place: BuiltinService, outlook: &RequestExplanation) -> Meaning {
    let request = &outlook.request;
    let (path, _) = split_query(&request.target);
    let passes_for = match outlook.explained.decision {
        Decision::Pass(_, detail) => detail,
        _ => None,
    };
    let documents = matches!(place, BuiltinService::Documents { .. });
    match (&request.method, passes_for, place) {
        (&Method::GET | &Method::HEAD, _, BuiltinService::Script) => Meaning::Read,
        (&Method::GET | &Method::HEAD, _, BuiltinService::Hub) => Meaning::Stream,
        (&Method::GET | &Method::HEAD, _, BuiltinService::Subscriptions) => Meaning::WhoSubscribes,
        (&Method::POST, _, BuiltinService::Hub) => Meaning::Publish,
        (&Method::GET | &Method::HEAD, _, BuiltinService::Documents { is_let: false, .. }) => {
            Meaning::Private
        }
        (&Method::GET, _, _) if request.upgrade => Meaning::Socket,
        // A path that ends with a slash is not a document.
        (&Method::GET, Some(Detail::EventStream), BuiltinService::Documents { .. })
            if !path.ends_with(b"/") =>
        {
            Meaning::Stream
        }
        (&Method::GET | &Method::HEAD, _, BuiltinService::Documents { is_there, .. }) => {
            match passes_for {
                _ if !is_there => Meaning::Missing,
                Some(why) => Meaning::ReadPast(why),
                None => Meaning::Read,
            }
        }
        (&Method::GET | &Method::HEAD, _, BuiltinService::Watch) => {
            let fields = request.fields();
            let accepts = fields.get("accept").unwrap_or_default();
            let mut accepted = accepts.split(|&byte| byte == b',');
            if accepted.any(microcache_policy::is_event_stream) {
                Meaning::Stream
            } else {
                Meaning::LongPoll
            }
        }
        (&Method::PUT | &Method::PATCH | &Method::DELETE, ..) if documents => Meaning::Publish,
        (&Method::POST, ..) if documents && path.ends_with(b"/batch") => Meaning::Publish,
        (&Method::OPTIONS, ..) => Meaning::Preflight,
        _ => Meaning::NotAllowed,
    }
}

/// Summarizes the explanation in one sentence.
pub(super) fn sentence(place: BuiltinService, outlook: &RequestExplanation) -> String {
    let what = match (place, meaning(place, outlook)) {
        (BuiltinService::Script, Meaning::Read) => {
            "Answered with a script for pages, which is part of Microcache"
        }
        (_, Meaning::Read) => {
            "Served from memory: a document is fresh until it changes, and is never evicted"
        }
        (_, Meaning::ReadPast(why)) => {
            return format!(
                "Answered with the document, not counted as a hit: {}. The origin is not contacted.",
                why.explanation().because
            );
        }
        (_, Meaning::Private) => {
            "Answered with 401 or 403: the document is private, and the request has no token for it"
        }
        (_, Meaning::Missing) => "Answered with 404: there is no such document",
        (BuiltinService::Watch, Meaning::Stream) => {
            "Subscription: an event stream with changes of the requested documents and pages"
        }
        (BuiltinService::Hub, Meaning::Stream) => {
            "Subscription: an event stream with updates of the requested topics, if the client is authorized"
        }
        (_, Meaning::Stream) => {
            "Subscription: an event stream with the current document and every change of it"
        }
        (_, Meaning::WhoSubscribes) => {
            "Lists active subscriptions, if the request has a token for this URL"
        }
        (_, Meaning::Socket) => {
            "Subscription by WebSocket: the current content and every change of it"
        }
        (_, Meaning::LongPoll) => {
            "Long poll: answered as soon as one of the requested documents and pages changes"
        }
        (_, Meaning::Publish) => publishing(place),
        (_, Meaning::Preflight) => {
            "CORS preflight: answered with the allowed methods, fields and origins"
        }
        (_, Meaning::NotAllowed) => "Answered with 405: the method is not supported here",
    };
    format!("{what}. The origin is not contacted.")
}

const fn publishing(place: BuiltinService) -> &'static str {
    match place {
        BuiltinService::Documents {
            has_publishers: true,
            ..
        } => "Changes documents and notifies their subscribers, if the request has the secret",
        BuiltinService::Hub => {
            "Publishes an update to the subscribers of its topics, if the request has a valid token"
        }
        _ => "Answered with 403: publishing is disabled",
    }
}

/// Steps of the explanation after the route.
pub(super) fn steps(place: BuiltinService, outlook: &RequestExplanation) -> Vec<ExplanationStep> {
    let mut steps = vec![service_step(place)];
    if matches!(place, BuiltinService::Hub | BuiltinService::Subscriptions) {
        return steps;
    }
    steps.extend(outcome_step(meaning(place, outlook)));
    if let BuiltinService::Documents { has_publishers, .. } = place {
        steps.push(publishers_step(has_publishers));
    }
    steps
}

fn service_step(place: BuiltinService) -> ExplanationStep {
    match place {
        BuiltinService::Documents { .. } => ExplanationStep::new(
            "documents, served without an origin",
            "`push` sets their path prefixes; host and query are ignored, and purges do not apply",
        ),
        BuiltinService::Watch => ExplanationStep::new(
            "endpoint for watching documents and pages, without an origin",
            "`push`, or `watch` of a route, enables it",
        ),
        BuiltinService::Hub => ExplanationStep::new(
            "endpoint of the Mercure hub, without an origin",
            "`mercure_publisher_key_file` enables it, with the key that verifies tokens",
        ),
        BuiltinService::Subscriptions => ExplanationStep::new(
            "subscriptions API of the Mercure hub, without an origin",
            "`mercure_subscriptions` enables it",
        ),
        BuiltinService::Script => ExplanationStep::new(
            "script built into Microcache, without an origin",
            "`push`, or `watch` of a route, enables it",
        ),
    }
}

fn outcome_step(meaning: Meaning) -> Option<ExplanationStep> {
    let step = match meaning {
        Meaning::Read | Meaning::Preflight | Meaning::WhoSubscribes => return None,
        Meaning::ReadPast(why) => ExplanationStep::of(
            "the current document is sent, past the cache",
            why.explanation(),
        ),
        Meaning::Missing => ExplanationStep::new(
            "answered with 404",
            "the document was never published, has been deleted, or has expired (`Push-TTL`)",
        )
        .unless("publish it: PUT with the secret of `push_token_file`"),
        Meaning::Private => ExplanationStep::new(
            "answered with 401 or 403",
            "paths in `push_private` require the secret of `push_token_file` or `push_reader_token_file`, or a \
             token signed with the key of `push_reader_key_file`",
        )
        .unless("send one of them as `Authorization: Bearer`"),
        Meaning::Stream => ExplanationStep::new(
            "the stream stays open until the client disconnects",
            "the request accepts `text/event-stream`; `Last-Event-ID` sets the position from which changes are \
             replayed",
        )
        .unless("remove `text/event-stream` from `Accept` if no stream is needed"),
        Meaning::Socket => ExplanationStep::new(
            "the WebSocket stays open until either side closes it",
            "the request upgrades to a WebSocket, over which URLs can be subscribed and unsubscribed",
        )
        .unless("omit `Upgrade` if no WebSocket is needed"),
        Meaning::LongPoll => ExplanationStep::new(
            "waits for a change, up to 25 s or `wait` seconds",
            "the request does not accept `text/event-stream`; `last_event_id` in the query sets the position",
        )
        .unless("send `Accept: text/event-stream` for a stream"),
        Meaning::Publish => ExplanationStep::new(
            "answered once the change is persisted, then delivered to subscribers",
            "confirmed changes survive a crash",
        ),
        Meaning::NotAllowed => ExplanationStep::new(
            "answered with 405",
            "documents are read with GET and HEAD, changed with PUT, PATCH, DELETE, and POST to `batch`, and \
             watched with GET",
        ),
    };
    Some(step)
}

fn publishers_step(has_publishers: bool) -> ExplanationStep {
    if has_publishers {
        ExplanationStep::new(
            "changes require a secret",
            "`push_token_file` contains it; clients send it as `Authorization: Bearer`",
        )
    } else {
        ExplanationStep::new("changes are disabled", "`push_token_file` is not set")
            .unless("set `push_token_file` to a file with a secret")
    }
}
