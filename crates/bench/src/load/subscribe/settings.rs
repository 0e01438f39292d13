//! What is subscribed to, by how many, and what is published meanwhile.

use std::time::Duration;

use super::document::Document;
use crate::load::target::Url;

/// Streams on the first url of the settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Subscribe {
    /// How many.
    pub streams: usize,
    /// What is spoken on them.
    pub kind: Kind,
    /// The share of them that stop reading after their first event.
    pub stalled: f64,
    /// What is published while they are open.
    pub publish: Option<Publish>,
}

/// What is spoken on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Server-sent events over HTTP/1.1.
    Events,
    /// The messages of a WebSocket.
    WebSocket,
}

/// What is published.
#[derive(Clone, Debug, PartialEq)]
pub struct Publish {
    /// The time from one publication to the next.
    pub every: Duration,
    /// Where.
    pub url: Url,
    /// The method.
    pub method: String,
    /// What.
    pub document: Document,
}

impl Subscribe {
    /// Whether the stream with this number is one of those that stop reading, which are spread evenly.
    pub(super) fn stalls(&self, number: usize) -> bool {
        let before = |number: usize| (number as f64 * self.stalled).floor();
        before(number + 1) > before(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_stall_are_spread_evenly() {
        for (stalled, expected) in [
            (0.0, vec![]),
            (0.1, vec![9, 19]),
            (0.25, vec![3, 7, 11, 15, 19]),
            (1.0, (0..20).collect()),
        ] {
            let subscribe = Subscribe {
                streams: 20,
                kind: Kind::Events,
                stalled,
                publish: None,
            };
            let stalling: Vec<_> = (0..20).filter(|&number| subscribe.stalls(number)).collect();
            assert_eq!(stalling, expected, "{stalled}");
        }
    }
}
