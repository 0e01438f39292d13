//! Requests that go to the origin: both directions at once, with back-pressure.

use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;
use microcache_engine::Body;
use tokio::io::AsyncReadExt;

use super::client::{ClientWriter, ResponseProgress};
use super::endless::{Endless, MAX_AHEAD};
use super::head::BodyEnding;
use super::pending::PendingRequest;
use super::presence::ClientPresence;
use super::request_body::RequestBodyReader;
use super::state::Connection;
use super::transport::ReadHalf;
use crate::session::AdmittedResponse;

/// Outcome of an exchange.
pub(super) enum ExchangeOutcome {
    /// The response is complete, or the client has left. `true`: the connection can be reused.
    Whole(bool),
    /// The response has no end. `true`: the connection can be reused if it ends after all.
    SoFar(Box<Endless>, bool),
}

const OVER: ExchangeOutcome = ExchangeOutcome::Whole(false);

impl Connection {
    /// Sends the request to the origin and the response to the client.
    pub(super) async fn exchange(&mut self, mut pending: Box<PendingRequest>) -> ExchangeOutcome {
        let announced = pending.announced();
        let (mut answering, content) = self.session.ask(
            pending.unanswered,
            pending.response_framing.version(),
            announced,
        );
        let pump = content.map(|content| RequestBodyReader::new(pending.framing, content));
        let pump = pump.map(Box::new);
        let body_complete = AtomicBool::new(pump.is_none());
        let watch = ClientPresence::default();
        let shared = &self.session.shared;
        let timeouts = shared.timeouts;
        let (tunnel, answered) = {
            let Ok((reader, writer)) = self.stream.split() else {
                return OVER;
            };
            let mut client = ClientWriter::new(
                writer,
                pending.response_framing,
                timeouts.write,
                &watch,
                self.session.strict(),
            );
            if client.send(&mut pending.unsent).await.is_err() {
                return OVER;
            }
            let reading = ReadSide {
                reader,
                watch: &watch,
                time_limit: timeouts.half_closed,
            };
            let mut reading = pin!(reading.run(&mut self.input, pump, &body_complete));
            let waited = until_gone(&mut reading, pin!(client.wait_for(&mut answering))).await;
            drop(answering);
            let Some(Ok(mut answered)) = waited else {
                return OVER;
            };
            let response = &mut answered.response;
            if answered.is_endless {
                self.activity.mark_endless();
                if response.tunnel.is_none() && watch.mark_endless() {
                    return OVER;
                }
            }
            let tunnel = response.tunnel.take();
            // A body that the origin did not read to its end leaves the connection in the middle of a message.
            let unread = !body_complete.load(Ordering::Relaxed);
            client.response_framing.keep_alive &= !shared.is_leaving();
            client.response_framing.keep_alive &=
                !unread || matches!(response.body, Body::Stream(_));
            let keep_alive = client.response_framing.keep_alive;
            let goes_on = answered.is_endless && tunnel.is_none() && !unread;
            let sent = {
                let (account, at) = (&mut answered.account, answered.at);
                let sending = pin!(client.respond(response, goes_on, account, at));
                until_gone(&mut reading, sending).await
            };
            match sent {
                Some(Ok(ResponseProgress::Open)) => {}
                Some(Ok(ResponseProgress::Close)) if tunnel.is_some() => {}
                Some(Ok(ResponseProgress::SoFar(body, ending))) => {
                    let go_on = keep_alive && ending != BodyEnding::Close;
                    let rest =
                        Endless::body((body, ending), answered.account, answered.held, shared);
                    return ExchangeOutcome::SoFar(rest, go_on);
                }
                _ => return OVER,
            }
            (tunnel, answered)
        };
        if let Some(tunnel) = tunnel {
            // A tunnel is part of the request.
            let AdmittedResponse {
                mut account, held, ..
            } = *answered;
            if !tunnel.has_descriptor {
                let rest = Endless::socket(*tunnel, account, held, &self.session.shared);
                return ExchangeOutcome::SoFar(rest, false);
            }
            Box::pin(self.tunnel(*tunnel, &mut account)).await;
            return OVER;
        }
        ExchangeOutcome::Whole(body_complete.load(Ordering::Relaxed))
    }
}

/// Reading half of the connection during an exchange.
pub(super) struct ReadSide<'a> {
    pub(super) reader: ReadHalf<'a>,
    pub(super) watch: &'a ClientPresence,
    /// Timeout of a client that sends nothing more.
    pub(super) time_limit: Duration,
}

impl ReadSide<'_> {
    /// Reads the request body, then waits for the client to leave. Resolves when it has left.
    pub(super) async fn run(
        mut self,
        input: &mut BytesMut,
        pump: Option<Box<RequestBodyReader>>,
        complete: &AtomicBool,
    ) {
        // Boxed, as all that few requests need: it must not enlarge the future of each of them.
        if let Some(pump) = pump {
            Box::pin(pump.run(&mut self.reader, input, complete)).await;
            if !complete.load(Ordering::Relaxed) {
                // The rest of the body cannot be distinguished from a next request.
                return pending().await;
            }
        }
        while input.len() < MAX_AHEAD {
            match self.reader.read_buf(input).await {
                Ok(0) => {
                    let half_closed = self.watch.half_closed(&self.reader, self.time_limit);
                    return Box::pin(half_closed).await;
                }
                Err(_) => return,
                Ok(_) => {}
            }
        }
        pending::<()>().await;
    }
}

/// Returns the future's result; `None` if the client left first.
async fn until_gone<T>(
    gone: &mut Pin<&mut impl Future<Output = ()>>,
    mut work: Pin<&mut impl Future<Output = T>>,
) -> Option<T> {
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => gone.as_mut().poll(cx).map(|()| None),
    })
    .await
}
