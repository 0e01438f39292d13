//! The writing half of a connection while a request is under way.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use microcache_engine::{Body, BodyError, Frame, Interim, Response};
use microcache_policy::Time;
use tokio::time::timeout;

use super::COPY;
use super::file;
use super::head::{Asked, Ending, be_strict, ending, whole, write_head, write_interim};
use super::send::Output;
use super::transport::WriteHalf;
use super::watch::Watch;
use crate::h1::encode;
use crate::session::{Account, Answered, Answering, Event, is_bodiless, pages};

/// Room for what a response head has beside its fields.
const HEAD_ROOM: usize = 256;
/// Small pieces of a body are collected up to this size before they are written.
pub(super) const PART: usize = 32 * 1024;
/// A client that has taken nothing for so long holds its body up.
const HELD_UP: Duration = Duration::from_secs(2);

/// How far an answer was sent.
pub(super) enum Sent {
    /// To its end, and another request may follow.
    Open,
    /// To its end, and none may.
    Close,
    /// Until nothing more of this body was there, which may be so for long.
    SoFar(Body, Ending),
}

/// The writing half of the connection, and how the client wants its answer.
pub(super) struct Client<'a> {
    writer: WriteHalf<'a>,
    pub(super) asked: Asked,
    stall: Duration,
    watch: &'a Watch,
    /// What clients are told who came by TLS.
    strict: Option<&'a str>,
}

impl<'a> Client<'a> {
    pub(super) const fn new(
        writer: WriteHalf<'a>,
        asked: Asked,
        stall: Duration,
        watch: &'a Watch,
        strict: Option<&'a str>,
    ) -> Self {
        Self {
            writer,
            asked,
            stall,
            watch,
            strict,
        }
    }

    pub(super) async fn send(&mut self, output: Output) -> std::io::Result<()> {
        let _sending = self.watch.sending();
        output.send(&mut self.writer, self.stall).await
    }

    /// Waits for the final answer; passes 1xx on, and the permission to send the body.
    pub(super) async fn wait_for(
        &mut self,
        mut answering: Answering,
    ) -> std::io::Result<Box<Answered>> {
        loop {
            match answering.next().await {
                Event::Answer(answered) => return Ok(answered),
                Event::Interim(interim) => self.pass_interim(&interim).await?,
                Event::Continue(go) => {
                    let proceed = Bytes::from_static(b"HTTP/1.1 100 Continue\r\n\r\n");
                    self.send(Output::bytes(proceed)).await?;
                    // Whoever reads the body is gone only if the whole exchange is.
                    let _ = go.send(());
                }
            }
        }
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

    /// Writes head and body; of one that `goes_on`, what is there.
    pub(super) async fn respond(
        &mut self,
        response: Response,
        goes_on: bool,
        account: &mut Account,
        now: Time,
    ) -> std::io::Result<Sent> {
        let ending = ending(&response, self.asked);
        let mut ended = is_bodiless(response.status, self.asked.head_only);
        let small = match &response.body {
            Body::Full(whole) if whole.len() <= COPY && !ended => whole.clone(),
            _ => Bytes::new(),
        };
        let room = response.fields().as_block().len() + HEAD_ROOM + small.len();
        let mut head = Vec::with_capacity(room);
        write_head(&mut head, &response, self.asked, ending);
        be_strict(&mut head, &response, self.strict);
        head.extend_from_slice(&small);
        account.sent(small.len() as u64);
        ended |= !small.is_empty();
        let mut body = response.body;
        let mut output = Output::bytes(head.into());
        let mut nothing_sent = true;
        while !ended {
            if let Body::File(file) = &mut body
                && ending == Ending::Counted
                && let Some(socket) = self.writer.as_socket()
            {
                let _sending = self.watch.sending();
                let left = file.remaining();
                file::send(socket, &mut output, file, self.stall).await?;
                account.sent(left - file.remaining());
                self.send(std::mem::take(&mut output)).await?;
                nothing_sent = false;
            }
            // The head waits for the first piece of the body only if that is there already.
            let frame = match poll_once(&mut body).await {
                Poll::Ready(frame) => frame,
                Poll::Pending => {
                    nothing_sent = false;
                    self.send(std::mem::take(&mut output)).await?;
                    if goes_on {
                        return Ok(Sent::SoFar(body, ending));
                    }
                    body.frame().await
                }
            };
            if let Some(Ok(Frame::Data(data))) = &frame {
                account.sent(data.len() as u64);
            }
            ended = match push_frame(&mut output, frame, ending) {
                Ok(more) => !more,
                Err(_) if nothing_sent => {
                    return self.broke_off(account, now).await;
                }
                Err(error) => return Err(error),
            };
            if output.len() >= PART {
                nothing_sent = false;
                self.send_of(&mut body, std::mem::take(&mut output)).await?;
            }
        }
        self.send(output).await?;
        Ok(if self.asked.keep_alive && ending != Ending::Close {
            Sent::Open
        } else {
            Sent::Close
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
    async fn broke_off(&mut self, account: &mut Account, now: Time) -> std::io::Result<Sent> {
        let page = pages::broke_off(now);
        account.answered(&page, now);
        if !self.asked.head_only {
            account.sent(page.length.unwrap_or_default());
        }
        self.asked.keep_alive = false;
        self.send(Output::bytes(whole(&page, self.asked))).await?;
        Ok(Sent::Close)
    }
}

/// Adds a frame to what is to be sent. Says whether more may follow.
pub(super) fn push_frame(
    output: &mut Output,
    frame: Option<Result<Frame, BodyError>>,
    ending: Ending,
) -> std::io::Result<bool> {
    match frame {
        // The client learns of it by the connection's end: no last chunk, or too few bytes.
        Some(Err(error)) => Err(std::io::Error::other(error)),
        Some(Ok(Frame::Data(data))) => {
            if ending == Ending::Chunked && data.is_empty() {
                // A chunk of nothing would be the end.
            } else if ending == Ending::Chunked {
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
