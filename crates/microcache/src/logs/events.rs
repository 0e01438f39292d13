//! The server log: every `tracing` event of this program, as a line.

use std::fmt::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use microcache_policy::Time;
use microcache_proxy::config::{LogForm, LogLevel};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use super::form::{escape_text, push_date, push_number, quote_json};
use super::writer::Writer;

/// The `tracing` layer that writes events.
pub(super) struct EventLog {
    pub(super) writer: Writer,
    pub(super) form: LogForm,
    pub(super) level: LogLevel,
}

/// The fields of an event.
#[derive(Default)]
struct EventFields {
    message: String,
    /// The number of similar events suppressed.
    more: u64,
    /// Other fields, by name.
    fields: Vec<(&'static str, Value)>,
}

enum Value {
    Text(String),
    Number(u64),
}

impl<S: Subscriber> Layer<S> for EventLog {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        *metadata.level() <= self.most() && metadata.target().starts_with("microcache")
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.most().into())
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut said = EventFields::default();
        event.record(&mut said);
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = Time::from_millis(since.map_or(0, |since| since.as_millis() as u64));
        let mut line = Vec::with_capacity(256);
        match self.form {
            LogForm::Text => said.text(&mut line, now, *event.metadata().level()),
            LogForm::Json => said.json(&mut line, now, *event.metadata().level()),
        }
        line.push(b'\n');
        let is_urgent = *event.metadata().level() < Level::DEBUG;
        self.writer.push_lines(&line, 1, is_urgent);
    }
}

impl EventLog {
    const fn most(&self) -> Level {
        match self.level {
            LogLevel::Error => Level::ERROR,
            LogLevel::Warn => Level::WARN,
            LogLevel::Info => Level::INFO,
            LogLevel::Debug => Level::DEBUG,
        }
    }
}

impl EventFields {
    /// `2026-11-22T08:20:48.123Z WARN microcache: message (and 41 more like this)`
    fn text(&self, out: &mut Vec<u8>, now: Time, level: Level) {
        push_date(out, now);
        out.push(b' ');
        out.extend_from_slice(level.as_str().as_bytes());
        out.extend_from_slice(b" microcache: ");
        escape_message(out, &self.message);
        if self.more > 0 {
            out.extend_from_slice(format!(" (and {} more like this)", self.more).as_bytes());
        }
    }

    fn json(&self, out: &mut Vec<u8>, now: Time, level: Level) {
        out.extend_from_slice(b"{\"time\":\"");
        push_date(out, now);
        out.extend_from_slice(b"\",\"level\":\"");
        out.extend_from_slice(level.as_str().to_ascii_lowercase().as_bytes());
        out.push(b'"');
        for (name, value) in &self.fields {
            out.push(b',');
            quote_json(out, name.as_bytes());
            out.push(b':');
            match value {
                Value::Text(text) => quote_json(out, text.as_bytes()),
                Value::Number(number) => push_number(out, *number),
            }
        }
        out.extend_from_slice(b",\"message\":");
        quote_json(out, self.message.as_bytes());
        if self.more > 0 {
            out.extend_from_slice(format!(",\"more\":{}", self.more).as_bytes());
        }
        out.push(b'}');
    }
}

/// Formats text: quotes are kept, line ends and terminal controls are escaped.
fn escape_message(out: &mut Vec<u8>, message: &str) {
    for char in message.chars() {
        let mut bytes = [0; 4];
        let text = char.encode_utf8(&mut bytes).as_bytes();
        if matches!(char, '"' | '\\') || char.is_alphanumeric() {
            out.extend_from_slice(text);
        } else {
            escape_text(out, text);
        }
    }
}

impl Visit for EventFields {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            // No subject.
            _ if value.is_empty() => {}
            name => self.fields.push((name, Value::Text(value.to_owned()))),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "more" => self.more = value,
            name => self.fields.push((name, Value::Number(value))),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = String::new();
        let _ = write!(text, "{value:?}");
        self.record_str(field, &text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said() -> EventFields {
        EventFields {
            message: "origin a: its answer was \"é\r\n2026 \x1b[2J\u{202e}\"".to_owned(),
            more: 41,
            fields: vec![
                ("kind", Value::Text("origin-malformed".to_owned())),
                ("about", Value::Text("a\"\n".to_owned())),
                ("dropped", Value::Number(7)),
            ],
        }
    }

    #[test]
    fn text_is_one_line_for_people() {
        let mut line = Vec::new();
        said().text(&mut line, Time::from_millis(1_795_335_648_007), Level::WARN);
        assert_eq!(
            String::from_utf8(line).expect("it is text"),
            "2026-11-22T08:20:48.007Z WARN microcache: origin a: its answer was \
             \"é\\x0D\\x0A2026 \\x1B[2J\\xE2\\x80\\xAE\" (and 41 more like this)"
        );
    }

    #[test]
    fn json_is_one_object() {
        let mut line = Vec::new();
        said().json(
            &mut line,
            Time::from_millis(1_795_335_648_007),
            Level::ERROR,
        );
        assert!(!line.contains(&b'\n'));
        let read: serde_json::Value = serde_json::from_slice(&line).expect("it is JSON");
        let expected = serde_json::json!({
            "time": "2026-11-22T08:20:48.007Z",
            "level": "error",
            "kind": "origin-malformed",
            "about": "a\"\n",
            "dropped": 7,
            "message": said().message,
            "more": 41,
        });
        assert_eq!(read, expected);
    }
}
