//! A page between its division and its head.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use microcache_engine::{Body, GzipPage, Response};
use microcache_policy::edge::{ComposedTag, PagePiece, PagePieces, text_digest};
use microcache_policy::{Coding, FieldBlock};

use super::arriving_shell::ArrivingShell;
use super::composition::Composition;
use super::fragment::{Fragment, PendingFragment};
use super::head;
use super::page_request::PageRequest;
use super::part::{PagePart, fragments_of};
use crate::session::pages;

/// The largest page that is sent in one piece, in bytes.
const MOST_JOINED: usize = 1 << 20;

/// A page whose fragments have been asked for.
pub(super) struct PendingPage {
    request: Arc<PageRequest>,
    /// Its response, without the body.
    shell: Response,
    parts: VecDeque<PagePart>,
    /// Digest of its texts, if the page is stored.
    text_digest: Option<u64>,
    /// The rest of its body.
    rest: Option<ArrivingShell>,
    /// Writer of a page that is sent in gzip.
    gzip: Option<GzipPage>,
}

impl PendingPage {
    /// Asks for the fragments of a page that is there as a whole.
    pub(super) fn divided(
        request: &Arc<PageRequest>,
        shell: Response,
        body: &Bytes,
        pieces: &PagePieces,
    ) -> Self {
        request.count_left_out(pieces.malformed() + pieces.surplus());
        let parts = pieces.parts().map(|piece| match piece {
            PagePiece::Text(range) => PagePart::Text(body.slice(range.clone())),
            PagePiece::Hole(include) => PagePart::Fragment(request.begin(include)),
        });
        Self {
            parts: parts.collect(),
            text_digest: Some(pieces.text_digest()),
            request: Arc::clone(request),
            shell,
            rest: None,
            gzip: None,
        }
    }

    /// Sets the writer of a page that is sent in gzip.
    pub(super) fn in_gzip(self, gzip: Option<GzipPage>) -> Self {
        Self { gzip, ..self }
    }

    /// A page that is still arriving.
    pub(super) fn arriving(request: &Arc<PageRequest>, shell: Response, body: Body) -> Self {
        Self {
            parts: VecDeque::new(),
            text_digest: None,
            request: Arc::clone(request),
            shell,
            rest: Some(ArrivingShell::new(body)),
            gzip: None,
        }
    }

    /// Returns true if it can be sent in one piece.
    pub(super) fn is_complete(&self) -> bool {
        self.length().is_some_and(|length| length <= MOST_JOINED)
    }

    /// Returns the length, if all parts are there.
    fn length(&self) -> Option<usize> {
        if self.rest.is_some() {
            return None;
        }
        let lengths = self.parts.iter().map(|part| part.bytes().map(Bytes::len));
        lengths.sum()
    }

    /// Waits for the parts that have to be there before the head.
    pub(super) async fn arrived(mut self) -> Response {
        let is_strict = self.request.settings().is_strict;
        if self.request.collects() && self.collect().await.is_err() {
            return pages::broke_off(self.request.now());
        }
        for part in &mut self.parts {
            if let PagePart::Fragment(fragment) = part
                && (is_strict || fragment.is_waited_for())
            {
                poll_fn(|cx| fragment.poll(cx)).await;
            }
        }
        self.finished()
    }

    /// Reads the rest of the body, up to the largest page that is sent in one piece.
    async fn collect(&mut self) -> Result<(), microcache_engine::BodyError> {
        while let Some(rest) = &mut self.rest {
            let (request, parts) = (&self.request, &mut self.parts);
            if poll_fn(|cx| rest.poll_parts(cx, request, parts)).await? {
                self.rest = None;
            }
            let lengths = self.parts.iter().filter_map(PagePart::bytes);
            if lengths.map(Bytes::len).sum::<usize>() > MOST_JOINED {
                break;
            }
        }
        Ok(())
    }

    /// Returns the response, with the parts that are there or still to come.
    pub(super) fn finished(self) -> Response {
        let is_missing = self.fragments().any(PendingFragment::is_missing);
        if is_missing && self.request.settings().is_strict {
            return pages::fragment_failed(self.request.now());
        }
        let length = self.length();
        let cookies = self.cookies();
        let text_digest = self.text_digest;
        let mut response = self.shell;
        let mut fields = if length.is_none() {
            head::unknown(&response)
        } else {
            let fragments = fragments_of(&self.parts).filter_map(PendingFragment::fragment);
            head::known(&response, fragments)
        };
        head::add_cookies(&mut fields, &cookies);
        response.age = None;
        let sent = match &self.gzip {
            None => length,
            Some(gzip) => {
                fields.push("Content-Encoding", Coding::Gzip.as_str());
                length.map(|_| {
                    gzip.whole_length(fragments_of(&self.parts).map(PendingFragment::length))
                })
            }
        };
        response.length = sent.map(|length| length as u64);
        response.body = match length {
            Some(length) if length <= MOST_JOINED => {
                let has_tag = response.status == 200 && cookies.is_empty();
                if has_tag {
                    fields.push("ETag", tag_of(&self.parts, text_digest));
                }
                if has_tag && head::is_current(&self.request, fields.fields()) {
                    head::confirm(&mut response, &mut fields);
                    Body::Empty
                } else {
                    Body::Full(joined(&self.parts, sent.unwrap_or(length), self.gzip))
                }
            }
            _ => {
                let body = Composition::new(self.request, self.parts, self.rest, self.gzip);
                Body::Stream(Box::new(body))
            }
        };
        response.fields = Some(FieldBlock::from(fields));
        response
    }

    fn fragments(&self) -> impl Iterator<Item = &PendingFragment> {
        fragments_of(&self.parts)
    }

    /// Returns the cookies of the fragments that were waited for.
    fn cookies(&self) -> Vec<Bytes> {
        let waited = self.fragments().filter(|it| it.is_waited_for());
        let fragments = waited.filter_map(PendingFragment::fragment);
        let cookies = fragments.flat_map(Fragment::cookies);
        cookies.map(Bytes::copy_from_slice).collect()
    }
}

/// Returns the entity tag of a page whose parts are all there.
fn tag_of(parts: &VecDeque<PagePart>, digest: Option<u64>) -> String {
    let texts = parts.iter().filter_map(|part| match part {
        PagePart::Text(text) => Some(&text[..]),
        PagePart::Fragment(_) => None,
    });
    let mut tag = ComposedTag::new(digest.unwrap_or_else(|| text_digest(texts)));
    for part in parts {
        match part {
            PagePart::Text(text) => tag.add_text(text.len()),
            PagePart::Fragment(_) => tag.add_fragment(part.bytes().map_or(&[], |it| it)),
        }
    }
    tag.written()
}

/// Joins the parts of a page that are all there. `length` is that of the whole.
fn joined(parts: &VecDeque<PagePart>, length: usize, mut gzip: Option<GzipPage>) -> Bytes {
    let mut body = BytesMut::with_capacity(length);
    for part in parts {
        body.extend_from_slice(&part.sent(gzip.as_mut()));
    }
    if let Some(mut gzip) = gzip {
        body.extend_from_slice(&gzip.end());
    }
    body.freeze()
}
