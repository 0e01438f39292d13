//! Subscriptions by WebSocket: the events of event streams, and commands from the client at any time.
//!
//! A socket is polled as part of its connection. It buffers one outgoing frame and a few commands, so that a
//! slow reader costs no more than a fast one: it receives the latest versions when it reads on.

mod commands;
mod handshake;
mod language;
mod life;
mod open;
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
use microcache_engine::{OriginRequest, OriginResponse, Tunnel};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep_until};
use tokio_websockets::{
    CloseCode, Config, Error, Limits, Message, Payload, ServerBuilder, WebSocketStream,
};

pub(crate) use handshake::{Handshake, Protocol, is_asked_for};
pub(crate) use language::{Language, Pages};
use life::{Due, Life, Pace};
use open::Open;
use pipe::Pipe;

use crate::access::sites;
use crate::documents::Documents;
use crate::documents::no_url::{MAX_STARS, MAX_URLS, NoUrl};
use crate::name::Pattern;
use crate::subscribing::page::Known;
use crate::subscribing::subscription::{NoSubscription, Subscription};
use crate::subscribing::urls::Found;

/// Length limit of a command, in bytes.
const MAX_ORDER: usize = 8 * 1024;
/// Limits of queued commands, in bytes and in number: pings behind them are still answered.
const MAX_HELD: usize = 2 * MAX_ORDER;
const MAX_HELD_ORDERS: usize = 64;
/// Bytes accepted from a client after the socket has closed, until it has read the reason.
const MAX_UNHEARD: usize = 64 * 1024;
/// Length above which messages are fragmented, in bytes.
const MAX_FRAME: usize = 1024 * 1024;

/// A client's command.
#[derive(Debug, PartialEq, Eq)]
enum Order {
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
    spoken: &[Protocol],
) -> Result<Handshake, OriginResponse> {
    let fields = request.fields.fields();
    let handshake = Handshake::read(request, spoken)?;
    sites::check(
        &documents.settings.allow_origins,
        fields,
        &request.authority,
    )?;
    Ok(handshake)
}

impl Handshake {
    /// Returns the response that opens the socket.
    pub(crate) fn open(&self, subscription: Subscription, language: Language) -> OriginResponse {
        let mut answer = self.agree();
        answer.tunnel = Some(Box::new(Tunnel {
            early: Bytes::new(),
            io: Box::new(Socket::new(subscription, language)),
            has_descriptor: false,
        }));
        answer
    }
}

/// The server's end of a WebSocket subscription.
pub(crate) struct Socket {
    frames: WebSocketStream<Pipe>,
    /// True if buffered input may contain a frame.
    has_input: bool,
    /// True if frames wait to be encoded.
    has_output: bool,
    /// `None` after the close frame.
    open: Option<Session>,
    life: Life,
    /// True if everything has been sent.
    is_over: bool,
    unheard: usize,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// The state of an open socket.
struct Session {
    subscription: Subscription,
    /// True if it has been polled: a reset event precedes the first reply.
    has_begun: bool,
    language: Language,
    /// Commands received and not executed.
    orders: Orders,
    /// Timer for the expiry of the client's token.
    ends: Option<Pin<Box<Sleep>>>,
    /// The pattern whose snapshot is being delivered.
    joining: Option<Pattern>,
    pace: Pace,
    place: Open,
}

/// Received commands, unparsed: their meaning may depend on those before them.
#[derive(Default)]
struct Orders {
    waiting: VecDeque<Box<str>>,
    length: usize,
}

impl Orders {
    fn has_room(&self) -> bool {
        self.waiting.len() < MAX_HELD_ORDERS && self.length + MAX_ORDER <= MAX_HELD
    }

    fn add(&mut self, order: &str) {
        self.length += order.len();
        self.waiting.push_back(order.into());
    }

    fn take(&mut self) -> Option<Box<str>> {
        let order = self.waiting.pop_front()?;
        self.length -= order.len();
        if self.waiting.is_empty() {
            // Most queues are empty most of the time.
            self.waiting = VecDeque::new();
        }
        Some(order)
    }
}

/// The next outgoing message.
enum Sending {
    Text(Bytes),
    Ping,
    Farewell(CloseCode, &'static str),
    /// The client has closed or violated the protocol; the close frame is buffered already.
    Nothing,
}

impl Socket {
    pub(crate) fn new(subscription: Subscription, language: Language) -> Self {
        let limits = Limits::default().max_payload_len(Some(MAX_ORDER));
        let config = Config::default().frame_size(MAX_FRAME);
        let frames = ServerBuilder::new().limits(limits).config(config);
        let place = Open::new(&subscription.documents);
        let ends = subscription.reader.ends();
        let ends = ends.map(|end| Box::pin(sleep_until(end)));
        Self {
            frames: frames.serve(Pipe::default()),
            has_input: false,
            has_output: false,
            open: Some(Session {
                subscription,
                has_begun: false,
                language,
                orders: Orders::default(),
                ends,
                joining: None,
                pace: Pace::new(),
                place,
            }),
            life: Life::new(),
            is_over: false,
            unheard: 0,
            reader: None,
            writer: None,
        }
    }

    /// Polls the next outgoing message.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Sending> {
        let Some(session) = &mut self.open else {
            return Poll::Ready(Sending::Nothing);
        };
        if session.place.is_ending(cx) {
            let farewell = Sending::Farewell(CloseCode::GOING_AWAY, "the server stops");
            return Poll::Ready(farewell);
        }
        if session.has_ended(cx) {
            let why = "the time of the token has passed";
            return Poll::Ready(Sending::Farewell(CloseCode::POLICY_VIOLATION, why));
        }
        match self.life.poll(cx) {
            Poll::Ready(Due::Ask) => return Poll::Ready(Sending::Ping),
            Poll::Ready(Due::GiveUp) => {
                let why = "no answer to a ping";
                return Poll::Ready(Sending::Farewell(CloseCode::INTERNAL_SERVER_ERROR, why));
            }
            Poll::Pending => {}
        }
        // Commands are executed one by one. Control frames behind them are still processed.
        if let Poll::Ready(answer) = session.answer(cx) {
            return Poll::Ready(Sending::Text(answer));
        }
        if self.has_input && session.orders.has_room() {
            let message = Pin::new(&mut self.frames).poll_next(cx);
            // Input space is free now, even if the message is incomplete.
            wake(&mut self.writer);
            if let Poll::Ready(message) = message {
                // Pongs are sent before further input is read.
                self.has_output = true;
                let nothing = || Sending::Text(Bytes::new());
                return Poll::Ready(session.take(message).unwrap_or_else(nothing));
            }
            self.has_input = false;
        }
        session.poll_told(cx).map(Sending::Text)
    }

    fn send(&mut self, sending: Sending) {
        let message = match sending {
            Sending::Text(text) if text.is_empty() => return,
            Sending::Text(text) => Message::text(Payload::from(text)),
            Sending::Ping => Message::ping(Payload::from(Bytes::new())),
            Sending::Farewell(code, why) => {
                self.open = None;
                Message::close(Some(code), why)
            }
            Sending::Nothing => {
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

impl Session {
    /// Processes an incoming message; returns the reaction unless it is a command.
    fn take(&mut self, message: Option<Result<Message, Error>>) -> Option<Sending> {
        let message = match message {
            Some(Ok(message)) => message,
            // For an oversized frame the library has sent the close frame already.
            Some(Err(Error::PayloadTooLong { .. })) => {
                let why = "an order has 8192 bytes at most";
                return Some(Sending::Farewell(CloseCode::MESSAGE_TOO_BIG, why));
            }
            Some(Err(_)) | None => return Some(Sending::Nothing),
        };
        if message.is_close() {
            return Some(Sending::Nothing);
        }
        if message.is_binary() {
            let why = "orders are text";
            return Some(Sending::Farewell(CloseCode::UNSUPPORTED_DATA, why));
        }
        if let Some(text) = message.as_text() {
            self.orders.add(text);
        }
        None
    }

    /// Polls the reply to the next command, and events that precede it. Empty replies are not sent.
    fn answer(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        let has_begun = std::mem::replace(&mut self.has_begun, true);
        if !has_begun && let Poll::Ready(told) = self.language.poll_told(&mut self.subscription, cx)
        {
            return Poll::Ready(told);
        }
        if let Some(pattern) = self.joining.take_if(|_| !self.subscription.is_joining()) {
            let is_there = match &pattern {
                Pattern::Exact(name) => self.has(name),
                Pattern::Like(_) | Pattern::Template(_) => true,
            };
            let place = self.subscription.place().to_string();
            let url = pattern.as_written();
            return Poll::Ready(self.language.subscribed(url, &place, is_there));
        }
        if !self.orders.waiting.is_empty()
            && !self.subscription.is_joining()
            && self.pace.poll(cx).is_ready()
            && let Some(order) = self.orders.take()
        {
            let order = self.language.read(&order);
            return Poll::Ready(self.carry_out(order));
        }
        Poll::Pending
    }

    /// Polls the next event.
    fn poll_told(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        self.language.poll_told(&mut self.subscription, cx)
    }

    fn has_ended(&mut self, cx: &mut Context<'_>) -> bool {
        let ends = self.ends.as_mut();
        ends.is_some_and(|end| end.as_mut().poll(cx).is_ready())
    }

    fn has(&self, name: &str) -> bool {
        self.place.documents().books.lock().now(name).is_some()
    }

    /// Executes a command and returns its reply, which is empty if it follows later.
    fn carry_out(&mut self, order: Result<Order, NoUrl>) -> Bytes {
        let (url, done) = match order {
            Err(why) => return self.language.error(None, &why),
            Ok(Order::Subscribe { url, version }) => {
                let done = self.subscribe(&url, version.as_deref());
                if done.is_ok() {
                    self.language.call(&url);
                }
                (url, done)
            }
            Ok(Order::Unsubscribe(None)) => {
                self.subscription.remove_all();
                return self.language.unsubscribed(None);
            }
            Ok(Order::Unsubscribe(Some(url))) => {
                let done = self.unsubscribe(&url);
                (url, done)
            }
            Ok(Order::Get(url)) => {
                let done = self.get(&url);
                (url, done)
            }
        };
        done.unwrap_or_else(|why| self.language.error(Some(&url), &why))
    }

    fn find(&self, url: &str) -> Result<Found, NoUrl> {
        let documents = self.place.documents();
        let found = self.language.find(url, &documents.settings.prefixes)?;
        if let Found::Documents(pattern) = &found {
            documents.may_ask(&self.subscription.reader.shown(), pattern)?;
        }
        Ok(found)
    }

    fn subscribe(&mut self, url: &str, version: Option<&str>) -> Result<Bytes, NoUrl> {
        let extent = self.subscription.extent();
        let found = self.find(url)?;
        let is_known = match &found {
            Found::Documents(pattern) => self.subscription.has(pattern),
            Found::Page(page) => self.subscription.has_page(page.url()),
        };
        if is_known {
            return Err(NoUrl::new(409, "it is subscribed to already"));
        }
        if extent.urls >= MAX_URLS {
            return Err(NoUrl::too_many());
        }
        match found {
            Found::Documents(pattern) => {
                if pattern.is_like() && extent.stars >= MAX_STARS {
                    return Err(NoUrl::too_many_stars());
                }
                self.subscription.add(&pattern, true).map_err(refused)?;
                self.joining = Some(pattern);
                Ok(Bytes::new())
            }
            Found::Page(mut page) => {
                let version = version.and_then(|it| u64::from_str_radix(it, 16).ok());
                page.has(version.map(Known::Version));
                self.subscription.add_page(page);
                let place = self.subscription.place().to_string();
                Ok(self.language.subscribed(url, &place, true))
            }
        }
    }

    fn unsubscribe(&mut self, url: &str) -> Result<Bytes, NoUrl> {
        let was_there = match Pattern::parse(url) {
            Ok(pattern) if self.subscription.remove(&pattern) => true,
            _ => self.subscription.remove_page(url),
        };
        if was_there {
            Ok(self.language.unsubscribed(Some(url)))
        } else {
            Err(NoUrl::new(404, "it is not subscribed to"))
        }
    }

    fn get(&mut self, url: &str) -> Result<Bytes, NoUrl> {
        let Found::Documents(pattern) = self.find(url)? else {
            return Err(NoUrl::new(400, "pages are got by HTTP"));
        };
        let name = match pattern {
            Pattern::Exact(name) => name,
            // Such a reply is a sequence of documents.
            _ if self.language.gets_several() => {
                let added = self.subscription.add(&pattern, false);
                return added.map(|()| Bytes::new()).map_err(refused);
            }
            Pattern::Like(_) | Pattern::Template(_) => {
                let why = "what has a `*` or braces is subscribed to, and got one by one";
                return Err(NoUrl::new(400, why));
            }
        };
        let books = self.place.documents().books.lock();
        let now = self.place.documents().clock.now();
        let document = books.now(&name).filter(|it| !it.has_expired(now));
        let change = document.map(Arc::clone);
        let version = change
            .as_ref()
            .map(|it| books.generations.version(it.number));
        drop(books);
        match change.zip(version) {
            Some((change, version)) => Ok(self.language.value(&change, version)),
            None => Err(NoUrl::new(404, "there is no such document")),
        }
    }
}

fn refused(why: NoSubscription) -> NoUrl {
    NoUrl::new(503, why.as_str())
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

fn remember(waker: &mut Option<Waker>, cx: &Context<'_>) {
    if !waker.as_ref().is_some_and(|it| it.will_wake(cx.waker())) {
        *waker = Some(cx.waker().clone());
    }
}

/// The bytes sent to the client, until the socket closes.
impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        space: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let socket = self.get_mut();
        remember(&mut socket.reader, cx);
        socket.life.ready();
        loop {
            if socket.frames.get_mut().give(space) {
                socket.life.give();
                return Poll::Ready(Ok(()));
            }
            if socket.is_over {
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
                socket.is_over = true;
                wake(&mut socket.writer);
                continue;
            }
            let sending = ready!(socket.poll_next(cx));
            if let Sending::Text(text) = &sending
                && !(text.is_empty() || socket.has_output)
                && put_text(text, space)
            {
                // Most messages bypass the buffer.
                socket.life.give();
                return Poll::Ready(Ok(()));
            }
            socket.send(sending);
        }
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
        if socket.is_over {
            // Accept and discard the rest of the input, so that the client can read the close frame.
            socket.unheard += bytes.len();
            return Poll::Ready(if socket.unheard > MAX_UNHEARD {
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
        socket.life.hear();
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
