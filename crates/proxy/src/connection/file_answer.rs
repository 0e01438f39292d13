//! Responses whose body is in a file.

use std::sync::atomic::AtomicBool;

use super::client::{ClientWriter, ResponseProgress};
use super::exchange::ReadSide;
use super::presence::ClientPresence;
use super::state::{Connection, FileAnswer};

impl Connection {
    /// Sends a response whose body is in a file. Returns whether the connection can be reused.
    pub(super) async fn send_file(&mut self, answer: FileAnswer) -> bool {
        let FileAnswer {
            mut response,
            response_framing,
            mut account,
            mut unsent,
        } = answer;
        let shared = &self.session.shared;
        let now = shared.engine.clock.now();
        let nothing_to_read = AtomicBool::new(true);
        let Ok((reader, writer)) = self.stream.split() else {
            return false;
        };
        let timeouts = shared.timeouts;
        let watch = ClientPresence::default();
        let mut client = ClientWriter::new(
            writer,
            response_framing,
            timeouts.write,
            &watch,
            self.session.strict(),
        );
        let reading = ReadSide {
            reader,
            watch: &watch,
            time_limit: timeouts.half_closed,
        };
        let reading = reading.run(&mut self.input, None, &nothing_to_read);
        let answering = async {
            client.send(&mut unsent).await?;
            client
                .respond(&mut response, false, &mut account, now)
                .await
        };
        tokio::select! {
            biased;
            answered = answering => matches!(answered, Ok(ResponseProgress::Open)),
            () = reading => false,
        }
    }
}
