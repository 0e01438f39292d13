//! Changes of pages between the origin and the cache.
//!
//! What is stored is what is sent: an operator's holes and tokens, and tags that become elements of the browser, are
//! replaced once, while the page arrives. [`tags`] reads the page as text, [`editor`] as elements. A page that cannot
//! be changed is not stored if it may contain a visitor's own parts.

mod body;
mod editor;
mod guard;
mod report;
mod scripts;
mod tags;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use encoding_rs::{Encoding, ISO_2022_JP, REPLACEMENT, UTF_16BE, UTF_16LE};
use microcache_engine::origin::BoxFuture;
use microcache_engine::{Body, Origin, OriginError, OriginRequest, OriginResponse};
use microcache_policy::edge::{
    CAPABILITY, EdgeMode, announces_tags, media_type, remove_announcement,
};
use microcache_policy::fields::is_one_of;
use microcache_policy::key::split_query;
use microcache_policy::{Fields, FieldsBuf};

use crate::config::page_edits::{Assembly, PageEdits};
use crate::metrics::Metrics;
use crate::observe::Notices;
use body::EditedBody;
use editor::PageEditor;
use guard::Guard;
use report::UnchangedReport;
use tags::{PageUrl, TagReader};

/// Fields of a page that are wrong once it is changed.
const OF_CONTENT: [&str; 6] = [
    "accept-ranges",
    "content-digest",
    "content-length",
    "content-md5",
    "digest",
    "repr-digest",
];

/// Tells the script that all elements for it are ours, also in a fragment.
const IS_GUARDED: &str = "Microcache-Includes";

/// The paths of the responses with a visitor's own tokens, on any route.
pub(crate) type TokenPaths = Arc<[Vec<u8>]>;

/// An origin whose pages are changed.
pub(crate) struct EditingOrigin {
    origin: Arc<dyn Origin>,
    edits: PageEdits,
    token_paths: TokenPaths,
    report: Arc<UnchangedReport>,
}

impl EditingOrigin {
    /// Puts the edits of a route before its origin, if it makes any, or may bring tokens.
    pub(crate) fn before(
        origin: Arc<dyn Origin>,
        edits: &PageEdits,
        token_paths: &TokenPaths,
        (notices, metrics, route): (&Notices, &Arc<Metrics>, &str),
    ) -> Arc<dyn Origin> {
        if edits.is_off() && token_paths.is_empty() {
            return origin;
        }
        Arc::new(Self {
            origin,
            edits: edits.clone(),
            token_paths: Arc::clone(token_paths),
            report: Arc::new(UnchangedReport {
                notices: notices.clone(),
                metrics: Arc::clone(metrics),
                route: route.to_owned(),
            }),
        })
    }

    fn prepare(&self, request: &mut FieldsBuf) {
        if self.edits.is_off() {
            return;
        }
        request.set("Accept-Encoding", "identity");
        request.remove("surrogate-capability");
        if self.edits.tags != EdgeMode::Off {
            request.push("Surrogate-Capability", CAPABILITY);
        }
    }

    /// Changes a page. `known`: the entity tags in the condition of its request.
    fn edit(&self, response: &mut OriginResponse, page: PageUrl, known: &[u8], has_tokens: bool) {
        if response.status == 304 {
            // It confirms the changed page.
            response.fields.remove("surrogate-control");
            if is_weak_in(known, response.fields.fields()) {
                weaken(&mut response.fields);
            }
            return;
        }
        if self.edits.tags == EdgeMode::Off {
            // Only our own tags count, which are announced below.
            remove_announcement(&mut response.fields);
        }
        let fields = response.fields.fields();
        if matches!(response.status, 100..200 | 204 | 205 | 206) || !is_html(fields) {
            return;
        }
        if let Some(why) = obstacle(fields) {
            if self.edits.is_of_visitors() {
                response.fields.set("Cache-Control", "private, no-store");
                remove_targeted(&mut response.fields);
                self.report.note(why);
            }
            return;
        }
        let has_tags = self.edits.tags.covers(fields);
        let tags = match self.edits.assembly {
            Assembly::Browser if has_tags => {
                TagReader::replaced(page, self.edits.fragments.clone())
            }
            Assembly::Server if !has_tags => TagReader::Guarded(Guard::of_tags()),
            _ => TagReader::Guarded(Guard::of_elements()),
        };
        if self.edits.assembly == Assembly::Browser || !has_tags {
            remove_announcement(&mut response.fields);
        }
        if self.edits.adds_tags() && !announces_tags(response.fields.fields()) {
            response
                .fields
                .push("Surrogate-Control", "content=\"ESI/1.0\"");
        }
        if self.edits.assembly == Assembly::Browser {
            response.fields.push(IS_GUARDED, "1");
        }
        response
            .fields
            .retain(|name, _| !is_one_of(name, &OF_CONTENT));
        weaken(&mut response.fields);
        response.length = None;
        if !matches!(response.body, Body::Empty) {
            let editor = PageEditor::new(&self.edits, tags, has_tokens);
            let page = std::mem::replace(&mut response.body, Body::Empty);
            let report = Arc::clone(&self.report);
            response.body = Body::Stream(Box::new(EditedBody::new(page, editor, report)));
        }
    }
}

impl Origin for EditingOrigin {
    fn fetch(
        &self,
        mut request: OriginRequest,
    ) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        self.prepare(&mut request.fields);
        let page = PageUrl {
            host: request.authority.clone(),
            target: request.target.clone(),
        };
        let known = request.fields.fields().get("if-none-match");
        let known = known.unwrap_or_default().to_vec();
        Box::pin(async move {
            let mut response = self.origin.fetch(request).await?;
            let (path, _) = split_query(&page.target);
            let has_tokens = !self.token_paths.iter().any(|it| it == path);
            if !has_tokens {
                // It is for one visitor, whatever it says.
                response.fields.set("Cache-Control", "private, no-store");
                remove_targeted(&mut response.fields);
            }
            if !self.edits.is_off() && response.tunnel.is_none() {
                self.edit(&mut response, page, &known, has_tokens);
            }
            Ok(response)
        })
    }
}

fn is_html(response: Fields<'_>) -> bool {
    media_type(response).eq_ignore_ascii_case(b"text/html")
}

/// Returns the reason that the elements of a page cannot be read.
fn obstacle(response: Fields<'_>) -> Option<&'static str> {
    let coding = response.get("content-encoding").unwrap_or_default();
    if !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity") {
        return Some("the application has encoded it, although it was asked not to");
    }
    let media_type = response
        .get("content-type")
        .unwrap_or_default()
        .to_ascii_lowercase();
    let at = memchr::memmem::find(&media_type, b"charset=")?;
    let label = media_type[at + b"charset=".len()..]
        .split(|&byte| byte == b';')
        .next()?;
    let label = label.trim_ascii().strip_prefix(b"\"").unwrap_or(label);
    let encoding = Encoding::for_label(label.strip_suffix(b"\"").unwrap_or(label))?;
    [UTF_16BE, UTF_16LE, ISO_2022_JP, REPLACEMENT]
        .contains(&encoding)
        .then_some("tags cannot be found in its encoding")
}

/// Returns true if a condition has the entity tag of the response in its weak form.
fn is_weak_in(known: &[u8], response: Fields<'_>) -> bool {
    let tag = response.get("etag").unwrap_or_default();
    tag.starts_with(b"\"") && memchr::memmem::find(known, &[b"W/", tag].concat()).is_some()
}

/// Makes the entity tag weak: the page has other bytes than the origin's.
fn weaken(response: &mut FieldsBuf) {
    let tag = response
        .fields()
        .get("etag")
        .filter(|tag| tag.starts_with(b"\""));
    if let Some(weak) = tag.map(|tag| [b"W/", tag].concat()) {
        response.set("ETag", weak);
    }
}

/// Removes the fields by which one cache in particular is controlled.
fn remove_targeted(response: &mut FieldsBuf) {
    response.retain(|name, _| !name.to_ascii_lowercase().ends_with(b"-cache-control"));
}
