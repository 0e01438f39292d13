//! The `h2` crate on both sides of the program: what its client writes our own reader of HTTP/2 has to understand, and what our
//! writer makes of the answer its client has to. The origin gives back what it was sent, so that both have to be the same.

use std::net::SocketAddr;

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use tokio::net::TcpStream;

use super::HTTP2;
use super::server::Server;
use crate::support::Proxy;

/// Marsaglia's xorshift: the same on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }

    fn one_of<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    /// Letters, digits and dashes: requests with others in their names lose those fields on the way.
    fn name(&mut self) -> HeaderName {
        const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789-";
        let length = self.below(30);
        let mut name = b"x-mirror-".to_vec();
        name.extend((0..length).map(|_| *self.one_of(LETTERS)));
        HeaderName::from_bytes(&name).expect("a name")
    }

    /// Any bytes that a value may have, with white space in the middle only.
    fn value(&mut self) -> HeaderValue {
        let longest = *self.one_of(&[1, 10, 100, 100, 3000]);
        let length = self.below(longest);
        let letters: Vec<u8> = (b' '..=b'~').chain(0x80..=0xff).chain([b'\t']).collect();
        let mut value: Vec<u8> = (0..length).map(|_| *self.one_of(&letters)).collect();
        for end in [0, length.wrapping_sub(1)] {
            if let Some(byte @ (b' ' | b'\t')) = value.get_mut(end) {
                *byte = b'.';
            }
        }
        let mut value = HeaderValue::from_bytes(&value).expect("a value");
        value.set_sensitive(self.below(10) == 0);
        value
    }

    /// New fields, and some that were there before: those have entered the tables.
    fn fields(&mut self, most: usize, known: &mut Vec<(HeaderName, HeaderValue)>) -> HeaderMap {
        let mut fields = HeaderMap::new();
        let mut size = 0;
        for _ in 0..self.below(most) {
            if known.is_empty() || self.below(3) == 0 {
                let name = match known.first() {
                    Some(_) if self.below(2) == 0 => self.one_of(known).0.clone(),
                    _ => self.name(),
                };
                known.push((name, self.value()));
            }
            let (name, value) = self.one_of(known).clone();
            size += name.as_str().len() + value.len() + 32;
            // All of them have to fit into `max_head_size`, and trailers into 8 KiB.
            if size < most * 300 {
                fields.append(name, value);
            }
        }
        fields
    }
}

/// What goes there and comes back.
#[derive(Debug, PartialEq)]
struct Message {
    fields: HeaderMap,
    content: Vec<u8>,
    trailers: HeaderMap,
}

fn only_ours(fields: &HeaderMap) -> HeaderMap {
    let ours = fields
        .iter()
        .filter(|(name, _)| name.as_str().starts_with("x-mirror-"));
    ours.map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

async fn send(mut stream: SendStream<Bytes>, content: Vec<u8>, trailers: HeaderMap, step: usize) {
    for piece in content.chunks(step) {
        stream
            .send_data(Bytes::copy_from_slice(piece), false)
            .expect("it is open");
        tokio::task::yield_now().await;
    }
    if trailers.is_empty() {
        stream.send_data(Bytes::new(), true).expect("it is open");
    } else {
        stream.send_trailers(trailers).expect("it is open");
    }
}

async fn receive(mut body: RecvStream) -> (Vec<u8>, HeaderMap) {
    let mut content = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.expect("it goes on");
        body.flow_control()
            .release_capacity(data.len())
            .expect("it was taken");
        content.extend(data);
    }
    let trailers = body.trailers().await.expect("it goes on");
    (content, trailers.unwrap_or_default())
}

async fn mirror(requests: &mut SendRequest<Bytes>, sent: Message, step: usize, number: usize) {
    let mut request = Request::post(format!("http://example.com/mirror/{number}?a=b|c"))
        .body(())
        .expect("a request");
    *request.headers_mut() = sent.fields.clone();
    let (answer, stream) = requests.send_request(request, false).expect("it is open");
    let sending = send(stream, sent.content.clone(), sent.trailers.clone(), step);
    let receiving = async {
        let (head, body) = answer.await.expect("an answer").into_parts();
        assert_eq!(head.status, 200);
        let (content, trailers) = receive(body).await;
        let (fields, trailers) = (only_ours(&head.headers), only_ours(&trailers));
        Message {
            fields,
            content,
            trailers,
        }
    };
    let ((), received) = tokio::join!(sending, receiving);
    let same = [
        received.fields == sent.fields,
        received.content == sent.content,
        received.trailers == sent.trailers,
    ];
    assert_eq!(same, [true; 3], "{number}: {sent:?} became {received:?}");
}

async fn converse(address: SocketAddr, random: &mut Random) {
    let socket = TcpStream::connect(address).await.expect("a connection");
    let mut builder = Builder::new();
    builder
        .initial_window_size(*random.one_of(&[100, 20_000, 1 << 20]))
        .header_table_size(*random.one_of(&[0, 200, 4096]));
    let (requests, connection) = builder.handshake(socket).await.expect("a session");
    tokio::spawn(async move { connection.await.expect("it breaks no rule") });
    let mut known = Vec::new();
    for round in 0..5 {
        let mut conversations = tokio::task::JoinSet::new();
        for number in 0..12 {
            let longest = *random.one_of(&[1, 100, 30_000]);
            let sent = Message {
                fields: random.fields(40, &mut known),
                content: (0..random.below(longest))
                    .map(|at| (at % 251) as u8)
                    .collect(),
                trailers: random.fields(5, &mut known),
            };
            let step = 100 + random.below(20_000);
            let mut requests = requests.clone().ready().await.expect("it goes on");
            conversations.spawn(async move {
                mirror(&mut requests, sent, step, round * 12 + number).await;
            });
        }
        while let Some(done) = conversations.join_next().await {
            done.expect("the same");
        }
    }
}

#[test]
fn a_request_through_both_sides_comes_back_unchanged() {
    let server = Server::plain();
    let proxy = Proxy::before_url(&server.url(), &[HTTP2, "--threads", "1"]);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        for _ in 0..6 {
            converse(proxy.address(), &mut random).await;
        }
    });
    assert_eq!(server.requests().len(), 6 * 5 * 12);
}
