//! How hyper reads what stands on a connection.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use hyper::body::{Body as _, Incoming};
use hyper::http::{request, response};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::service::service_fn;

/// A message body, as far as hyper got.
#[derive(Debug, Default)]
pub struct Body {
    /// Its bytes.
    pub data: Vec<u8>,
    /// Its trailers.
    pub trailers: http::HeaderMap,
    /// Whether it came to its end.
    pub complete: bool,
}

/// A request as hyper understood it.
#[derive(Debug)]
pub struct Request {
    /// The head.
    pub head: request::Parts,
    /// The body.
    pub body: Body,
}

/// Lets hyper's server read all requests in `input`.
pub fn read_requests(input: &[u8]) -> Vec<Request> {
    let requests = RefCell::new(Vec::new());
    let service = service_fn(|request: hyper::Request<Incoming>| {
        let (head, body) = request.into_parts();
        let index = {
            let mut requests = requests.borrow_mut();
            requests.push(Request {
                head,
                body: Body::default(),
            });
            requests.len() - 1
        };
        let requests = &requests;
        async move {
            let body = read_body(body).await;
            requests.borrow_mut()[index].body = body;
            Ok::<_, Infallible>(hyper::Response::new(String::new()))
        }
    });
    let wire = Wire {
        input,
        readable: true,
    };
    // How the connection ends says nothing about the requests that were read on it.
    let _ = run(hyper::server::conn::http1::Builder::new()
        .half_close(true)
        .header_read_timeout(None)
        .serve_connection(wire, service));
    requests.into_inner()
}

/// A response as hyper understood it.
#[derive(Debug)]
pub struct Response {
    /// The head.
    pub head: response::Parts,
    /// The body.
    pub body: Body,
}

/// Lets hyper's client read `input` as the response to a GET.
pub fn read_response(input: &[u8]) -> Option<Response> {
    let wire = Wire {
        input,
        readable: false,
    };
    let (mut sender, connection) = run(hyper::client::conn::http1::handshake(wire)).ok()?;
    let request = hyper::Request::get("/")
        .header("host", "a")
        .body(String::new())
        .expect("a valid request");
    let response = async {
        let (head, body) = sender.send_request(request).await.ok()?.into_parts();
        let body = read_body(body).await;
        Some(Response { head, body })
    };
    let mut connection = pin!(connection);
    let mut response = pin!(response);
    let mut connected = true;
    run(poll_fn(|cx| {
        if let Poll::Ready(done) = response.as_mut().poll(cx) {
            return Poll::Ready(done);
        }
        if connected {
            connected = connection.as_mut().poll(cx).is_pending();
        }
        Poll::Pending
    }))
}

async fn read_body(mut incoming: Incoming) -> Body {
    let mut body = Body::default();
    loop {
        match poll_fn(|cx| Pin::new(&mut incoming).poll_frame(cx)).await {
            None => {
                body.complete = true;
                return body;
            }
            Some(Err(_)) => return body,
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => body.data.extend_from_slice(&data),
                Err(other) => body.trailers = other.into_trailers().unwrap_or_default(),
            },
        }
    }
}

/// Polls until it is done. All input is there from the beginning, so there is nothing to wait for.
fn run<T>(work: impl Future<Output = T>) -> T {
    /// Far beyond what inputs of a fuzzer need.
    const MAX_POLLS: usize = 1_000_000;
    let mut work = pin!(work);
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..MAX_POLLS {
        if let Poll::Ready(done) = work.as_mut().poll(&mut cx) {
            return done;
        }
    }
    panic!("hyper waits for something that nobody sends");
}

/// The other end has sent `input` and then closed its side, and takes whatever comes.
struct Wire<'a> {
    input: &'a [u8],
    /// A client must not see its answer before it has asked.
    readable: bool,
}

impl Read for Wire<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.readable {
            return Poll::Pending;
        }
        let (now, later) = self.input.split_at(self.input.len().min(buf.remaining()));
        buf.put_slice(now);
        self.input = later;
        Poll::Ready(Ok(()))
    }
}

impl Write for Wire<'_> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.readable = true;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
