//! The body of a page that is sent while its fragments arrive.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use microcache_engine::{BodyError, Frame, GzipPage, Source};

use super::arriving_shell::ArrivingShell;
use super::page_request::PageRequest;
use super::part::PagePart;

/// The parts of a page, in their order. Dropping it cancels the requests for its fragments.
pub(super) struct Composition {
    request: Arc<PageRequest>,
    parts: VecDeque<PagePart>,
    /// The rest of the page.
    shell: Option<ArrivingShell>,
    gzip: Option<GzipPage>,
}

impl Composition {
    pub(super) const fn new(
        request: Arc<PageRequest>,
        parts: VecDeque<PagePart>,
        shell: Option<ArrivingShell>,
        gzip: Option<GzipPage>,
    ) -> Self {
        Self {
            request,
            parts,
            shell,
            gzip,
        }
    }
}

impl Source for Composition {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
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
            let Some(part) = self.parts.pop_front() else {
                continue;
            };
            let bytes = part.sent(self.gzip.as_mut());
            if !bytes.is_empty() {
                return Poll::Ready(Some(Ok(Frame::Data(bytes))));
            }
        }
    }

    fn notify_slow_reader(&mut self) {
        if let Some(shell) = &mut self.shell {
            shell.notify_slow_reader();
        }
    }

    fn has_descriptor(&self) -> bool {
        true
    }
}
