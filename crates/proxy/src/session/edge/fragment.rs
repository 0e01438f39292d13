//! A fragment, and the request for it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use microcache_engine::{Body, Response};
use microcache_policy::edge::{ComposedLifetime, Include};
use microcache_policy::known_name::names;
use microcache_policy::{FieldBlock, Fields};
use microcache_store::Hit;
use tokio::task::JoinHandle;

use super::super::header_rules::is_shared;
use crate::admission::PinGuard;

/// The content in the place of a tag.
pub(super) struct Fragment {
    body: Bytes,
    /// `None` where it failed, and other text stands in.
    head: Option<FragmentHead>,
    /// Its bytes, unless they are in memory anyway.
    pin: Option<PinGuard>,
}

/// The head of its response.
struct FragmentHead {
    /// The stored response with the fields, unless they are its own.
    stored: Option<Hit>,
    fields: Option<FieldBlock>,
    lifetime: ComposedLifetime,
}

impl Fragment {
    /// Creates a fragment from a response and its whole body. `is_for_one`: its key may be that of one visitor.
    pub(super) fn of(response: Response, body: Bytes, is_for_one: bool) -> Self {
        let age = response.age.unwrap_or_default();
        let is_shared = is_shared(&response) && !is_for_one;
        let lifetime = ComposedLifetime::of(response.fields(), age, is_shared);
        let head = FragmentHead {
            lifetime,
            fields: response.fields,
            stored: match response.body {
                Body::Stored(hit) => Some(hit),
                _ => None,
            },
        };
        Self {
            body,
            head: Some(head),
            pin: None,
        }
    }

    /// Sets the account of its bytes.
    pub(super) fn pinned_by(self, pin: PinGuard) -> Self {
        Self {
            pin: Some(pin),
            ..self
        }
    }

    pub(super) const fn fallback(body: Bytes) -> Self {
        Self {
            body,
            head: None,
            pin: None,
        }
    }

    pub(super) const fn body(&self) -> &Bytes {
        &self.body
    }

    pub(super) const fn has_failed(&self) -> bool {
        self.head.is_none()
    }

    /// Returns the fields of its response.
    pub(super) fn fields(&self) -> Fields<'_> {
        match &self.head {
            Some(FragmentHead {
                fields: Some(fields),
                ..
            }) => fields.fields(),
            Some(FragmentHead {
                stored: Some(hit), ..
            }) => hit.fields(),
            _ => Fields::default(),
        }
    }

    /// Returns its lifetime. A page with a part that failed is not to be kept.
    pub(super) fn lifetime(&self) -> ComposedLifetime {
        let head = self.head.as_ref();
        head.map_or(ComposedLifetime::UNKNOWN, |head| head.lifetime)
    }

    /// Iterates over the cookies that it sets.
    pub(super) fn cookies(&self) -> impl Iterator<Item = &[u8]> {
        self.fields().values(names::SET_COOKIE)
    }
}

/// A fragment that has been asked for.
pub(super) struct PendingFragment {
    is_waited_for: bool,
    may_fail: bool,
    state: FragmentState,
}

enum FragmentState {
    Asked(FragmentTask),
    Ready(Fragment),
}

impl PendingFragment {
    pub(super) fn ready(include: &Include, fragment: Fragment) -> Self {
        Self::new(include, FragmentState::Ready(fragment))
    }

    pub(super) fn asked(include: &Include, task: FragmentTask) -> Self {
        Self::new(include, FragmentState::Asked(task))
    }

    fn new(include: &Include, state: FragmentState) -> Self {
        Self {
            is_waited_for: include.is_waited_for(),
            may_fail: include.may_fail(),
            state,
        }
    }

    /// Returns true if it is needed before the head of the page.
    pub(super) const fn is_waited_for(&self) -> bool {
        self.is_waited_for
    }

    /// Takes the account of its bytes.
    pub(super) fn take_pin(&mut self) -> Option<PinGuard> {
        match &mut self.state {
            FragmentState::Ready(fragment) => fragment.pin.take(),
            FragmentState::Asked(_) => None,
        }
    }

    /// Returns true if its bytes have an account of their own.
    pub(super) fn is_pinned(&self) -> bool {
        self.fragment()
            .is_some_and(|fragment| fragment.pin.is_some())
    }

    /// Returns true if its bytes are held although the limit for all clients is exceeded.
    pub(super) fn is_over_limit(&self) -> bool {
        let pin = self.fragment().and_then(|fragment| fragment.pin.as_ref());
        pin.is_some_and(PinGuard::is_over)
    }

    /// Returns the length of the fragment, if it is there.
    pub(super) fn length(&self) -> usize {
        self.fragment().map_or(0, |fragment| fragment.body.len())
    }

    /// Returns the fragment, if it is there.
    pub(super) const fn fragment(&self) -> Option<&Fragment> {
        match &self.state {
            FragmentState::Ready(fragment) => Some(fragment),
            FragmentState::Asked(_) => None,
        }
    }

    /// Returns true if the page is incomplete without it, and it has failed.
    pub(super) fn is_missing(&self) -> bool {
        !self.may_fail && self.fragment().is_some_and(Fragment::has_failed)
    }

    /// Polls for the fragment.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let FragmentState::Asked(task) = &mut self.state {
            self.state = FragmentState::Ready(ready!(task.poll(cx)));
        }
        Poll::Ready(())
    }
}

/// The request for a fragment. It goes on while the visitor reads what is before it, and ends with the visitor's.
pub(super) struct FragmentTask(JoinHandle<Fragment>);

impl FragmentTask {
    pub(super) fn spawn(fragment: impl Future<Output = Fragment> + Send + 'static) -> Self {
        Self(tokio::spawn(fragment))
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Fragment> {
        let fragment = ready!(Pin::new(&mut self.0).poll(cx));
        // A panic affects its own fragment only.
        Poll::Ready(fragment.unwrap_or_else(|_| Fragment::fallback(Bytes::new())))
    }
}

impl Drop for FragmentTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}
