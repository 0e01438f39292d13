//! A request that the origin has to be asked about: both directions at once, with back-pressure.

use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;
use microcache_engine::Body;
use tokio::io::AsyncReadExt;

use super::Connection;
use super::client::{Client, Sent};
use super::endless::{Endless, MAX_AHEAD};
use super::head::Ending;
use super::pending::Pending;
use super::request_body::Pump;
use super::transport::ReadHalf;
use super::watch::Watch;

/// What has become of a request.
pub(super) enum Exchanged {
    /// It is answered, or nobody wants that any more. Says whether the connection can go on.
    Whole(bool),
    /// The answer has no end. If it ends after all: says whether the connection can go on.
    SoFar(Box<Endless>, bool),
}

const OVER: Exchanged = Exchanged::Whole(false);

impl Connection {
    /// Asks the origin and answers the client.
    pub(super) async fn exchange(&mut self, pending: Pending) -> Exchanged {
        let announced = pending.announced();
        let (answering, content) =
            self.session
                .ask(pending.unanswered, pending.asked.version(), announced);
        let pump = content.map(|content| Pump::new(pending.framing, content));
        let body_complete = AtomicBool::new(pump.is_none());
        let watch = Watch::default();
        let shared = &self.session.shared;
        let timeouts = shared.timeouts;
        // It outlives what is sent here: a tunnel is a part of the request.
        let mut account;
        let (tunnel, held) = {
            let (reader, writer) = self.stream.split();
            let mut client = Client::new(
                writer,
                pending.asked,
                timeouts.write,
                &watch,
                self.session.strict(),
            );
            if client.send(pending.unsent).await.is_err() {
                return OVER;
            }
            let reading = ReadSide {
                reader,
                watch: &watch,
                patience: timeouts.half_closed,
            };
            let mut reading = pin!(reading.run(&mut self.input, pump, &body_complete));
            let waited = until_gone(&mut reading, pin!(client.wait_for(answering))).await;
            let Some(Ok(answered)) = waited else {
                return OVER;
            };
            let mut response = answered.response;
            account = answered.account;
            if answered.is_endless {
                self.activity.has_no_end();
                if response.tunnel.is_none() && watch.has_no_end() {
                    return OVER;
                }
            }
            let tunnel = response.tunnel.take();
            // A body that the origin did not want to the end leaves the connection in its middle.
            let unread = !body_complete.load(Ordering::Relaxed);
            client.asked.keep_alive &= !shared.is_leaving();
            client.asked.keep_alive &= !unread || matches!(response.body, Body::Stream(_));
            let now = shared.engine.clock.now();
            let keep_alive = client.asked.keep_alive;
            let goes_on = answered.is_endless && tunnel.is_none() && !unread;
            let sent = {
                let sending = pin!(client.respond(response, goes_on, &mut account, now));
                until_gone(&mut reading, sending).await
            };
            match sent {
                Some(Ok(Sent::Open)) => {}
                Some(Ok(Sent::Close)) if tunnel.is_some() => {}
                Some(Ok(Sent::SoFar(body, ending))) => {
                    let go_on = keep_alive && ending != Ending::Close;
                    let rest = Endless::body(body, ending, account, answered.held);
                    return Exchanged::SoFar(Box::new(rest), go_on);
                }
                _ => return OVER,
            }
            (tunnel, answered.held)
        };
        if let Some(tunnel) = tunnel {
            if !tunnel.has_descriptor {
                return Exchanged::SoFar(Box::new(Endless::socket(*tunnel, account, held)), false);
            }
            self.tunnel(*tunnel, &mut account).await;
            return OVER;
        }
        Exchanged::Whole(body_complete.load(Ordering::Relaxed))
    }
}

/// What goes on at the client's end meanwhile.
pub(super) struct ReadSide<'a> {
    pub(super) reader: ReadHalf<'a>,
    pub(super) watch: &'a Watch,
    /// For a client that sends nothing more.
    pub(super) patience: Duration,
}

impl ReadSide<'_> {
    /// Reads the request body, and then waits for the client to leave. Resolves when it has left.
    pub(super) async fn run(
        mut self,
        input: &mut BytesMut,
        pump: Option<Pump>,
        complete: &AtomicBool,
    ) {
        if let Some(pump) = pump {
            pump.run(&mut self.reader, input, complete).await;
            if !complete.load(Ordering::Relaxed) {
                // What is left of the body cannot be told from a next request.
                return pending().await;
            }
        }
        while input.len() < MAX_AHEAD {
            match self.reader.read_buf(input).await {
                Ok(0) => return self.watch.half_closed(&self.reader, self.patience).await,
                Err(_) => return,
                Ok(_) => {}
            }
        }
        pending::<()>().await;
    }
}

/// The future's result, or `None` if the client left before.
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
