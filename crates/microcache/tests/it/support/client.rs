//! A client that sends given bytes and parses responses strictly.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use socket2::{Domain, SockRef, Socket, Type};

use super::wire::{Framing, Head, Wire, malformed};

/// One connection to the proxy.
pub(crate) struct Client {
    wire: Wire,
}

/// A final response, complete.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
    /// The 1xx responses that came before it.
    pub(crate) interim: Vec<Head>,
}

/// The member of `Cache-Status` (RFC 9211) that the proxy wrote.
#[derive(Debug)]
pub(crate) struct CacheStatus(String);

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the proxy accepts connections");
        Self {
            wire: Wire::new(stream).unwrap(),
        }
    }

    /// The same by TLS, and the handshake is done.
    pub(crate) fn connect_by_tls(
        address: SocketAddr,
        config: &Arc<ClientConfig>,
        host: &str,
    ) -> io::Result<Self> {
        let Self { wire } = Self::connect(address);
        let host = ServerName::try_from(host.to_owned()).expect("a name");
        let session = ClientConnection::new(Arc::clone(config), host).expect("a session");
        let mut wire = wire.secure(session);
        let tls = wire.session();
        while tls.conn.is_handshaking() {
            tls.conn.complete_io(&mut tls.sock)?;
        }
        Ok(Self { wire })
    }

    /// The client's side of TLS.
    pub(crate) fn session(&mut self) -> &mut StreamOwned<ClientConnection, TcpStream> {
        self.wire.session()
    }

    /// The same with little room for what comes and is not read.
    pub(crate) fn connect_narrow(address: SocketAddr) -> Self {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        Self::connected(socket, address)
    }

    fn connected(socket: Socket, address: SocketAddr) -> Self {
        socket
            .connect(&address.into())
            .expect("the proxy accepts connections");
        Self {
            wire: Wire::new(socket.into()).unwrap(),
        }
    }

    /// The same from this address of the machine's.
    pub(crate) fn connect_from(source: IpAddr, address: SocketAddr) -> Self {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::new(source, 0).into()).unwrap();
        Self::connected(socket, address)
    }

    /// Closes the sending side, and goes on reading.
    pub(crate) fn half_close(&self) {
        self.stream().shutdown(Shutdown::Write).unwrap();
    }

    /// Closes such that the other side learns of it at once.
    pub(crate) fn reset(self) {
        let socket = SockRef::from(self.stream());
        socket.set_linger(Some(Duration::ZERO)).unwrap();
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.wire
            .send(bytes.as_ref())
            .expect("the proxy takes what is sent");
    }

    /// Sends what may already be refused: a proxy that has answered need not read on.
    pub(crate) fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.wire.send(bytes.as_ref()).is_ok()
    }

    /// A GET of the target, with no other fields than `Host`.
    pub(crate) fn get(&mut self, target: &str) -> Response {
        self.send(format!(
            "GET {target} HTTP/1.1\r\nHost: example.com\r\n\r\n"
        ));
        self.response()
    }

    /// The same, unless the connection was closed meanwhile.
    pub(crate) fn try_get(&mut self, target: &str) -> io::Result<Response> {
        self.try_send(format!(
            "GET {target} HTTP/1.1\r\nHost: example.com\r\n\r\n"
        ));
        self.try_response()
    }

    /// The next response to anything but HEAD.
    pub(crate) fn response(&mut self) -> Response {
        self.read_response(false)
            .unwrap_or_else(|error| panic!("no good response: {error}"))
    }

    /// The next response, to HEAD.
    pub(crate) fn response_to_head(&mut self) -> Response {
        self.read_response(true)
            .unwrap_or_else(|error| panic!("no good response: {error}"))
    }

    /// The next response, unless the connection or the response breaks off.
    pub(crate) fn try_response(&mut self) -> io::Result<Response> {
        self.read_response(false)
    }

    /// The same to HEAD.
    pub(crate) fn try_response_to_head(&mut self) -> io::Result<Response> {
        self.read_response(true)
    }

    /// The head of the next response, interim or final; its body is still to be read.
    pub(crate) fn head(&mut self) -> Head {
        self.wire
            .head()
            .expect("a response head")
            .expect("a response before the end")
    }

    /// The next so many bytes, unframed.
    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.wire
            .exactly(length as u64, &mut |piece| bytes.extend_from_slice(piece))
            .unwrap_or_else(|error| panic!("after {:?}: {error}", String::from_utf8_lossy(&bytes)));
        bytes
    }

    /// The next chunk of a chunked body.
    pub(crate) fn chunk(&mut self) -> String {
        let size = self.wire.chunk_size().expect("a chunk");
        let data = self.bytes(size as usize);
        self.wire.chunk_end().expect("the end of a chunk");
        String::from_utf8(data).unwrap()
    }

    /// Whether the proxy closes the connection without saying another word.
    pub(crate) fn is_closed(&mut self) -> bool {
        match self.wire.some() {
            Ok(bytes) => bytes.is_empty(),
            // A reset is how a close looks when what we sent last was not read.
            Err(error) => error.kind() != ErrorKind::TimedOut,
        }
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        self.wire.stream()
    }

    fn read_response(&mut self, to_head: bool) -> io::Result<Response> {
        let mut interim = Vec::new();
        loop {
            let head = self.wire.head()?.ok_or_else(|| {
                io::Error::new(ErrorKind::UnexpectedEof, "closed without a response")
            })?;
            match status_of(&head)? {
                100..200 => interim.push(head),
                status => return self.rest(status, head, to_head, interim),
            }
        }
    }

    fn rest(
        &mut self,
        status: u16,
        head: Head,
        to_head: bool,
        interim: Vec<Head>,
    ) -> io::Result<Response> {
        let announced = head.framing()?;
        let framing = match announced {
            _ if to_head || matches!(status, 204 | 304) => Framing::None,
            Some(framing) => framing,
            None => Framing::UntilClose,
        };
        if status == 204 && announced.is_some() {
            return Err(malformed("framing fields in a 204"));
        }
        let mut body = Vec::new();
        let trailers = self
            .wire
            .body(framing, |piece| body.extend_from_slice(piece))?;
        Ok(Response {
            status,
            head,
            body,
            trailers,
            interim,
        })
    }
}

impl Response {
    /// The first field of that name.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.field(name)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// What the proxy says it did.
    pub(crate) fn cache(&self) -> CacheStatus {
        let all = self.head.all("cache-status").join(", ");
        let own = all.split(',').map(str::trim).rfind(|member| {
            member
                .split(';')
                .next()
                .is_some_and(|name| name.trim() == "microcache")
        });
        CacheStatus(
            own.unwrap_or_else(|| panic!("no Cache-Status of ours in {self:?}"))
                .to_owned(),
        )
    }

    pub(crate) fn is_hit(&self) -> bool {
        self.cache().has("hit")
    }

    /// Asserts that the answer came from the cache.
    #[track_caller]
    pub(crate) fn assert_hit(&self) {
        assert!(
            self.is_hit() && !self.cache().has("fwd"),
            "not a hit: {self:?}"
        );
    }

    /// Asserts that the origin was asked, for that reason.
    #[track_caller]
    pub(crate) fn assert_forwarded(&self, reason: &str) {
        assert!(
            self.cache().get("fwd") == Some(reason) && !self.is_hit(),
            "not fwd={reason}: {self:?}"
        );
    }

    /// Asserts status and body at once.
    #[track_caller]
    pub(crate) fn assert_is(&self, status: u16, body: &str) {
        assert_eq!(
            (self.status, self.text().as_str()),
            (status, body),
            "{self:?}"
        );
    }
}

impl CacheStatus {
    /// The value of a parameter.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .split(';')
            .skip(1)
            .find_map(|parameter| match parameter.trim().split_once('=') {
                Some((key, value)) => (key == name).then_some(value),
                None => (parameter.trim() == name).then_some("?1"),
            })
    }

    /// Whether the parameter is there and not false.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| value != "?0")
    }

    /// Seconds of freshness left; negative when stale.
    pub(crate) fn ttl(&self) -> Option<i64> {
        self.get("ttl")
            .map(|value| value.parse().expect("ttl is an integer"))
    }
}

fn status_of(head: &Head) -> io::Result<u16> {
    let mut words = head.start.splitn(3, ' ');
    match (words.next(), words.next().map(str::parse), words.next()) {
        (Some("HTTP/1.1"), Some(Ok(status @ 100..600)), Some(_)) => Ok(status),
        _ => Err(malformed(&format!("status line {:?}", head.start))),
    }
}
