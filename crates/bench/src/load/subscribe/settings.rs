//! Settings of a subscription run.

use std::time::Duration;

use super::document::DocumentTemplate;
use crate::load::target::TargetUrl;

/// Streams on the first target of the settings.
#[derive(Clone, Debug, PartialEq)]
pub struct SubscribeSettings {
    /// Number of streams.
    pub streams: usize,
    /// Protocol of the streams.
    pub kind: StreamKind,
    /// Fraction of streams that stop reading after their first event.
    pub stalled: f64,
    /// Publications while the streams are open.
    pub publish: Option<PublishSettings>,
}

/// Protocol of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// Server-sent events over HTTP/1.1.
    Events,
    /// WebSocket messages (RFC 6455).
    WebSocket,
}

/// Publications of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishSettings {
    /// Interval between publications.
    pub every: Duration,
    /// URL of the requests.
    pub url: TargetUrl,
    /// Method of the requests.
    pub method: String,
    /// Template of the published documents.
    pub document: DocumentTemplate,
}

impl SubscribeSettings {
    /// Returns whether this stream stops reading. Such streams are spread evenly.
    pub(super) fn stalls(&self, number: usize) -> bool {
        let before = |number: usize| (number as f64 * self.stalled).floor();
        before(number + 1) > before(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalled_streams_are_spread_evenly() {
        for (stalled, expected) in [
            (0.0, vec![]),
            (0.1, vec![9, 19]),
            (0.25, vec![3, 7, 11, 15, 19]),
            (1.0, (0..20).collect()),
        ] {
            let subscribe = SubscribeSettings {
                streams: 20,
                kind: StreamKind::Events,
                stalled,
                publish: None,
            };
            let stalling: Vec<_> = (0..20).filter(|&number| subscribe.stalls(number)).collect();
            assert_eq!(stalling, expected, "{stalled}");
        }
    }
}
