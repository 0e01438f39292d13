//! A page whose body is still arriving.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use microcache_engine::{Body, BodyError, Frame};
use microcache_policy::edge::{Cut, Cutter, Include, MOST_FRAGMENTS};

use super::page_request::PageRequest;
use super::part::PagePart;

/// The bytes of a page that are held while its fragments are not asked for.
const MOST_HELD: usize = 1 << 20;

/// A page that is divided as it arrives.
///
/// Text before its first tag goes out at once. From there on it is read to its end before a fragment is asked for: a
/// fragment would otherwise wait in the origin's queue for the place that the page itself occupies. A page with more than
/// [`MOST_HELD`] behind a tag does not wait any longer.
pub(super) struct ArrivingShell {
    body: Body,
    input: Bytes,
    cutter: Cutter,
    held: VecDeque<HeldPart>,
    held_bytes: usize,
    holes: usize,
    is_over: bool,
}

enum HeldPart {
    Text(Bytes),
    Hole(Box<Include>),
}

impl ArrivingShell {
    pub(super) fn new(body: Body) -> Self {
        Self {
            body,
            input: Bytes::new(),
            cutter: Cutter::default(),
            held: VecDeque::new(),
            held_bytes: 0,
            holes: 0,
            is_over: false,
        }
    }

    /// Appends the next parts. Returns true after the last one.
    pub(super) fn poll_parts(
        &mut self,
        cx: &mut Context<'_>,
        request: &Arc<PageRequest>,
        out: &mut VecDeque<PagePart>,
    ) -> Poll<Result<bool, BodyError>> {
        loop {
            self.cut(request);
            let before = out.len();
            self.release(request, out);
            if self.is_over || out.len() > before {
                return Poll::Ready(Ok(self.is_over));
            }
            match ready!(self.body.poll_frame(cx)) {
                Some(Ok(Frame::Data(data))) => self.append(data),
                Some(Ok(Frame::Trailers(_))) | None => {
                    self.is_over = true;
                    // Gives its place in the origin's queue back.
                    self.body = Body::Empty;
                }
                Some(Err(error)) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Tells the source of the body that it is read slowly.
    pub(super) fn notify_slow_reader(&mut self) {
        self.body.notify_slow_reader();
    }

    fn append(&mut self, data: Bytes) {
        if self.input.is_empty() {
            self.input = data;
        } else {
            // The beginning of a tag, which is short.
            let mut joined = BytesMut::with_capacity(self.input.len() + data.len());
            joined.extend_from_slice(&self.input);
            joined.extend_from_slice(&data);
            self.input = joined.freeze();
        }
    }

    /// Divides the bytes that are there.
    fn cut(&mut self, request: &PageRequest) {
        while !self.input.is_empty() {
            match self.cutter.next(&self.input, self.is_over) {
                Cut::Text(length) => {
                    let text = self.input.split_to(length);
                    self.held_bytes += text.len();
                    self.held.push_back(HeldPart::Text(text));
                }
                Cut::Omitted {
                    length,
                    is_malformed,
                } => {
                    drop(self.input.split_to(length));
                    request.count_left_out(usize::from(is_malformed));
                }
                Cut::Include { length, include } => {
                    drop(self.input.split_to(length));
                    if self.holes < MOST_FRAGMENTS {
                        self.holes += 1;
                        self.held.push_back(HeldPart::Hole(include));
                    } else {
                        request.count_left_out(1);
                    }
                }
                Cut::Incomplete => break,
            }
        }
    }

    /// Moves parts whose turn has come.
    fn release(&mut self, request: &Arc<PageRequest>, out: &mut VecDeque<PagePart>) {
        let all = self.is_over || self.held_bytes >= MOST_HELD;
        while let Some(part) = self.held.pop_front() {
            match part {
                HeldPart::Text(text) => {
                    self.held_bytes -= text.len();
                    out.push_back(PagePart::Text(text));
                }
                HeldPart::Hole(include) if all => {
                    out.push_back(PagePart::Fragment(request.begin(&include)));
                }
                hole @ HeldPart::Hole(_) => {
                    self.held.push_front(hole);
                    break;
                }
            }
        }
    }
}
