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
    Requests: Future<Output = Option<(Connection, StartedEndless)>>,
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
}

impl<Resume, Requests> Future for Serving<Resume, Requests>
where
    Resume: Fn(Connection, Option<SentEndless>) -> Requests,
    Requests: Future<Output = Option<(Connection, StartedEndless)>>,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        loop {
            if let Some(endless) = this.endless {
                let is_complete = ready!(endless.poll(cx));
                let state = this.state.as_mut().project_replace(ServingState::Over);
                if let (
                    Some(mut endless),
                    OwnedState::Endless {
                        mut connection,
                        sent,
                    },
                ) = (this.endless.take(), state)
                {
                    endless.end(&mut connection);
                    let sent = SentEndless {
                        go_on: sent.go_on && is_complete,
                        ..sent
                    };
                    drop(endless);
                    let requests = (this.resume)(connection, Some(sent));
                    this.state.set(ServingState::Requests { requests });
                }
            }
            let StateProjection::Requests { requests } = this.state.as_mut().project() else {
                return Poll::Ready(());
            };
            let Some((mut connection, started)) = ready!(requests.poll(cx)) else {
                return Poll::Ready(());
            };
            let StartedEndless { mut rest, sent } = started;
            rest.begin(&mut connection);
            *this.endless = Some(rest);
            this.state.set(ServingState::Endless { connection, sent });
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

    async fn serve_one_stream(
        mut connection: Connection,
        sent: Option<SentEndless>,
    ) -> Option<(Connection, StartedEndless)> {
        if let Some(sent) = sent {
            assert!(sent.go_on && !sent.wanted_upgrade);
            assert_eq!(connection.input, "GET");
            assert!(connection.stream.socket().is_ok());
            return None;
        }
        connection.input.extend_from_slice(b"GET");
        let body = Body::Full(Bytes::from_static(b"last"));
        let (account, held) = (RequestAccount::default(), ResponsePermits::default());
        let shared = &connection.session.shared;
        let rest = Endless::body((body, BodyEnding::Chunked), account, held, shared);
        let sent = SentEndless {
            go_on: true,
            wanted_upgrade: false,
        };
        Some((connection, StartedEndless { rest, sent }))
    }

    #[tokio::test]
    async fn a_connection_goes_on_with_its_socket_and_input_after_a_stream_that_ends() {
        let (connection, mut client) = connection().await;
        Serving::new(connection, serve_one_stream).await;
        let mut received = String::new();
        client.read_to_string(&mut received).await.expect("a close");
        assert_eq!(received, "4\r\nlast\r\n0\r\n\r\n");
    }
}
