//! The error stream of an application, for the log.

use super::server::FastCgiServer;

/// Most bytes of one response that are logged.
const MAX_TEXT: usize = 4096;

/// The error stream of one response: one event in the log, because an error and its stack trace belong together.
#[derive(Debug, Default)]
pub(super) struct ErrorOutput {
    text: Vec<u8>,
}

impl ErrorOutput {
    /// Takes more of the stream; bytes above the limit are dropped.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let room = MAX_TEXT - self.text.len();
        self.text.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Logs what was written.
    pub(super) fn log(&mut self, server: &FastCgiServer) {
        let text = std::mem::take(&mut self.text);
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text
            .lines()
            .map(|line| line.replace(char::is_control, " "))
            .collect();
        // php-fpm begins every message but the first one with a semicolon.
        let line = lines.join(" | ");
        let line = line.trim_matches([' ', ';', '|']);
        if !line.is_empty() {
            server.log(line);
        }
    }
}
