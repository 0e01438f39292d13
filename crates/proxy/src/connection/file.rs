//! Stored bodies in files: sent from the page cache to the socket with `sendfile`.

use std::io;
use std::time::Duration;

use microcache_engine::FileReader;
use rustix::io::{ReadWriteFlags, preadv2};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::send::OutputQueue;
use super::socket;

/// Bytes sent at a time, after a check that they are in the page cache.
const WINDOW: u64 = 1024 * 1024;

/// Sends the head, and as much of a verified body as the page cache holds. The rest is left to be read on a
/// thread that may block; so is the head if it would be sent alone.
pub(super) async fn send(
    stream: &TcpStream,
    head: &mut OutputQueue,
    body: &mut FileReader,
    stall: Duration,
) -> io::Result<()> {
    while body.remaining() > 0 {
        let Some((file, start)) = body.direct() else {
            return Ok(());
        };
        let window = body.remaining().min(WINDOW);
        if !(is_cached(file, start) && is_cached(file, start + window - 1)) {
            return Ok(());
        }
        std::mem::take(head).send_before_more(stream, stall).await?;
        let mut at = start;
        while at < start + window {
            match socket::try_send_file(stream, file, at, start + window) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(sent) => at += sent as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    timeout(stall, stream.writable()).await??;
                }
                Err(error) => return Err(error),
            }
        }
        body.advance(window);
    }
    Ok(())
}

/// Returns `true` if a byte of a file can be read without waiting for the disk.
fn is_cached(file: &std::fs::File, at: u64) -> bool {
    let mut byte = [0];
    let mut pieces = [io::IoSliceMut::new(&mut byte)];
    preadv2(file, &mut pieces, at, ReadWriteFlags::NOWAIT).is_ok_and(|length| length == 1)
}
