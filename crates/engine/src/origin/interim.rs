//! 1xx responses, on their way from the origin to the client.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use microcache_policy::FieldsBuf;
use microcache_policy::fields::split_list;

use crate::sync::Mutex;

/// A 1xx response.
#[derive(Debug)]
pub struct Interim {
    /// 102, 103 and the like; never 101.
    pub status: u16,
    /// Its fields.
    pub fields: FieldsBuf,
}

/// The 1xx responses to one request. Every request has one and few use it, so it is small; a
/// channel would take a kilobyte.
#[derive(Clone, Debug, Default)]
pub struct Interims {
    queue: Arc<Mutex<InterimQueue>>,
}

#[derive(Debug, Default)]
struct InterimQueue {
    waiting: Vec<Interim>,
    /// The links that were sent before the origin answered.
    hinted: Option<Box<FieldsBuf>>,
    waker: Option<Waker>,
}

impl Interims {
    /// The most responses waiting for a slow client. A late early hint is worthless, so further
    /// ones are dropped.
    const MAX_WAITING: usize = 8;

    /// Queues links that are known before the origin answers, as a 103. The origin's own come without them.
    pub fn hint(&self, links: FieldsBuf) {
        self.push(Interim {
            status: 103,
            fields: links.clone(),
        });
        self.queue.lock().hinted = Some(Box::new(links));
    }

    /// Queues a response for the client.
    pub fn push(&self, mut interim: Interim) {
        let mut queue = self.queue.lock();
        if let Some(hinted) = &queue.hinted
            && interim.status == 103
        {
            let is_known = |link: &[u8]| hinted.fields().all("link").any(|one| one == link);
            let fields = &mut interim.fields;
            fields.retain(|name, value| {
                !name.eq_ignore_ascii_case(b"link") || !split_list(value).all(is_known)
            });
            if !fields.fields().contains("link") {
                return;
            }
        }
        if queue.waiting.len() < Self::MAX_WAITING {
            queue.waiting.push(interim);
        }
        let waker = queue.waker.take();
        drop(queue);
        waker.into_iter().for_each(Waker::wake);
    }

    /// The next response, if it has already arrived.
    pub fn take(&self) -> Option<Interim> {
        let mut queue = self.queue.lock();
        (!queue.waiting.is_empty()).then(|| queue.waiting.remove(0))
    }

    /// The next one.
    pub fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Interim> {
        let mut queue = self.queue.lock();
        if queue.waiting.is_empty() {
            queue.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(queue.waiting.remove(0))
    }
}
