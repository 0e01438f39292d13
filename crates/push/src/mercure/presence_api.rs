//! The subscription API: the presence list and its entries.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Method;
use microcache_engine::body::Source;
use microcache_engine::{Body, BodyError, Frame, OriginRequest, OriginResponse};
use microcache_policy::etag::{self, EntityTag};
use microcache_policy::key::split_query;

use super::presence::{END_OF_LIST, PresenceEntry, SelectorSyntax, beginning_of_list, names, path};
use super::presence_list::PresenceList;
use super::subscriber::HubSubscribeError;
use super::{COOKIES, Hub, challenge, hub_url};
use crate::access::request_token::RequestToken;
use crate::answer;
use crate::paths::{MERCURE_PATH, SUBSCRIPTIONS_PATH};

/// `Allow` of these resources.
pub(crate) const ALLOWED: &str = "GET, HEAD, OPTIONS";
/// Media type of the responses.
const MEDIA_TYPE: &str = "application/ld+json";
/// Entries encoded per turn.
const AT_A_TIME: usize = 64;

/// Returns whether a target is the list of subscriptions or an entry of it.
pub(crate) fn is_presence_path(target: &[u8]) -> bool {
    let (path, _) = split_query(target);
    let rest = path.strip_prefix(SUBSCRIPTIONS_PATH.as_bytes());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// The subscriptions selected by a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PresenceQuery {
    /// All of them.
    All,
    /// Subscriptions with this selector.
    Selector(SelectorSyntax, String),
    /// One of a given subscriber.
    One(SelectorSyntax, String, String),
}

impl PresenceQuery {
    /// Parses the segments of a path. Two segments are ambiguous between Mercure 0.x and 1.0; an existing
    /// subscription decides.
    fn from_segments(names: Vec<String>, presence_list: &PresenceList) -> Option<Self> {
        let mut names = names.into_iter();
        let (first, second, third) = (names.next(), names.next(), names.next());
        let kind = first.as_deref().and_then(SelectorSyntax::from_match_type);
        match (first, second, third) {
            (_, _, Some(_)) if names.next().is_some() => None,
            (_, Some(text), Some(id)) => Some(Self::One(kind?, text, id)),
            (Some(first), Some(second), None) => {
                let is_one = || {
                    let entry = presence_list.find(&second);
                    entry.is_some_and(|it| it.find(SelectorSyntax::Topic, &first).is_some())
                };
                Some(match kind {
                    Some(kind) if !is_one() => Self::Selector(kind, second),
                    _ => Self::One(SelectorSyntax::Topic, first, second),
                })
            }
            (Some(topic), ..) => Some(Self::Selector(SelectorSyntax::Topic, topic)),
            (None, ..) => Some(Self::All),
        }
    }

    /// Encodes the selected subscriptions of an entry, each preceded by a comma.
    fn write(&self, entry: &PresenceEntry, out: &mut String) {
        for one in &entry.subscriptions {
            let is_selected = match self {
                Self::All => true,
                Self::Selector(syntax, text) => one.syntax == *syntax && *one.text == **text,
                Self::One(..) => false,
            };
            if is_selected {
                out.push(',');
                out.push_str(&entry.describe_in_list(one));
            }
        }
    }
}

impl Hub {
    /// Answers a request for the list or an entry.
    pub(super) fn presence(
        self: &Arc<Self>,
        request: &OriginRequest,
    ) -> Result<OriginResponse, OriginResponse> {
        let nothing = || answer::problem(404, "there is no such subscription");
        let (target, _) = split_query(&request.target);
        let names = names(target).ok_or_else(nothing)?;
        // Authorization compares the decoded name, independent of its encoding.
        let topic = path(names.iter().map(String::as_str));
        self.authorize_presence(request, &topic)?;
        let history = self.history.lock();
        if !history.is_loaded {
            let why = HubSubscribeError::NotLoaded;
            return Err(answer::later(answer::problem(503, why)));
        }
        let query =
            PresenceQuery::from_segments(names, &history.presence_list).ok_or_else(nothing)?;
        let entry = match &query {
            PresenceQuery::One(_, _, id) => history.presence_list.find(id),
            _ => None,
        };
        let (last, tag) = (history.last_id(), history.entity_tag());
        let newest = history.presence_list.newest();
        drop(history);
        let body = if let PresenceQuery::One(syntax, text, _) = &query {
            let entry = entry.ok_or_else(nothing)?;
            let one = entry.find(*syntax, text).ok_or_else(nothing)?;
            Body::Full(entry.describe(one, &last).into())
        } else {
            let beginning = beginning_of_list(&topic, &last);
            Body::Stream(Box::new(PresenceListBody::new(
                self, query, beginning, newest,
            )))
        };
        Ok(presence_response(request, body, (&last, &tag)))
    }

    /// Checks that a request may read the presence of a topic; fails with the response to send.
    fn authorize_presence(
        &self,
        request: &OriginRequest,
        topic: &str,
    ) -> Result<(), OriginResponse> {
        let settings = self.settings();
        let hub = hub_url(request)?;
        let token = RequestToken::from_request(request.fields.fields(), &request.target, COOKIES);
        let grant = self.grant(token.as_ref(), &settings.subscribers, (&settings, &hub))?;
        let Some(grant) = grant else {
            let why = "listing subscriptions requires a token, see docs/mercure.md";
            return Err(challenge(401, why, ""));
        };
        if grant.subscribe.iter().any(|it| it.matches(topic)) {
            return Ok(());
        }
        let why = "the token does not permit subscribing to this URL";
        Err(challenge(403, why, " error=\"insufficient_scope\""))
    }
}

/// Builds the response, or 304 if the client's copy is current.
fn presence_response(
    request: &OriginRequest,
    body: Body,
    (last, tag): (&str, &str),
) -> OriginResponse {
    let mut answer = answer::bare(200);
    let fields = &mut answer.fields;
    fields.push("Cache-Control", "private, no-cache");
    fields.push("ETag", tag);
    let quoted = last.replace('\\', "\\\\").replace('"', "\\\"");
    let link = format!("<{MERCURE_PATH}>; rel=\"mercure\"; last-event-id=\"{quoted}\"");
    fields.push("Link", link);
    if has_already(request, tag) {
        answer.status = 304;
        answer.length = None;
        return answer;
    }
    answer.fields.push("Content-Type", MEDIA_TYPE);
    answer.length = match &body {
        Body::Full(bytes) => Some(bytes.len() as u64),
        _ => None,
    };
    if request.method == Method::GET {
        answer.body = body;
    }
    answer
}

fn has_already(request: &OriginRequest, tag: &str) -> bool {
    let tag = EntityTag::parse(tag.as_bytes());
    let is_same = |it: EntityTag<'_>| tag.is_some_and(|tag| tag.weak_eq(it));
    let mut known = request.fields.fields().all("if-none-match");
    known.any(|line| line == b"*" || etag::list(line).any(is_same))
}

/// A list encoded while it is sent, since it can be long. Subscribers that join meanwhile are not included,
/// nor are some that leave; updates about both follow the last event id of the list.
struct PresenceListBody {
    hub: Arc<Hub>,
    query: PresenceQuery,
    /// Encoded text that has not been read yet.
    ready: Option<String>,
    /// The last entry encoded, and the last one to encode.
    encoded_through: u64,
    last: u64,
    is_first: bool,
    is_finished: bool,
}

impl PresenceListBody {
    fn new(hub: &Arc<Hub>, query: PresenceQuery, beginning: String, last: u64) -> Self {
        Self {
            hub: Arc::clone(hub),
            query,
            ready: Some(beginning),
            encoded_through: 0,
            last,
            is_first: true,
            is_finished: false,
        }
    }

    /// Encodes a few more entries.
    fn encode_more(&mut self) {
        let history = self.hub.history.lock();
        let entries = history
            .presence_list
            .range(self.encoded_through, self.last, AT_A_TIME);
        drop(history);
        let mut text = String::new();
        for (number, entry) in &entries {
            self.query.write(entry, &mut text);
            self.encoded_through = *number;
        }
        if self.is_first && !text.is_empty() {
            self.is_first = false;
            text.remove(0);
        }
        if entries.is_empty() {
            text.push_str(END_OF_LIST);
            self.is_finished = true;
        }
        self.ready = Some(text).filter(|text| !text.is_empty());
    }
}

impl Source for PresenceListBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        if self.ready.is_none() && !self.is_finished {
            self.encode_more();
        }
        match self.ready.take() {
            Some(text) => Poll::Ready(Some(Ok(Frame::Data(Bytes::from(text))))),
            None if self.is_finished => Poll::Ready(None),
            // None of the entries is selected: yield to other tasks.
            None => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    fn has_descriptor(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::super::selector::Selector;
    use super::super::token::Payloads;
    use super::*;

    fn check(names: &[&str], presence_list: &PresenceList, expected: Option<&PresenceQuery>) {
        let all = names.iter().map(|&it| it.to_owned()).collect();
        assert_eq!(
            PresenceQuery::from_segments(all, presence_list).as_ref(),
            expected,
            "{names:?}"
        );
    }

    #[test]
    fn names_are_read_as_0_x_and_1_0_write_them() {
        let text = |text: &str| text.to_owned();
        let mut presence_list = PresenceList::default();
        let (topic, exact) = (SelectorSyntax::Topic, SelectorSyntax::Exact);
        let one = |syntax, is: &str, by: &str| PresenceQuery::One(syntax, text(is), text(by));
        let like = |syntax, is: &str| PresenceQuery::Selector(syntax, text(is));
        check(&[], &presence_list, Some(&PresenceQuery::All));
        check(&[""], &presence_list, Some(&like(topic, "")));
        check(&["a"], &presence_list, Some(&like(topic, "a")));
        check(&["exact"], &presence_list, Some(&like(topic, "exact")));
        check(&["a", "b"], &presence_list, Some(&one(topic, "a", "b")));
        check(&["exact", "b"], &presence_list, Some(&like(exact, "b")));
        check(
            &["exact", "a", "b"],
            &presence_list,
            Some(&one(exact, "a", "b")),
        );
        check(
            &["urlpattern", "/:a"],
            &presence_list,
            Some(&like(SelectorSyntax::Pattern, "/:a")),
        );
        check(&["Exact", "a", "b"], &presence_list, None);
        check(&["exact", "a", "b", "c"], &presence_list, None);
        // A subscriber to a topic with the name of a match type is found, too.
        let selectors = [(topic, Selector::exact("exact").expect("a selector"))];
        let entry =
            PresenceEntry::new(text("b"), &selectors, &Payloads::default()).expect("a member");
        let entry = Arc::new(entry);
        presence_list.set(&entry, true);
        check(
            &["exact", "b"],
            &presence_list,
            Some(&one(topic, "exact", "b")),
        );
        presence_list.set(&entry, false);
        check(&["exact", "b"], &presence_list, Some(&like(exact, "b")));
    }
}
