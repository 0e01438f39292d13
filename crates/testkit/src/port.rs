//! Ports of loopback for servers that have to be named before they listen.

use std::net::{Ipv4Addr, TcpListener};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// Ports below those that Linux gives to connections, and to listeners that ask for any: none of them takes one meanwhile.
const FIRST: u32 = 12_000;
const COUNT: u32 = 20_000;

/// Returns a port on which nothing listens, and which no other call in this process returns.
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
