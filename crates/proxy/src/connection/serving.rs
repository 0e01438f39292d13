//! Future of a connection: requests, and responses without an end between them.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use super::endless::Endless;
use super::state::{Connection, SentEndless};

/// A response without an end whose head is sent.
pub(super) struct StartedEndless {
    pub(super) rest: Box<Endless>,
    pub(super) sent: SentEndless,
}

pin_project! {
    /// Future of a connection. What an endless response needs comes first, in the cache line of the task's header: the
    /// states of nested futures are in three others.
    #[repr(C)]
    pub(super) struct Serving<Resume, Requests> {
        // The response that is being sent.
        endless: Option<Box<Endless>>,
        #[pin]
        state: ServingState<Requests>,
        resume: Resume,
    }
}

pin_project! {
    #[project = StateProjection]
    #[project_replace = OwnedState]
    enum ServingState<Requests> {
        Requests { #[pin] requests: Requests },
        // An endless response is being sent.
        Endless { connection: Connection, sent: SentEndless },
        Over,
    }
}

impl<Resume, Requests> Serving<Resume, Requests>
where
    Resume: Fn(Connection, Option<SentEndless>) -> Requests,
    Requests: Future<Output = (Connection, Option<StartedEndless>)>,
{
    /// Serves requests by the futures that `resume` returns.
    pub(super) fn new(connection: Connection, resume: Resume) -> Self {
        Self {
            endless: None,
            state: ServingState::Requests {
                requests: resume(connection, None),
            },
            resume,
        }
    }

    /// Sends the endless response. Returns `false` if nothing is left to serve.
    // Inlined, each of the two would make the other pay for the registers and the stack that both need.
    #[inline(never)]
    fn poll_endless(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        let mut this = self.project();
        let Some(endless) = this.endless else {
            return Poll::Ready(false);
        };
        let is_complete = ready!(endless.poll(cx));
        let state = this.state.as_mut().project_replace(ServingState::Over);
        let (
            Some(mut endless),
            OwnedState::Endless {
                mut connection,
                sent,
            },
        ) = (this.endless.take(), state)
        else {
            return Poll::Ready(false);
        };
        endless.end(&mut connection);
        drop(endless);
        let sent = SentEndless {
            go_on: sent.go_on && is_complete,
            ..sent
        };
        let requests = (this.resume)(connection, Some(sent));
        this.state.set(ServingState::Requests { requests });
        Poll::Ready(true)
    }

    /// Serves requests up to an endless response. Returns `false` if nothing is left to serve.
    #[inline(never)]
    fn poll_requests(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        let mut this = self.project();
        let StateProjection::Requests { requests } = this.state.as_mut().project() else {
            return Poll::Ready(false);
        };
        let (mut connection, started) = ready!(requests.poll(cx));
        let Some(StartedEndless { mut rest, sent }) = started else {
            return Poll::Ready(false);
        };
        rest.begin(&mut connection);
        *this.endless = Some(rest);
        this.state.set(ServingState::Endless { connection, sent });
        Poll::Ready(true)
    }
}

impl<Resume, Requests> Future for Serving<Resume, Requests>
where
    Resume: Fn(Connection, Option<SentEndless>) -> Requests,
    Requests: Future<Output = (Connection, Option<StartedEndless>)>,
{
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let goes_on = match self.endless {
                Some(_) => ready!(self.as_mut().poll_endless(cx)),
                None => ready!(self.as_mut().poll_requests(cx)),
            };
            if !goes_on {
                return Poll::Ready(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use microcache_engine::Body;
    use tokio::io::AsyncReadExt;

    use super::super::head::BodyEnding;
    use super::super::tests::connection;
    use super::*;
    use crate::admission::ResponsePermits;
    use crate::session::RequestAccount;

    // Deep enough to overflow the stack if each stream were served within the one before.
    const STREAMS: usize = 3000;

    async fn serve_streams(
        mut connection: Connection,
        sent: Option<SentEndless>,
    ) -> (Connection, Option<StartedEndless>) {
        if let Some(sent) = sent {
            assert!(sent.go_on && !sent.wanted_upgrade);
            assert!(connection.stream.socket().is_ok());
        }
        if connection.input.len() == STREAMS {
            return (connection, None);
        }
        connection.input.extend_from_slice(b"G");
        let body = Body::Full(Bytes::from_static(b"last"));
        let (account, held) = (RequestAccount::default(), ResponsePermits::default());
        let shared = &connection.session.shared;
        let rest = Endless::body((body, BodyEnding::Chunked), account, held, shared);
        let sent = SentEndless {
            go_on: true,
            wanted_upgrade: false,
        };
        (connection, Some(StartedEndless { rest, sent }))
    }

    #[tokio::test]
    async fn a_connection_goes_on_with_its_socket_and_input_after_each_stream_that_ends() {
        let (connection, mut client) = connection().await;
        let mut received = String::new();
        let ((), read) = tokio::join!(
            Serving::new(connection, serve_streams),
            client.read_to_string(&mut received)
        );
        read.expect("a close");
        assert_eq!(received, "4\r\nlast\r\n0\r\n\r\n".repeat(STREAMS));
    }
}
