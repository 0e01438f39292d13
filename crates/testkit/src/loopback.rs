//! Ports of loopback.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

/// First port of the range, which ends below Linux's ephemeral ports: neither outgoing connections nor listeners on
/// port 0 take a port of it.
const FIRST: u32 = 12_000;
/// Number of ports in the range.
const COUNT: u32 = 20_000;

/// Returns a port on which nothing listens, and which no other call in this process returns: for a server to be started
/// there, or for the address of an unreachable one.
pub fn free_port() -> u16 {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    // Other processes begin elsewhere.
    let begin = process::id().wrapping_mul(7919);
    for _ in 0..COUNT {
        let call = CALLS.fetch_add(1, Ordering::Relaxed);
        let port = (FIRST + begin.wrapping_add(call) % COUNT) as u16;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no port is free");
}

/// Listens at a port until the process ends, and calls a function with each connection, one after the other.
pub fn listen(each: impl FnMut(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || listener.incoming().map_while(Result::ok).for_each(each));
    address
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn a_free_port_is_given_once() {
        let [one, other] = [(); 2].map(|()| free_port());
        assert_ne!(one, other);
        assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, one)).is_err());
    }

    #[test]
    fn each_connection_is_handed_over() {
        let mut count = 0_u8;
        let address = listen(move |mut stream| {
            count += 1;
            stream.write_all(&[count]).expect("it is read");
        });
        for expected in 1..=3 {
            let mut read = [0];
            let mut stream = TcpStream::connect(address).expect("it listens");
            stream.read_exact(&mut read).expect("a byte");
            assert_eq!(read, [expected]);
        }
    }
}
