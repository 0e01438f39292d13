//! Writing half of a connection while a request is under way.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use microcache_engine::{Body, BodyError, Frame, Interim, Response};
use microcache_policy::Time;
use microcache_wire::h1::encode;
use tokio::time::timeout;

use super::file;
use super::head::{
    BodyEnding, ResponseFraming, be_strict, ending, whole, write_head, write_interim,
};
use super::presence::ClientPresence;
use super::send::OutputQueue;
use super::state::COPY;
use super::transport::WriteHalf;
use crate::session::{
    AdmittedResponse, OngoingRequest, RequestAccount, RequestEvent, is_bodiless, pages,
};

/// Bytes reserved for a response head in addition to its fields.
const HEAD_ROOM: usize = 256;
/// Size in bytes up to which small pieces of a body are collected before a write.
pub(super) const PART: usize = 32 * 1024;
/// Time without progress after which the body's source is informed of a slow client.
const HELD_UP: Duration = Duration::from_secs(2);

/// Progress of a response.
pub(super) enum ResponseProgress {
    /// Complete; another request may follow.
    Open,
    /// Complete; the connection closes.
    Close,
    /// All that was available is sent. More of this body may take long.
    SoFar(Body, BodyEnding),
}

/// Writing half of the connection, with the framing that the client expects.
pub(super) struct ClientWriter<'a> {
    writer: WriteHalf<'a>,
    pub(super) response_framing: ResponseFraming,
    stall: Duration,
    watch: &'a ClientPresence,
    /// Value of `Strict-Transport-Security`, for clients on TLS.
    strict: Option<&'a str>,
}

impl<'a> ClientWriter<'a> {
    pub(super) const fn new(
        writer: WriteHalf<'a>,
        response_framing: ResponseFraming,
        stall: Duration,
        watch: &'a ClientPresence,
        strict: Option<&'a str>,
    ) -> Self {
        Self {
            writer,
            response_framing,
            stall,
            watch,
            strict,
        }
    }

    pub(super) async fn send(&mut self, output: &mut OutputQueue) -> std::io::Result<()> {
        let _sending = self.watch.sending();
        output.send(&mut self.writer, self.stall).await
    }

    /// Waits for the final response. Forwards interim responses, and sends 100 when the body is needed.
    pub(super) async fn wait_for(
        &mut self,
        answering: &mut OngoingRequest,
    ) -> std::io::Result<Box<AdmittedResponse>> {
        loop {
            match answering.next().await {
                RequestEvent::Answer(answered) => return Ok(answered),
                // Boxed, as all that few requests need.
                RequestEvent::Interim(interim) => Box::pin(self.pass_interim(&interim)).await?,
                RequestEvent::Continue(go) => {
                    let proceed = Bytes::from_static(b"HTTP/1.1 100 Continue\r\n\r\n");
                    let mut proceed = Box::new(OutputQueue::bytes(proceed));
                    Box::pin(self.send(&mut proceed)).await?;
                    // The receiver is dropped only together with the whole exchange.
                    let _ = go.send(());
                }
            }
        }
    }

    async fn pass_interim(&mut self, interim: &Interim) -> std::io::Result<()> {
        // HTTP/1.0 has no interim responses.
        if self.response_framing.http10 {
            return Ok(());
        }
        let mut out = Vec::new();
        write_interim(&mut out, interim);
        self.send(&mut OutputQueue::bytes(out.into())).await
    }

    /// Writes head and body; for a body that `goes_on`, the part that is available.
    pub(super) async fn respond(
        &mut self,
        response: &mut Response,
        goes_on: bool,
        account: &mut RequestAccount,
        now: Time,
    ) -> std::io::Result<ResponseProgress> {
        let ending = ending(response, self.response_framing);
        let mut ended = is_bodiless(response.status, self.response_framing.head_only);
        let small = match &response.body {
            Body::Full(whole) if whole.len() <= COPY && !ended => &whole[..],
            _ => &[],
        };
        let room = response.fields().as_block().len() + HEAD_ROOM + small.len();
        let mut head = Vec::with_capacity(room);
        write_head(&mut head, response, self.response_framing, ending);
        if let Some(policy) = self.strict {
            be_strict(&mut head, response, policy);
        }
        head.extend_from_slice(small);
        account.sent(small.len() as u64);
        ended |= !small.is_empty();
        let body = &mut response.body;
        let mut output = OutputQueue::bytes(head.into());
        let mut nothing_sent = true;
        while !ended {
            if let Body::File(file) = &mut *body
                && ending == BodyEnding::Counted
                && let Some(socket) = self.writer.as_socket()
            {
                let _sending = self.watch.sending();
                let left = file.remaining();
                Box::pin(file::send(socket, &mut output, file, self.stall)).await?;
                account.sent(left - file.remaining());
                self.send(&mut output).await?;
                nothing_sent = false;
            }
            // The head waits for the first piece of the body only if that is available already.
            let frame = match poll_once(body).await {
                Poll::Ready(frame) => frame,
                Poll::Pending => {
                    nothing_sent = false;
                    self.send(&mut output).await?;
                    if goes_on {
                        let rest = std::mem::replace(body, Body::Empty);
                        return Ok(ResponseProgress::SoFar(rest, ending));
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
                    return Box::pin(self.broke_off(account, now)).await;
                }
                Err(error) => return Err(error),
            };
            if output.len() >= PART {
                nothing_sent = false;
                Box::pin(self.send_of(body, &mut output)).await?;
            }
        }
        self.send(&mut output).await?;
        Ok(
            if self.response_framing.keep_alive && ending != BodyEnding::Close {
                ResponseProgress::Open
            } else {
                ResponseProgress::Close
            },
        )
    }

    /// Sends part of a body, and informs its source of a slow client.
    async fn send_of(&mut self, body: &mut Body, output: &mut OutputQueue) -> std::io::Result<()> {
        let mut sending = pin!(self.send(output));
        if let Ok(sent) = timeout(HELD_UP, &mut sending).await {
            return sent;
        }
        body.notify_slow_reader();
        sending.await
    }

    /// Replaces a response that broke off before any of it was sent.
    async fn broke_off(
        &mut self,
        account: &mut RequestAccount,
        now: Time,
    ) -> std::io::Result<ResponseProgress> {
        let page = pages::broke_off(now);
        account.answered(&page, now);
        if !self.response_framing.head_only {
            account.sent(page.length.unwrap_or_default());
        }
        self.response_framing.keep_alive = false;
        self.send(&mut OutputQueue::bytes(whole(&page, self.response_framing)))
            .await?;
        Ok(ResponseProgress::Close)
    }
}

/// Adds a frame to the output. Returns `false` after the last one.
pub(super) fn push_frame(
    output: &mut OutputQueue,
    frame: Option<Result<Frame, BodyError>>,
    ending: BodyEnding,
) -> std::io::Result<bool> {
    match frame {
        // The client detects it by the connection's end: the last chunk or some bytes are missing.
        Some(Err(error)) => Err(std::io::Error::other(error)),
        Some(Ok(Frame::Data(data))) => {
            if ending == BodyEnding::Chunked && data.is_empty() {
                // An empty chunk would end the body.
            } else if ending == BodyEnding::Chunked {
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
            if ending == BodyEnding::Chunked {
                let mut last = Vec::new();
                encode::trailers(&mut last, fields.fields());
                output.push(last.into());
            }
            Ok(false)
        }
        None => {
            if ending == BodyEnding::Chunked {
                output.push(Bytes::from_static(encode::BODY_END));
            }
            Ok(false)
        }
    }
}

async fn poll_once(body: &mut Body) -> Poll<Option<Result<Frame, BodyError>>> {
    poll_fn(|cx| Poll::Ready(body.poll_frame(cx))).await
}
