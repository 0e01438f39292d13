//! The body of a page that is sent while its fragments arrive.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use microcache_engine::{BodyError, Frame, GzipPage, Source};

use super::arriving_shell::ArrivingShell;
use super::fragment::PendingFragment;
use super::page_request::PageRequest;
use super::part::{PagePart, fragments_of};
use crate::admission::PinGuard;

/// The parts of a page, in their order. Dropping it cancels the requests for its fragments.
pub(super) struct Composition {
    request: Arc<PageRequest>,
    parts: VecDeque<PagePart>,
    /// The rest of the page.
    shell: Option<ArrivingShell>,
    gzip: Option<GzipPage>,
    /// A large part that is being sent.
    large: Option<LargePart>,
    /// Bytes of the parts that were there at the beginning: a page in memory and its stored fragments may be evicted meanwhile.
    pin: PinGuard,
    /// The client was too slow for what it held.
    is_cut_off: bool,
}

/// A part that is sent in copies, so that a client that stalls holds no more than one of them once the page is cut off.
struct LargePart {
    rest: Bytes,
    /// The account of a fragment.
    pin: Option<PinGuard>,
}

/// The size of such a copy, in bytes.
const COPY: usize = 64 * 1024;

impl LargePart {
    fn next(&mut self) -> Bytes {
        let length = self.rest.len().min(COPY);
        Bytes::copy_from_slice(&self.rest.split_to(length))
    }
}

impl Composition {
    pub(super) fn new(
        request: Arc<PageRequest>,
        parts: VecDeque<PagePart>,
        shell: Option<ArrivingShell>,
        gzip: Option<GzipPage>,
    ) -> Self {
        let unpinned = parts.iter().filter(|part| !part.is_pinned());
        let bytes = unpinned.filter_map(PagePart::bytes).map(Bytes::len).sum();
        Self {
            pin: request.pin(bytes),
            request,
            parts,
            shell,
            gzip,
            large: None,
            is_cut_off: false,
        }
    }
}

impl Source for Composition {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        if self.is_cut_off {
            return Poll::Ready(Some(Err(BodyError::TooSlow)));
        }
        if let Some(large) = &mut self.large {
            let bytes = large.next();
            if large.rest.is_empty() {
                self.large = None;
            }
            return Poll::Ready(Some(Ok(Frame::Data(bytes))));
        }
        loop {
            match self.parts.front_mut() {
                Some(PagePart::Text(_)) => {}
                Some(PagePart::Fragment(fragment)) => {
                    ready!(fragment.poll(cx));
                    if self.request.settings().is_strict && fragment.is_missing() {
                        return Poll::Ready(Some(Err(BodyError::Incomplete)));
                    }
                }
                None => match &mut self.shell {
                    None => {
                        let end = self.gzip.take().map(|mut gzip| gzip.end());
                        return Poll::Ready(end.map(|end| Ok(Frame::Data(end))));
                    }
                    Some(shell) => {
                        match ready!(shell.poll_parts(cx, &self.request, &mut self.parts)) {
                            Ok(is_over) => {
                                if is_over {
                                    self.shell = None;
                                }
                                continue;
                            }
                            Err(error) => return Poll::Ready(Some(Err(error))),
                        }
                    }
                },
            }
            let Some(mut part) = self.parts.pop_front() else {
                continue;
            };
            let bytes = part.sent(self.gzip.as_mut());
            if bytes.is_empty() {
                continue;
            }
            if bytes.len() > COPY {
                let large = self.large.insert(LargePart {
                    rest: bytes,
                    pin: part.take_pin(),
                });
                return Poll::Ready(Some(Ok(Frame::Data(large.next()))));
            }
            return Poll::Ready(Some(Ok(Frame::Data(bytes))));
        }
    }

    fn notify_slow_reader(&mut self) {
        let large = self.large.as_ref().and_then(|large| large.pin.as_ref());
        if self.pin.is_over()
            || large.is_some_and(PinGuard::is_over)
            || fragments_of(&self.parts).any(PendingFragment::is_over_limit)
        {
            // Others need the memory that it holds.
            self.parts.clear();
            (self.large, self.shell, self.is_cut_off) = (None, None, true);
            return;
        }
        if let Some(shell) = &mut self.shell {
            shell.notify_slow_reader();
        }
    }

    fn has_descriptor(&self) -> bool {
        true
    }
}
