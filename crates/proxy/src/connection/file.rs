//! Stored bodies that lie in files: from the disk's cache to the socket inside the kernel.

use std::io;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use microcache_engine::FileReader;
use rustix::io::{ReadWriteFlags, preadv2};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::client::{Client, Sent};
use super::exchange::ReadSide;
use super::send::Output;
use super::watch::Watch;
use super::{Connection, FileAnswer, socket};

/// Sent at a time, after a look whether it can be without waiting for the disk.
const WINDOW: u64 = 1024 * 1024;

impl Connection {
    /// Sends an answer whose body lies in a file. Says whether the connection can go on.
    pub(super) async fn send_file(&mut self, answer: FileAnswer) -> bool {
        let FileAnswer {
            response,
            asked,
            mut account,
            unsent,
        } = answer;
        let shared = &self.session.shared;
        let now = shared.engine.clock.now();
        let nothing_to_read = AtomicBool::new(true);
        let (reader, writer) = self.stream.split();
        let timeouts = shared.timeouts;
        let watch = Watch::default();
        let mut client = Client::new(writer, asked, timeouts.write, &watch, self.session.strict());
        let reading = ReadSide {
            reader,
            watch: &watch,
            patience: timeouts.half_closed,
        };
        let reading = reading.run(&mut self.input, None, &nothing_to_read);
        let answering = async {
            client.send(unsent).await?;
            client.respond(response, false, &mut account, now).await
        };
        tokio::select! {
            biased;
            answered = answering => matches!(answered, Ok(Sent::Open)),
            () = reading => false,
        }
    }
}

/// Sends the head, and as much of a verified body as lies in the disk's cache; what does not is
/// left, to be read where waiting is allowed. So is the head if that is everything.
pub(super) async fn send(
    stream: &TcpStream,
    head: &mut Output,
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

/// Whether a byte of a file can be had without waiting.
fn is_cached(file: &std::fs::File, at: u64) -> bool {
    let mut byte = [0];
    let mut pieces = [io::IoSliceMut::new(&mut byte)];
    preadv2(file, &mut pieces, at, ReadWriteFlags::NOWAIT).is_ok_and(|length| length == 1)
}
