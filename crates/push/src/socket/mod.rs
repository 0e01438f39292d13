//! Subscriptions by WebSocket: the events of event streams, and commands from the client at any time.
//!
//! A socket is polled as part of its connection. It buffers one outgoing frame and a few commands, so that a
//! slow reader costs no more than a fast one: it receives the latest versions when it reads on.

mod commands;
mod handshake;
mod keep_alive;
mod language;
mod open_socket;
mod pipe;
mod piper;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use futures_util::{Sink, Stream};
use microcache_engine::{Duplex, OriginRequest, OriginResponse, Tunnel};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_websockets::{
    CloseCode, Config, Error, Limits, Message, Payload, ServerBuilder, WebSocketStream,
};

pub(crate) use handshake::{Handshake, Subprotocol, is_websocket_request};
use keep_alive::{CommandRateLimit, KeepAlive, KeepAliveAction};
pub(crate) use language::{Language, PageResolver};
use open_socket::OpenSocket;
use pipe::Pipe;

use crate::access::cors;
use crate::documents::Documents;
use crate::documents::url_error::{MAX_PATTERNS, MAX_URLS, UrlError};
use crate::name::Pattern;
use crate::subscribing::page::PageValidator;
use crate::subscribing::subscription::{SubscribeError, Subscription};
use crate::subscribing::urls::UrlTarget;

/// Length limit of a command, in bytes.
const MAX_COMMAND: usize = 8 * 1024;
/// Limits of queued commands, in bytes and in number: pings behind them are still answered.
const MAX_QUEUED_BYTES: usize = 2 * MAX_COMMAND;
const MAX_QUEUED: usize = 64;
/// Bytes accepted from a client after the socket has closed, until it has read the reason.
const MAX_DISCARDED: usize = 64 * 1024;
/// Length above which messages are fragmented, in bytes.
const MAX_FRAME: usize = 1024 * 1024;

/// A client's command.
#[derive(Debug, PartialEq, Eq)]
enum SocketCommand {
    Subscribe {
        url: String,
        /// For a page: the version of the client's copy.
        version: Option<String>,
    },
    /// `None`: from everything.
    Unsubscribe(Option<String>),
    Get(String),
}

/// Checks the handshake and the origin of a WebSocket request.
pub(crate) fn handshake(
    documents: &Documents,
    request: &OriginRequest,
    supported: &[Subprotocol],
) -> Result<Handshake, OriginResponse> {
    let fields = request.fields.fields();
    let handshake = Handshake::read(request, supported)?;
    cors::check_websocket(
        &documents.settings.allow_origins,
        fields,
        &request.authority,
    )?;
    Ok(handshake)
}

impl Handshake {
    /// Returns the response that opens the socket.
    pub(crate) fn open(&self, subscription: Subscription, language: Language) -> OriginResponse {
        let mut answer = self.accept_response();
        answer.tunnel = Some(Box::new(Tunnel {
            early: Bytes::new(),
            io: Box::new(Socket::new(subscription, language)),
            has_descriptor: false,
        }));
        answer
    }
}

/// The server's end of a WebSocket subscription. What an event needs comes first: the time of an event that goes to
/// thousands of sockets is that of reading their memory.
#[repr(C)]
pub(crate) struct Socket {
    /// True if buffered input may contain a frame.
    has_input: bool,
    /// True if frames wait to be encoded, or to be sent.
    has_output: bool,
    /// True if everything has been sent.
    is_finished: bool,
    reader: Option<Waker>,
    keep_alive: KeepAlive,
    /// `None` after the close frame.
    open: Option<SocketSession>,
    writer: Option<Waker>,
    discarded: usize,
    frames: WebSocketStream<Pipe>,
}

/// The state of an open socket. What an event needs comes first.
#[repr(C)]
struct SocketSession {
    registration: OpenSocket,
    /// True if it has been polled: a reset event precedes the first reply.
    was_polled: bool,
    /// True if the last message was the newest event, and its waker is registered for the next one.
    is_drained: bool,
    /// Timer for the expiry of the client's token.
    ends: Option<Pin<Box<Sleep>>>,
    /// The pattern whose snapshot is being delivered.
    joining: Option<Box<Pattern>>,
    /// Commands received and not executed.
    commands: CommandQueue,
    language: Language,
    subscription: Subscription,
    rate_limit: CommandRateLimit,
}

/// Received commands, unparsed: their meaning may depend on those before them. Most queues are empty most of the time.
#[derive(Default)]
struct CommandQueue(Option<Box<QueuedCommands>>);

#[derive(Default)]
struct QueuedCommands {
    queue: VecDeque<Box<str>>,
    length: usize,
}

impl CommandQueue {
    const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    fn has_room(&self) -> bool {
        self.0.as_ref().is_none_or(|queued| {
            queued.queue.len() < MAX_QUEUED && queued.length + MAX_COMMAND <= MAX_QUEUED_BYTES
        })
    }

    fn add(&mut self, command: &str) {
        let queued = self.0.get_or_insert_default();
        queued.length += command.len();
        queued.queue.push_back(command.into());
    }

    fn take(&mut self) -> Option<Box<str>> {
        let queued = self.0.as_mut()?;
        let command = queued.queue.pop_front()?;
        queued.length -= command.len();
        if queued.queue.is_empty() {
            self.0 = None;
        }
        Some(command)
    }
}

/// The next outgoing message.
enum OutgoingMessage {
    Text(Bytes),
    Ping,
    Close(CloseCode, &'static str),
    /// The client has closed or violated the protocol; the close frame is buffered already.
    End,
}

impl Socket {
    pub(crate) fn new(subscription: Subscription, language: Language) -> Self {
        let limits = Limits::default().max_payload_len(Some(MAX_COMMAND));
        let config = Config::default().frame_size(MAX_FRAME);
        let frames = ServerBuilder::new().limits(limits).config(config);
        let registration = OpenSocket::new(subscription.documents());
        let ends = subscription.grant().ends();
        let ends = ends.map(|end| Box::pin(sleep_until(end)));
        Self {
            has_input: false,
            has_output: false,
            is_finished: false,
            reader: None,
            keep_alive: KeepAlive::new(),
            open: Some(SocketSession {
                registration,
                was_polled: false,
                is_drained: false,
                ends,
                joining: None,
                commands: CommandQueue::default(),
                language,
                subscription,
                rate_limit: CommandRateLimit::new(),
            }),
            writer: None,
            discarded: 0,
            frames: frames.serve(Pipe::default()),
        }
    }

    /// Polls the next outgoing message.
    fn poll_next(&mut self, cx: &mut Context<'_>, now: Instant) -> Poll<OutgoingMessage> {
        let Some(session) = &mut self.open else {
            return Poll::Ready(OutgoingMessage::End);
        };
        session.is_drained = false;
        if session.registration.is_closing(cx) {
            let close = OutgoingMessage::Close(CloseCode::GOING_AWAY, "the server is stopping");
            return Poll::Ready(close);
        }
        if session.is_token_expired(cx) {
            let why = "the token has expired";
            return Poll::Ready(OutgoingMessage::Close(CloseCode::POLICY_VIOLATION, why));
        }
        match self.keep_alive.poll(cx, now) {
            Poll::Ready(KeepAliveAction::Ping) => return Poll::Ready(OutgoingMessage::Ping),
            Poll::Ready(KeepAliveAction::Disconnect) => {
                let why = "no answer to a ping";
                return Poll::Ready(OutgoingMessage::Close(
                    CloseCode::INTERNAL_SERVER_ERROR,
                    why,
                ));
            }
            Poll::Pending => {}
        }
        // Commands are executed one by one. Control frames behind them are still processed.
        if let Poll::Ready(answer) = session.answer(cx) {
            return Poll::Ready(OutgoingMessage::Text(answer));
        }
        if self.has_input && session.commands.has_room() {
            let message = Pin::new(&mut self.frames).poll_next(cx);
            // Input space is free now, even if the message is incomplete.
            wake(&mut self.writer);
            if let Poll::Ready(message) = message {
                // Pongs are sent before further input is read.
                self.has_output = true;
                let nothing = || OutgoingMessage::Text(Bytes::new());
                return Poll::Ready(session.take(message).unwrap_or_else(nothing));
            }
            self.has_input = false;
            self.has_output |= !self.frames.get_ref().is_drained();
        }
        let event = ready!(session.poll_delivery(cx));
        session.is_drained = session.subscription.is_drained();
        Poll::Ready(OutgoingMessage::Text(event))
    }

    fn send(&mut self, outgoing: OutgoingMessage) {
        let message = match outgoing {
            OutgoingMessage::Text(text) if text.is_empty() => return,
            OutgoingMessage::Text(text) => Message::text(Payload::from(text)),
            OutgoingMessage::Ping => Message::ping(Payload::from(Bytes::new())),
            OutgoingMessage::Close(code, why) => {
                self.open = None;
                Message::close(Some(code), why)
            }
            OutgoingMessage::End => {
                self.open = None;
                return;
            }
        };
        self.has_output = true;
        if Pin::new(&mut self.frames).start_send(message).is_err() {
            self.open = None;
        }
    }
}

/// Encodes a text message if it fits (RFC 6455 §5.2); returns whether it does.
fn put_text(text: &[u8], space: &mut ReadBuf<'_>) -> bool {
    const WHOLE_TEXT: u8 = 0x81;
    let Ok(length) = u16::try_from(text.len()) else {
        return false;
    };
    let [high, low] = length.to_be_bytes();
    let head: &[u8] = if length < 126 {
        &[WHOLE_TEXT, low]
    } else {
        &[WHOLE_TEXT, 126, high, low]
    };
    let has_room = space.remaining() >= head.len() + text.len();
    if has_room {
        space.put_slice(head);
        space.put_slice(text);
    }
    has_room
}

impl SocketSession {
    /// Processes an incoming message; returns the reaction unless it is a command.
    fn take(&mut self, message: Option<Result<Message, Error>>) -> Option<OutgoingMessage> {
        let message = match message {
            Some(Ok(message)) => message,
            // For an oversized frame the library has sent the close frame already.
            Some(Err(Error::PayloadTooLong { .. })) => {
                let why = "a command may have at most 8192 bytes";
                return Some(OutgoingMessage::Close(CloseCode::MESSAGE_TOO_BIG, why));
            }
            Some(Err(_)) | None => return Some(OutgoingMessage::End),
        };
        if message.is_close() {
            return Some(OutgoingMessage::End);
        }
        if message.is_binary() {
            let why = "commands must be text";
            return Some(OutgoingMessage::Close(CloseCode::UNSUPPORTED_DATA, why));
        }
        if let Some(text) = message.as_text() {
            self.commands.add(text);
        }
        None
    }

    /// Polls the reply to the next command, and events that precede it. Empty replies are not sent.
    fn answer(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        let was_polled = std::mem::replace(&mut self.was_polled, true);
        if !was_polled
            && let Poll::Ready(event) = self.language.poll_delivery(&mut self.subscription, cx)
        {
            return Poll::Ready(event);
        }
        if let Some(pattern) = self.joining.take_if(|_| !self.subscription.is_joining()) {
            let is_there = match &*pattern {
                Pattern::Exact(name) => self.has(name),
                Pattern::Glob(_) | Pattern::Template(_) => true,
            };
            let position = self.subscription.position().to_string();
            let url = pattern.source();
            return Poll::Ready(self.language.subscribed(url, &position, is_there));
        }
        if !self.commands.is_empty()
            && !self.subscription.is_joining()
            && self.rate_limit.poll(cx).is_ready()
            && let Some(command) = self.commands.take()
        {
            let command = self.language.read(&command);
            return Poll::Ready(self.execute(command));
        }
        Poll::Pending
    }

    /// Polls the next event.
    fn poll_delivery(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        self.language.poll_delivery(&mut self.subscription, cx)
    }

    fn is_token_expired(&mut self, cx: &mut Context<'_>) -> bool {
        let ends = self.ends.as_mut();
        ends.is_some_and(|end| end.as_mut().poll(cx).is_ready())
    }

    fn has(&self, name: &str) -> bool {
        self.registration
            .documents()
            .index
            .lock()
            .current(name)
            .is_some()
    }

    /// Executes a command and returns its reply, which is empty if it follows later.
    fn execute(&mut self, command: Result<SocketCommand, UrlError>) -> Bytes {
        let (url, done) = match command {
            Err(why) => return self.language.error(None, &why),
            Ok(SocketCommand::Subscribe { url, version }) => {
                let done = self.subscribe(&url, version.as_deref());
                if done.is_ok() {
                    self.language.record_subscription(&url);
                }
                (url, done)
            }
            Ok(SocketCommand::Unsubscribe(None)) => {
                self.subscription.remove_all();
                return self.language.unsubscribed(None);
            }
            Ok(SocketCommand::Unsubscribe(Some(url))) => {
                let done = self.unsubscribe(&url);
                (url, done)
            }
            Ok(SocketCommand::Get(url)) => {
                let done = self.get(&url);
                (url, done)
            }
        };
        done.unwrap_or_else(|why| self.language.error(Some(&url), &why))
    }

    fn find(&self, url: &str) -> Result<UrlTarget, UrlError> {
        let documents = self.registration.documents();
        let target = self.language.find(url, &documents.settings.prefixes)?;
        if let UrlTarget::Documents(pattern) = &target {
            documents.authorize(&self.subscription.grant().credentials(), pattern)?;
        }
        Ok(target)
    }

    fn subscribe(&mut self, url: &str, version: Option<&str>) -> Result<Bytes, UrlError> {
        let size = self.subscription.size();
        let target = self.find(url)?;
        let is_known = match &target {
            UrlTarget::Documents(pattern) => self.subscription.has(pattern),
            UrlTarget::Page(page) => self.subscription.has_page(page.url()),
        };
        if is_known {
            return Err(UrlError::new(409, "already subscribed"));
        }
        if size.urls >= MAX_URLS {
            return Err(UrlError::too_many_urls());
        }
        match target {
            UrlTarget::Documents(pattern) => {
                if pattern.matches_several() && size.patterns >= MAX_PATTERNS {
                    return Err(UrlError::too_many_patterns());
                }
                self.subscription.add(&pattern, true).map_err(unavailable)?;
                self.joining = Some(Box::new(pattern));
                Ok(Bytes::new())
            }
            UrlTarget::Page(mut page) => {
                let version = version.and_then(|it| u64::from_str_radix(it, 16).ok());
                page.set_client_copy(version.map(PageValidator::Version));
                self.subscription.add_page(page);
                let position = self.subscription.position().to_string();
                Ok(self.language.subscribed(url, &position, true))
            }
        }
    }

    fn unsubscribe(&mut self, url: &str) -> Result<Bytes, UrlError> {
        let was_there = match Pattern::parse(url) {
            Ok(pattern) if self.subscription.remove(&pattern) => true,
            _ => self.subscription.remove_page(url),
        };
        if was_there {
            Ok(self.language.unsubscribed(Some(url)))
        } else {
            Err(UrlError::new(404, "not subscribed"))
        }
    }

    fn get(&mut self, url: &str) -> Result<Bytes, UrlError> {
        let UrlTarget::Documents(pattern) = self.find(url)? else {
            return Err(UrlError::new(400, "pages can only be fetched by HTTP"));
        };
        let name = match pattern {
            Pattern::Exact(name) => name,
            // Such a reply is a sequence of documents.
            _ if self.language.get_accepts_patterns() => {
                let added = self.subscription.add(&pattern, false);
                return added.map(|()| Bytes::new()).map_err(unavailable);
            }
            Pattern::Glob(_) | Pattern::Template(_) => {
                let why = "get does not support patterns: subscribe, or get each document";
                return Err(UrlError::new(400, why));
            }
        };
        let index = self.registration.documents().index.lock();
        let now = self.registration.documents().clock.now();
        let document = index.current(&name).filter(|it| !it.has_expired(now));
        let change = document.map(Arc::clone);
        let version = change
            .as_ref()
            .map(|it| index.generations.version(it.number));
        drop(index);
        match change.zip(version) {
            Some((change, version)) => Ok(self.language.value(&change, version)),
            None => Err(UrlError::new(404, "there is no such document")),
        }
    }
}

fn unavailable(why: SubscribeError) -> UrlError {
    UrlError::new(503, why.as_str())
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

/// Remembers the waker; returns whether it is a new one.
fn remember(waker: &mut Option<Waker>, cx: &Context<'_>) -> bool {
    let is_new = !waker.as_ref().is_some_and(|it| it.will_wake(cx.waker()));
    if is_new {
        *waker = Some(cx.waker().clone());
    }
    is_new
}

/// The bytes sent to the client, until the socket closes.
impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        space: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let socket = self.get_mut();
        if remember(&mut socket.reader, cx) {
            socket.keep_alive.forget_waker();
            if let Some(session) = &mut socket.open {
                session.registration.forget_waker();
            }
        }
        let now = Instant::now();
        socket.keep_alive.record_writable(now);
        loop {
            if socket.has_output && socket.frames.get_mut().give(space) {
                socket.keep_alive.record_output(now);
                return Poll::Ready(Ok(()));
            }
            if socket.is_finished {
                return Poll::Ready(Ok(()));
            }
            if socket.has_output {
                // The sink is in memory and never blocks.
                let flushed = Pin::new(&mut socket.frames).poll_flush(cx);
                if !socket.frames.get_ref().is_drained() {
                    continue;
                }
                socket.has_output = false;
                if matches!(flushed, Poll::Ready(Err(_))) {
                    socket.open = None;
                }
            }
            if socket.open.is_none() {
                socket.is_finished = true;
                wake(&mut socket.writer);
                continue;
            }
            let outgoing = ready!(socket.poll_next(cx, now));
            if let OutgoingMessage::Text(text) = &outgoing
                && !(text.is_empty() || socket.has_output)
                && put_text(text, space)
            {
                // Most messages bypass the buffer.
                socket.keep_alive.record_output(now);
                return Poll::Ready(Ok(()));
            }
            socket.send(outgoing);
        }
    }
}

impl Duplex for Socket {
    fn is_drained(&self) -> bool {
        let session = self.open.as_ref();
        !self.has_output && session.is_some_and(|session| session.is_drained)
    }

    fn mark_sent(&mut self) {
        self.keep_alive.record_sent();
    }
}

/// The bytes received from the client. Back-pressure: none are accepted while replies are not read.
impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let socket = self.get_mut();
        if socket.is_finished {
            // Accept and discard the rest of the input, so that the client can read the close frame.
            socket.discarded += bytes.len();
            return Poll::Ready(if socket.discarded > MAX_DISCARDED {
                Err(io::ErrorKind::BrokenPipe.into())
            } else {
                Ok(bytes.len())
            });
        }
        let taken = socket.frames.get_mut().take(bytes);
        if taken == 0 && !bytes.is_empty() {
            remember(&mut socket.writer, cx);
            return Poll::Pending;
        }
        socket.has_input = true;
        socket.keep_alive.record_input();
        wake(&mut socket.reader);
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let socket = self.get_mut();
        // The client has shut down its side; a close frame would have come before.
        socket.has_input = true;
        socket.frames.get_mut().end();
        wake(&mut socket.reader);
        Poll::Ready(Ok(()))
    }
}
