//! The body of a changed page.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use microcache_engine::{Body, BodyError, Frame, Source};
use microcache_policy::FieldsBuf;
use parking_lot::Mutex;

use super::editor::PageEditor;
use super::report::UnchangedReport;

/// A page that is changed while it is read.
pub(super) struct EditedBody {
    page: Body,
    /// Locked by its owner only.
    editor: Mutex<PageEditor>,
    end: PageEnd,
    report: Option<Arc<UnchangedReport>>,
}

/// The part of the page that follows its last byte.
enum PageEnd {
    NotReached,
    Trailers(FieldsBuf),
    Passed,
}

impl EditedBody {
    pub(super) fn new(page: Body, editor: PageEditor, report: Arc<UnchangedReport>) -> Self {
        Self {
            page,
            editor: Mutex::new(editor),
            end: PageEnd::NotReached,
            report: Some(report),
        }
    }

    /// Reports once that a part of the page is unchanged.
    fn note_unchanged(&mut self) {
        if self.editor.get_mut().has_given_up()
            && let Some(report) = self.report.take()
        {
            report.note("it has too large a tag, too large a script or too many nested elements");
        }
    }
}

impl Source for EditedBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        loop {
            match std::mem::replace(&mut self.end, PageEnd::Passed) {
                PageEnd::NotReached => self.end = PageEnd::NotReached,
                PageEnd::Trailers(trailers) => {
                    return Poll::Ready(Some(Ok(Frame::Trailers(trailers))));
                }
                PageEnd::Passed => return Poll::Ready(None),
            }
            let editor = self.editor.get_mut();
            let written = match ready!(self.page.poll_frame(cx)).transpose() {
                Ok(Some(Frame::Data(data))) => editor.write(&data),
                Ok(Some(Frame::Trailers(trailers))) => {
                    self.end = PageEnd::Trailers(trailers);
                    editor.end()
                }
                Ok(None) => {
                    self.end = PageEnd::Passed;
                    editor.end()
                }
                Err(error) => return Poll::Ready(Some(Err(error))),
            };
            self.note_unchanged();
            if !written.is_empty() {
                return Poll::Ready(Some(Ok(Frame::Data(Bytes::from(written)))));
            }
        }
    }

    fn is_drained(&self) -> bool {
        matches!(self.end, PageEnd::NotReached) && self.page.is_drained()
    }

    fn notify_slow_reader(&mut self) {
        self.page.notify_slow_reader();
    }

    fn forbids_storing(&self) -> bool {
        self.report.is_none()
    }
}
