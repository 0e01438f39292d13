//! A request that the origin has to be asked about: both directions at once, with back-pressure.

use std::future::{Future, pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use microcache_engine::{
    Body, BodyError, BoxFuture, Clock, Frame, Interim, Interims, Question, Response,
};
use microcache_policy::{Detail, Time};
use tokio::io::AsyncReadExt;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::file;
use super::head::{Asked, Ending, ending, is_bodiless, own_page, whole, write_head, write_interim};
use super::patience::Allowance;
use super::pending::Pending;
use super::request_body::{Expectation, Pump, request_body};
use super::send::Output;
use super::watch::Watch;
use super::{COPY, Connection};
use crate::h1::{Framing, encode};
use crate::room::{Held, Need, TooMany};

/// Room for what a response head has beside its fields.
const HEAD_ROOM: usize = 256;
/// Small pieces of a body are collected up to this size before they are written.
const PART: usize = 32 * 1024;
/// A client that has taken nothing for so long holds its body up.
const HELD_UP: Duration = Duration::from_secs(2);
/// What a client may send ahead while it waits for an answer.
const MAX_AHEAD: usize = 64 * 1024;

impl Connection {
    /// Asks the origin and answers the client. Says whether the connection can go on.
    pub(super) async fn exchange(&mut self, question: Question, pending: Pending) -> bool {
        let timeouts = self.shared.timeouts;
        let allowance = Allowance::new(timeouts.body, timeouts.body_rate);
        let engine = Arc::clone(&self.shared.engine);
        let rules = &engine.rules(question.route()).request;
        let (body, pump, expectation) =
            request_body(pending.framing, pending.expects_continue, allowance, rules);
        let length = match pending.framing {
            Framing::Length(length) => Some(length),
            _ => None,
        };
        let interims = Interims::default();
        let mut incoming = self.incoming(pending.head, rules, body, length, Some(interims.clone()));
        incoming.client = Some(Arc::clone(self.client.get_or_insert_default()));
        let answer = Caught {
            answer: Box::pin(Arc::clone(&engine).ask(question, incoming)),
            clock: engine.clock,
        };
        let body_complete = AtomicBool::new(pump.is_none());
        let watch = Watch::default();
        let (tunnel, _held) = {
            let (reader, writer) = self.stream.split();
            let mut client = Client::new(writer, pending.asked, timeouts.write, &watch);
            if client.send(pending.unsent).await.is_err() {
                return false;
            }
            let reading = ReadSide {
                reader,
                watch: &watch,
                patience: timeouts.half_closed,
            };
            let mut reading = pin!(reading.run(&mut self.input, pump, &body_complete));

            let waited = {
                let answer = pin!(client.wait_for(answer, &interims, expectation));
                until_gone(&mut reading, answer).await
            };
            let Some(Ok(mut response)) = waited else {
                return false;
            };
            let need = Need::of(&response);
            if need == Need::Tunnel {
                self.activity.has_no_end();
                if response.tunnel.is_none() && watch.has_no_end() {
                    return false;
                }
            }
            let now = engine.clock.now();
            let held = self.shared.room.hold(need, now).await;
            let held = held.unwrap_or_else(|TooMany| {
                response = too_many_tunnels(now);
                Held::default()
            });
            engine.counters.count(response.outcome);
            let tunnel = response.tunnel.take();
            // A body that the origin did not want to the end leaves the connection in its middle.
            let unread = !body_complete.load(Ordering::Relaxed);
            client.asked.keep_alive &= !self.shared.is_draining();
            client.asked.keep_alive &= !unread || matches!(response.body, Body::Stream(_));
            let sending = pin!(client.respond(response, engine.clock.now()));
            match until_gone(&mut reading, sending).await {
                Some(Ok(Ended::Open)) => {}
                Some(Ok(Ended::Close)) if tunnel.is_some() => {}
                _ => return false,
            }
            (tunnel, held)
        };
        if let Some(tunnel) = tunnel {
            self.tunnel(*tunnel).await;
            return false;
        }
        body_complete.load(Ordering::Relaxed)
    }
}

/// Whether another request may follow an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Open,
    Close,
}

impl Ended {
    pub(super) fn is_open(self) -> bool {
        self == Self::Open
    }
}

/// The writing half of the connection, and how the client wants its answer.
pub(super) struct Client<'a> {
    writer: WriteHalf<'a>,
    asked: Asked,
    stall: Duration,
    watch: &'a Watch,
}

impl<'a> Client<'a> {
    pub(super) const fn new(
        writer: WriteHalf<'a>,
        asked: Asked,
        stall: Duration,
        watch: &'a Watch,
    ) -> Self {
        Self {
            writer,
            asked,
            stall,
            watch,
        }
    }

    pub(super) async fn send(&mut self, output: Output) -> std::io::Result<()> {
        let _sending = self.watch.sending();
        output.send(&mut self.writer, self.stall).await
    }

    /// Waits for the final answer; passes 1xx on, and the permission to send the body.
    async fn wait_for(
        &mut self,
        mut answer: Caught,
        interims: &Interims,
        mut expectation: Option<Expectation>,
    ) -> std::io::Result<Response> {
        let response = loop {
            match poll_fn(|cx| poll_event(cx, &mut answer, interims, &mut expectation)).await {
                Event::Answer(response) => break *response,
                Event::Interim(interim) => self.pass_interim(&interim).await?,
                Event::BodyWanted(go) => {
                    let proceed = Bytes::from_static(b"HTTP/1.1 100 Continue\r\n\r\n");
                    self.send(Output::bytes(proceed)).await?;
                    // The pump is gone only if the whole exchange is.
                    let _ = go.send(());
                }
            }
        };
        // One that arrived together with the answer still comes first.
        while let Some(interim) = interims.take() {
            self.pass_interim(&interim).await?;
        }
        Ok(response)
    }

    async fn pass_interim(&mut self, interim: &Interim) -> std::io::Result<()> {
        // HTTP/1.0 knows no interim responses.
        if self.asked.http10 {
            return Ok(());
        }
        let mut out = Vec::new();
        write_interim(&mut out, interim);
        self.send(Output::bytes(out.into())).await
    }

    /// Writes head and body.
    pub(super) async fn respond(
        &mut self,
        response: Response,
        now: Time,
    ) -> std::io::Result<Ended> {
        let ending = ending(&response, self.asked);
        let mut ended = is_bodiless(&response, self.asked);
        let small = match &response.body {
            Body::Full(whole) if whole.len() <= COPY && !ended => whole.clone(),
            _ => Bytes::new(),
        };
        let room = response.fields().as_block().len() + HEAD_ROOM + small.len();
        let mut head = Vec::with_capacity(room);
        write_head(&mut head, &response, self.asked, ending);
        head.extend_from_slice(&small);
        ended |= !small.is_empty();
        let mut body = response.body;
        let mut output = Output::bytes(head.into());
        let mut nothing_sent = true;
        while !ended {
            if let Body::File(file) = &mut body
                && ending == Ending::Counted
            {
                let _sending = self.watch.sending();
                file::send(self.writer.as_ref(), &mut output, file, self.stall).await?;
                self.send(std::mem::take(&mut output)).await?;
                nothing_sent = false;
            }
            // The head waits for the first piece of the body only if that is there already.
            let frame = match poll_once(&mut body).await {
                Poll::Ready(frame) => frame,
                Poll::Pending => {
                    nothing_sent = false;
                    self.send(std::mem::take(&mut output)).await?;
                    body.frame().await
                }
            };
            ended = match push_frame(&mut output, frame, ending) {
                Ok(more) => !more,
                Err(_) if nothing_sent => return self.broke_off(now).await,
                Err(error) => return Err(error),
            };
            if output.len() >= PART {
                nothing_sent = false;
                self.send_of(&mut body, std::mem::take(&mut output)).await?;
            }
        }
        self.send(output).await?;
        Ok(if self.asked.keep_alive && ending != Ending::Close {
            Ended::Open
        } else {
            Ended::Close
        })
    }

    /// Sends a part of a body. Its source is told of a client that takes its time.
    async fn send_of(&mut self, body: &mut Body, output: Output) -> std::io::Result<()> {
        let mut sending = pin!(self.send(output));
        if let Ok(sent) = timeout(HELD_UP, &mut sending).await {
            return sent;
        }
        body.is_held_up();
        sending.await
    }

    /// The answer of the origin turned out to be broken before any of it was sent on.
    async fn broke_off(&mut self, now: Time) -> std::io::Result<Ended> {
        let text = "The application did not give a proper answer.";
        let page = own_page(502, text, Detail::OriginMalformed, now);
        self.asked.keep_alive = false;
        self.send(Output::bytes(whole(&page, self.asked))).await?;
        Ok(Ended::Close)
    }
}

/// Adds a frame to what is to be sent. Says whether more may follow.
fn push_frame(
    output: &mut Output,
    frame: Option<Result<Frame, BodyError>>,
    ending: Ending,
) -> std::io::Result<bool> {
    match frame {
        // The client learns of it by the connection's end: no last chunk, or too few bytes.
        Some(Err(error)) => Err(std::io::Error::other(error)),
        Some(Ok(Frame::Data(data))) => {
            if ending == Ending::Chunked {
                let mut size = Vec::with_capacity(12);
                encode::chunk_size(&mut size, data.len());
                output.push(size.into());
                output.push(data);
                output.push(Bytes::from_static(encode::CHUNK_END));
            } else {
                output.push(data);
            }
            Ok(true)
        }
        Some(Ok(Frame::Trailers(fields))) => {
            if ending == Ending::Chunked {
                let mut last = Vec::new();
                encode::trailers(&mut last, fields.fields());
                output.push(last.into());
            }
            Ok(false)
        }
        None => {
            if ending == Ending::Chunked {
                output.push(Bytes::from_static(encode::BODY_END));
            }
            Ok(false)
        }
    }
}

async fn poll_once(body: &mut Body) -> Poll<Option<Result<Frame, BodyError>>> {
    poll_fn(|cx| Poll::Ready(body.poll_frame(cx))).await
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
        if let Some(mut pump) = pump {
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

/// What may happen while a client waits for its answer.
enum Event {
    Interim(Interim),
    BodyWanted(oneshot::Sender<()>),
    Answer(Box<Response>),
}

fn poll_event(
    cx: &mut Context<'_>,
    answer: &mut Caught,
    interims: &Interims,
    expectation: &mut Option<Expectation>,
) -> Poll<Event> {
    if let Poll::Ready(interim) = interims.poll_next(cx) {
        return Poll::Ready(Event::Interim(interim));
    }
    if let Some(Expectation { wanted, .. }) = expectation
        && let Poll::Ready(wanted) = Pin::new(wanted).poll(cx)
        && let Some(Expectation { go, .. }) = expectation.take()
        && wanted.is_ok()
    {
        return Poll::Ready(Event::BodyWanted(go));
    }
    let answer = Pin::new(answer).poll(cx);
    answer.map(|response| Event::Answer(Box::new(response)))
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

/// The engine's answer. A panic in one request is that request's alone.
struct Caught {
    answer: BoxFuture<'static, Response>,
    clock: Clock,
}

impl Future for Caught {
    type Output = Response;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        catch_unwind(AssertUnwindSafe(|| self.answer.as_mut().poll(cx)))
            .unwrap_or_else(|_| Poll::Ready(panicked(self.clock.now())))
    }
}

/// The answer instead of a tunnel or an event stream for which there is no room.
fn too_many_tunnels(now: Time) -> Response {
    let text = "There are too many open streams. Please try again.";
    own_page(503, text, Detail::TooManyTunnels, now)
}

/// The answer to a request that ran into a fault of ours. The panic itself is in the log.
pub(super) fn panicked(now: Time) -> Response {
    let text = "This request failed. The others go on.";
    own_page(500, text, Detail::InternalError, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_one_requests_500() {
        let clock = Clock::start();
        let answer: BoxFuture<'static, Response> =
            Box::pin(async { panic!("this panic is part of a test") });
        let response = Caught { answer, clock }.await;
        assert_eq!(response.status, 500);
        assert!(response.fields().contains("date"));
    }
}
