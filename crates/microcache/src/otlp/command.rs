//! Commands to the thread that sends spans.

use std::sync::mpsc::SyncSender;

/// A command to the sender.
pub(super) enum SenderCommand {
    /// A span, as JSON.
    Span(String),
    /// The end: the sender sends all spans, and confirms.
    Finish(SyncSender<()>),
}
