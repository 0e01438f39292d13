//! What lies in shared tiers beside records, and a server that is none.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::thread;

use crate::support::listen;

/// The items of the purge log in memcached without purges, and its keys in Redis.
pub(crate) const LOG_ITEMS: usize = 2;
pub(crate) const LOG_KEYS: usize = 1;

/// A server that answers every line with another one that means nothing.
pub(crate) fn babbling() -> SocketAddr {
    listen(|stream| {
        thread::spawn(move || {
            let mut answers = stream.try_clone().expect("a socket");
            let mut lines = BufReader::new(stream);
            let mut line = Vec::new();
            while matches!(
                lines.by_ref().take(4096).read_until(b'\n', &mut line),
                Ok(1..)
            ) {
                line.clear();
                let answer = answers.write_all(b"220 mail.example.com ESMTP\r\n");
                if answer.is_err() {
                    return;
                }
            }
        });
    })
}
