//! Pages with tags, composed for each visitor.
//!
//! A response whose tags are to be replaced becomes a [`PendingPage`]: its text, and a fragment in the place of each tag.
//! A fragment is a request of the same visitor for another URL of this server ([`PageRequest`]); all of them are begun
//! together. If they are all there at once, the page has the head of a complete response; otherwise it is streamed
//! ([`Composition`]). See docs/decisions/edge.md.

mod arriving_shell;
mod composition;
mod fragment;
mod fragment_failure;
mod head;
mod page;
mod page_request;
mod part;

use std::sync::Arc;

use microcache_engine::{
    Body, BoxFuture, GzipPage, NoResponse, Request, RequestHead, Response, RouteId,
};
use microcache_policy::edge::{EdgeMode, PagePieces, remove_announcement};
use microcache_policy::{FieldBlock, FieldsBuf, SURROGATE_CONTROL, Time};

use super::{DeferredRequest, DeferredSource, Reply, Session};
use page::PendingPage;
use page_request::PageRequest;

/// Composes the page of one request.
pub(super) struct PageComposer(Arc<PageRequest>);

/// A page that is complete, or still to be waited for.
enum ComposedPage {
    Complete(Response),
    Pending(BoxFuture<'static, Response>),
}

impl PageComposer {
    /// Composes the response, if its tags are to be replaced, as soon as its head is known.
    pub(super) fn compose(
        self: Box<Self>,
        answer: BoxFuture<'static, Result<Response, NoResponse>>,
    ) -> BoxFuture<'static, Result<Response, NoResponse>> {
        Box::pin(async move {
            let mut response = answer.await?;
            if !self.0.is_page(&response) {
                without_announcement(&mut response);
                return Ok(response);
            }
            Ok(match self.composed(response) {
                ComposedPage::Complete(response) => response,
                ComposedPage::Pending(page) => page.await,
            })
        })
    }

    fn composed(&self, mut shell: Response) -> ComposedPage {
        if self.0.is_head() {
            shell.fields = Some(FieldBlock::from(head::unknown(&shell)));
            (shell.age, shell.length, shell.body) = (None, None, Body::Empty);
            return ComposedPage::Complete(shell);
        }
        let gzip = GzipPage::of(&shell);
        let body = std::mem::replace(&mut shell.body, Body::Empty);
        let page = match body {
            Body::Stored(hit) => {
                // The head of a stored response is in its body.
                shell.fields.get_or_insert_with(|| hit.fields().into());
                let body = hit.shared_body().unwrap_or_default();
                let pieces = hit.pieces().map(Arc::clone);
                match pieces.or_else(|| PagePieces::of(&body).map(Arc::new)) {
                    Some(pieces) => {
                        PendingPage::divided(&self.0, shell, &body, &pieces).in_gzip(gzip)
                    }
                    None => return untouched(shell, Body::Stored(hit)),
                }
            }
            Body::Full(body) => match PagePieces::of(&body) {
                Some(pieces) => PendingPage::divided(&self.0, shell, &body, &pieces),
                None => return untouched(shell, Body::Full(body)),
            },
            Body::Empty => return untouched(shell, Body::Empty),
            body @ (Body::File(_) | Body::Fill(_) | Body::Stream(_)) => {
                PendingPage::arriving(&self.0, shell, body)
            }
        };
        if page.is_complete() {
            ComposedPage::Complete(page.finished())
        } else {
            ComposedPage::Pending(Box::pin(page.arrived()))
        }
    }
}

/// Returns a page without tags.
fn untouched(mut shell: Response, body: Body) -> ComposedPage {
    shell.body = body;
    without_announcement(&mut shell);
    ComposedPage::Complete(shell)
}

impl Session {
    /// Returns the composer of a request's page, if its route replaces tags.
    pub(super) fn composer(&self, route: usize, head: &RequestHead) -> Option<Box<PageComposer>> {
        if !self.shared.composes_pages || self.shared.engine.rules(route).edge == EdgeMode::Off {
            return None;
        }
        let request = PageRequest::new(self, route, head.clone());
        Some(Box::new(PageComposer(Arc::new(request))))
    }

    /// Composes an immediate response, if its tags are to be replaced. One with parts that have to be waited for is
    /// deferred.
    #[cold]
    #[inline(never)]
    pub(super) fn compose_at_once(
        &self,
        (route, id): (usize, RouteId),
        request: &Request<'_>,
        now: Time,
        reply: &mut Option<Reply>,
    ) {
        let mode = self.shared.engine.rules(route).edge;
        let Some(Reply::Now(response)) = reply else {
            return;
        };
        if mode == EdgeMode::Off {
            return;
        }
        let is_plain = matches!(&response.body, Body::Stored(hit) if hit.pieces().is_none());
        if is_plain || !page_request::is_page(mode, response) {
            return without_announcement(response);
        }
        let Some(Reply::Now(shell)) = reply.take() else {
            return;
        };
        let head = self.copied(request);
        let composer = PageComposer(Arc::new(PageRequest::new(self, route, head.clone())));
        *reply = Some(match composer.composed(shell) {
            ComposedPage::Complete(response) => Reply::Now(response),
            ComposedPage::Pending(page) => Reply::Deferred(DeferredRequest {
                wanted: DeferredSource::Page(page, route),
                route: id,
                grant: None,
                change: None,
                head,
                began: now,
            }),
        });
    }
}

/// Removes the announcement of tags, which is for this server.
fn without_announcement(response: &mut Response) {
    if response.fields().contains(SURROGATE_CONTROL) {
        let mut fields = FieldsBuf::from(response.fields());
        remove_announcement(&mut fields);
        response.fields = Some(FieldBlock::from(fields));
    }
}
