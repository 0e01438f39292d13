//! A group against origins that follow a script, on real sockets.

mod answers;
mod connections;
mod fastcgi;
mod http2;
mod servers;
mod unix_sockets;
mod uploads;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use microcache_engine::body::{Body, BodyError, Frame};
use microcache_engine::origin::{Origin as _, OriginError, OriginRequest, OriginResponse};
use microcache_policy::FieldsBuf;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::{Group, GroupSettings, ServerSettings};
use crate::observe::{Notices, collected};

/// Time limit of a test step; reached only by a hang.
const HANG: Duration = Duration::from_mins(1);

/// Long enough to be seen among milliseconds.
const NOTICEABLE: Duration = Duration::from_millis(20);

async fn within<T>(step: impl Future<Output = T>) -> T {
    timeout(HANG, step).await.expect("a step hangs")
}

/// Scripted origin: a listener whose connections the test serves itself.
struct Origin {
    listener: TcpListener,
}

impl Origin {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self { listener }
    }

    fn server(&self) -> ServerSettings {
        ServerSettings::new("127.0.0.1", self.listener.local_addr().unwrap().port())
    }

    fn group(&self) -> Arc<Group> {
        self.group_with(|_| {})
    }

    fn group_with(&self, change: impl FnOnce(&mut GroupSettings)) -> Arc<Group> {
        self.group_and_log(change).0
    }

    /// A group, and its log.
    fn group_and_log(
        &self,
        change: impl FnOnce(&mut GroupSettings),
    ) -> (Arc<Group>, Arc<Mutex<Vec<String>>>) {
        let mut settings = GroupSettings::new("test", vec![self.server()]);
        change(&mut settings);
        let (notices, logged) = collected();
        (Group::start(settings, notices, &Arc::default()), logged)
    }

    async fn accept(&self) -> Peer {
        let (stream, _) = within(self.listener.accept()).await.unwrap();
        Peer { stream }
    }

    /// Returns true if a connection is waiting to be accepted.
    async fn is_called(&self) -> bool {
        tokio::select! {
            biased;
            _ = self.listener.accept() => true,
            () = tokio::task::yield_now() => false,
        }
    }

    /// Accepts, reads a head, and answers.
    async fn serve(&self, answer: &str) -> Peer {
        let mut peer = self.accept().await;
        peer.head().await;
        peer.send(answer).await;
        peer
    }
}

/// The origin's end of a connection.
struct Peer {
    stream: TcpStream,
}

impl Peer {
    /// Reads up to an empty line; empty if the proxy closed instead.
    async fn head(&mut self) -> String {
        self.until("\r\n\r\n").await
    }

    /// Reads until `end` was read or the proxy closed.
    async fn until(&mut self, end: &str) -> String {
        let mut read = Vec::new();
        while !read.ends_with(end.as_bytes()) {
            match within(self.stream.read_u8()).await {
                Ok(byte) => read.push(byte),
                Err(_) => break,
            }
        }
        String::from_utf8(read).unwrap()
    }

    async fn send(&mut self, bytes: &str) {
        within(self.stream.write_all(bytes.as_bytes()))
            .await
            .unwrap();
    }

    /// Returns true if the proxy closes without another byte.
    async fn is_closed(&mut self) -> bool {
        within(self.stream.read_u8()).await.is_err()
    }
}

fn request(method: Method, target: &'static str) -> OriginRequest {
    let target = Bytes::from_static(target.as_bytes());
    OriginRequest::bare(method, Bytes::from_static(b"test"), target)
}

/// A whole answer.
#[derive(Debug, PartialEq, Eq)]
struct Got {
    status: u16,
    body: String,
    end: Result<Option<FieldsBuf>, BodyError>,
}

async fn read(mut response: OriginResponse) -> Got {
    let mut body = Vec::new();
    let mut end = Ok(None);
    while let Some(frame) = within(response.body.frame()).await {
        match frame {
            Ok(Frame::Data(data)) => body.extend_from_slice(&data),
            Ok(Frame::Trailers(trailers)) => end = Ok(Some(trailers)),
            Err(error) => {
                end = Err(error);
                break;
            }
        }
    }
    Got {
        status: response.status,
        body: String::from_utf8(body).unwrap(),
        end,
    }
}

fn got(status: u16, body: &str) -> Got {
    Got {
        status,
        body: body.to_owned(),
        end: Ok(None),
    }
}

async fn fetch(group: &Group, request: OriginRequest) -> Result<Got, OriginError> {
    Ok(read(within(group.fetch(request)).await?).await)
}

async fn get(group: &Group) -> Result<Got, OriginError> {
    fetch(group, request(Method::GET, "/")).await
}

fn post(body: &'static str) -> OriginRequest {
    let mut request = request(Method::POST, "/");
    request.body = Body::Full(Bytes::from_static(body.as_bytes()));
    request
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
