//! Fake servers that violate memcached's protocol.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;

use microcache_store::memcached::ServerAddress;
use microcache_testkit::listen;

/// Connection threads end with their connections, the listener with the process.
pub(crate) struct Fake {
    address: SocketAddr,
    accepted: Arc<AtomicUsize>,
}

impl Fake {
    /// Sends the same response to every request.
    pub(crate) fn answering(answer: &'static [u8]) -> Self {
        Self::listen(move |stream| {
            thread::spawn(move || converse(stream, |_| answer.to_vec()));
        })
    }

    /// Reads a request and closes the connection.
    pub(crate) fn closing() -> Self {
        Self::listen(|mut stream| {
            thread::spawn(move || stream.read(&mut [0; 4096]));
        })
    }

    /// Greets like memcached without statistics. The first connection that requests an item receives
    /// `first`, but only once a second one exists, which receives `others`.
    pub(crate) fn late(first: &'static [u8], others: &'static [u8]) -> Self {
        let gets = Arc::new(AtomicUsize::new(0));
        let (tell, reported) = channel();
        let reported = Arc::new(Mutex::new(reported));
        Self::listen(move |stream| {
            let (gets, tell, reported) = (Arc::clone(&gets), tell.clone(), Arc::clone(&reported));
            let answer = move |command: &[u8]| match command {
                b"mn" => b"MN\r\n".to_vec(),
                b"stats" => b"END\r\n".to_vec(),
                _ if gets.fetch_add(1, Ordering::SeqCst) == 0 => {
                    let another = reported.lock().expect("no panic").recv();
                    another.map_or(Vec::new(), |()| first.to_vec())
                }
                _ => {
                    let _ = tell.send(());
                    others.to_vec()
                }
            };
            thread::spawn(move || converse(stream, answer));
        })
    }

    fn listen(mut accept: impl FnMut(TcpStream) + Send + 'static) -> Self {
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&accepted);
        let address = listen(move |stream| {
            count.fetch_add(1, Ordering::SeqCst);
            accept(stream);
        });
        Self { address, accepted }
    }

    pub(crate) fn address(&self) -> ServerAddress {
        self.address.to_string().parse().expect("an address")
    }

    /// Number of connections so far.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

/// Responds to each line until the connection ends.
fn converse(mut stream: TcpStream, mut answer: impl FnMut(&[u8]) -> Vec<u8>) {
    let mut line = Vec::new();
    let mut byte = [0];
    while stream.read_exact(&mut byte).is_ok() {
        line.push(byte[0]);
        if let Some(command) = line.strip_suffix(b"\r\n") {
            let answer = answer(command);
            line.clear();
            if stream.write_all(&answer).is_err() {
                return;
            }
        }
    }
}
