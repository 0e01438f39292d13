//! Explains requests that the server answers itself: documents, subscriptions to watched pages,
//! them or pages, and the script that has pages update themselves.

use http::Method;
use microcache_engine::Decision;
use microcache_policy::Detail;
use microcache_policy::key::split_query;
use microcache_proxy::{BuiltinService, RequestExplanation};

use super::phrases::ExplanationStep;

/// Classifies a request by the built-in origin that serves it.
#[derive(Clone, Copy)]
enum Meaning {
    /// It gets what there is, without a wait.
    Read,
    /// The same, past the cache.
    ReadPast(Detail),
    /// There is nothing.
    Missing,
    /// Whoever asks does not show that he may read it.
    Private,
    Stream,
    /// Whoever may know it is told who subscribes.
    WhoSubscribes,
    Socket,
    LongPoll,
    Publish,
    /// A browser asks what a page may ask.
    Preflight,
    /// There is no such thing to be done.
    NotAllowed,
}

/// Returns true if the response comes from memory, like a hit.
pub(super) fn is_at_hand(place: BuiltinService, outlook: &RequestExplanation) -> bool {
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
        // What ends with a slash names no document.
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

/// The whole in a sentence.
pub(super) fn sentence(place: BuiltinService, outlook: &RequestExplanation) -> String {
    let what = match (place, meaning(place, outlook)) {
        (BuiltinService::Script, Meaning::Read) => {
            "It is the script that has pages update themselves, and comes out of this program"
        }
        (_, Meaning::Read) => {
            "It is a hit (memory): a document is fresh until it changes, and is never evicted"
        }
        (_, Meaning::ReadPast(why)) => {
            return format!(
                "It is answered with the document, which counts as no hit: {}. The application is not asked.",
                why.explanation().because
            );
        }
        (_, Meaning::Private) => {
            "It is answered 401 or 403: what is there is private, and the request shows no token that names it"
        }
        (_, Meaning::Missing) => "It is answered 404: there is no such document",
        (BuiltinService::Watch, Meaning::Stream) => {
            "It is a subscription: an event stream of what changes of the documents and pages that it names"
        }
        (BuiltinService::Hub, Meaning::Stream) => {
            "It is a subscription: an event stream of updates of the topics that it names, if it may have one"
        }
        (_, Meaning::Stream) => {
            "It is a subscription: an event stream with the document as it is, and every change of it"
        }
        (_, Meaning::WhoSubscribes) => {
            "It is told who subscribes to updates, if it brings a token that names this url"
        }
        (_, Meaning::Socket) => {
            "It is a subscription by WebSocket: what is subscribed to as it is, and every change of it"
        }
        (_, Meaning::LongPoll) => {
            "It is a subscription: an answer as soon as there is something new of the documents and pages that it names"
        }
        (_, Meaning::Publish) => publishing(place),
        (_, Meaning::Preflight) => {
            "It is told what may be asked here, and by pages of which other sites"
        }
        (_, Meaning::NotAllowed) => {
            "It is answered 405: there is nothing that this method could do"
        }
    };
    format!("{what}. The application is not asked.")
}

const fn publishing(place: BuiltinService) -> &'static str {
    match place {
        BuiltinService::Documents {
            has_publishers: true,
            ..
        } => "It changes documents, and tells all who watch them, if it brings the secret",
        BuiltinService::Hub => {
            "It publishes an update to all who subscribe to its topics, if it brings a token"
        }
        _ => "It is answered 403: nobody may change documents",
    }
}

/// Steps of the explanation after the route.
pub(super) fn steps(place: BuiltinService, outlook: &RequestExplanation) -> Vec<ExplanationStep> {
    let mut steps = vec![what_it_is(place)];
    if matches!(place, BuiltinService::Hub | BuiltinService::Subscriptions) {
        return steps;
    }
    steps.extend(what_becomes(meaning(place, outlook)));
    if let BuiltinService::Documents { has_publishers, .. } = place {
        steps.push(who_publishes(has_publishers));
    }
    steps
}

fn what_it_is(place: BuiltinService) -> ExplanationStep {
    match place {
        BuiltinService::Documents { .. } => ExplanationStep::new(
            "no application is asked: what is at such a path are documents that are put in",
            "`push` names what their paths begin with; neither the host nor the query counts, and purges touch nothing there",
        ),
        BuiltinService::Watch => ExplanationStep::new(
            "no application is asked: this path is for those who watch documents and pages",
            "it is there where `push` names documents, or `watch` of a route lets its pages be watched",
        ),
        BuiltinService::Hub => ExplanationStep::new(
            "no application is asked: this path is the Mercure hub's",
            "it is there where `mercure_publisher_key_file` names the key that tokens are checked with",
        ),
        BuiltinService::Subscriptions => ExplanationStep::new(
            "no application is asked: under this path the Mercure hub tells who subscribes",
            "it is there where `mercure_subscriptions` is set",
        ),
        BuiltinService::Script => ExplanationStep::new(
            "no application is asked: the script is a part of this program",
            "it is there where `push` names documents, or `watch` of a route lets its pages be watched",
        ),
    }
}

fn what_becomes(meaning: Meaning) -> Option<ExplanationStep> {
    let step = match meaning {
        Meaning::Read | Meaning::Preflight | Meaning::WhoSubscribes => return None,
        Meaning::ReadPast(why) => ExplanationStep::of(
            "it gets the document as it is, past the cache",
            why.explanation(),
        ),
        Meaning::Missing => ExplanationStep::new(
            "it is answered 404",
            "nothing was put in there, or it has been deleted, or its time (`Push-TTL`) has passed",
        )
        .unless("put it in: PUT with the secret of `push_token_file`"),
        Meaning::Private => ExplanationStep::new(
            "it is answered 401 or 403",
            "`push_private` names what may be read only with the secret of `push_token_file` or `push_reader_token_file`, or with a token that is \
             signed with the key of `push_reader_key_file`",
        )
        .unless("send one of them as `Authorization: Bearer`"),
        Meaning::Stream => ExplanationStep::new(
            "it goes on until the client leaves",
            "it accepts `text/event-stream`; `Last-Event-ID` says what it has seen, and it is told what has come since",
        )
        .unless("leave `text/event-stream` out of `Accept`, if no stream is wanted"),
        Meaning::Socket => ExplanationStep::new(
            "it goes on until one of the two ends it",
            "it asks for a WebSocket, by which urls can be added and left out while it is open",
        )
        .unless("leave `Upgrade` out, if no WebSocket is wanted"),
        Meaning::LongPoll => ExplanationStep::new(
            "it waits until there is something to tell, 25 s at most or as long as `wait` says",
            "it does not accept `text/event-stream`; `last_event_id` in the query says what it has seen",
        )
        .unless("send `Accept: text/event-stream` for a stream"),
        Meaning::Publish => ExplanationStep::new(
            "it is answered when it is written down, and told to all who watch then",
            "that is how changes outlive a crash",
        ),
        Meaning::NotAllowed => ExplanationStep::new(
            "it is answered 405",
            "documents are read by GET and HEAD, and changed by PUT, PATCH, DELETE, and POST to `batch`; changes are watched by GET",
        ),
    };
    Some(step)
}

fn who_publishes(has_publishers: bool) -> ExplanationStep {
    if has_publishers {
        ExplanationStep::new(
            "who has the secret may change it",
            "`push_token_file` names the file that it is in; it is sent as `Authorization: Bearer`",
        )
    } else {
        ExplanationStep::new("nobody may change it", "there is no `push_token_file`")
            .unless("name a file with a secret as `push_token_file`")
    }
}
