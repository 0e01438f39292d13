//! Server-sent events, as a client reads them.

use super::Client;
use super::wire::Head;

/// Events as they come.
pub(crate) struct Events {
    client: Client,
    text: String,
}

impl Events {
    /// Of a client that has asked for them.
    pub(crate) fn begin(client: Client) -> Self {
        Self::with_head(client).1
    }

    /// The same, with the head of the response.
    pub(crate) fn with_head(mut client: Client) -> (Head, Self) {
        let head = client.head();
        assert_eq!(head.start, "HTTP/1.1 200 OK");
        assert_eq!(head.field("content-type"), Some("text/event-stream"));
        let mut events = Self {
            client,
            text: String::new(),
        };
        // It is a line of the first event.
        let rest = loop {
            if let Some((greeting, rest)) = events.text.split_once('\n') {
                assert!(greeting.starts_with("retry: "), "{greeting}");
                break rest.trim_start_matches("id: -\n").to_owned();
            }
            events.text += &events.client.chunk();
        };
        events.text = rest;
        (head, events)
    }

    /// The next event, as it is written.
    pub(crate) fn next(&mut self) -> String {
        self.next_or_end().expect("an event before the end")
    }

    /// The same; `None` if no event comes any more.
    pub(crate) fn next_or_end(&mut self) -> Option<String> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                return Some(event);
            }
            let chunk = self.client.chunk();
            if chunk.is_empty() {
                return None;
            }
            self.text += &chunk;
        }
    }

    /// The next event's id, its kind and its data.
    pub(crate) fn event(&mut self) -> (String, String, String) {
        let event = self.next();
        let of = |name: &str| {
            let lines = event.lines().filter_map(|line| line.strip_prefix(name));
            lines.collect::<Vec<_>>().join("\n")
        };
        (of("id: "), of("event: "), of("data: "))
    }

    /// The next event's data.
    pub(crate) fn data(&mut self) -> String {
        self.event().2
    }
}
