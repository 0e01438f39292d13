//! The thread that sends spans: several per request, with retries.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use microcache_proxy::{Kind, Notices, TraceCounts};
use serde_json::json;
use ureq::Agent;

use super::command::SenderCommand;

/// The maximum number of spans per request.
const BATCH: usize = 512;
/// The time that spans wait for others to share a request.
const GATHER: Duration = Duration::from_secs(1);
/// The timeout of a request.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// The number of retries, and the pause before the first, which doubles.
const RETRIES: u32 = 2;
const PAUSE: Duration = Duration::from_millis(500);

pub(super) struct Sender {
    url: String,
    agent: Agent,
    counts: Arc<TraceCounts>,
    notices: Notices,
}

/// A failed request.
struct SendError {
    why: String,
    /// A retry may succeed.
    is_passing: bool,
}

impl Sender {
    pub(super) fn new(url: String, counts: Arc<TraceCounts>, notices: Notices) -> Self {
        let config = Agent::config_builder()
            .timeout_global(Some(TIME_LIMIT))
            .http_status_as_error(false)
            // The proxy of the environment is for the web, not for the collector.
            .proxy(None)
            .build();
        Self {
            url,
            agent: config.into(),
            counts,
            notices,
        }
    }

    /// Sends spans until the exporter ends.
    pub(super) fn run(&self, spans: &Receiver<SenderCommand>) {
        let mut batch = Vec::with_capacity(BATCH);
        let mut due = None;
        loop {
            let until = *due.get_or_insert_with(|| Instant::now() + GATHER);
            let left = until.saturating_duration_since(Instant::now());
            match spans.recv_timeout(left) {
                Ok(SenderCommand::Span(span)) => {
                    batch.push(span);
                    if batch.len() < BATCH {
                        continue;
                    }
                }
                Ok(SenderCommand::Finish(done)) => {
                    self.send(&batch, 0);
                    let _ = done.try_send(());
                    return;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.send(&batch, RETRIES);
            batch.clear();
            due = None;
        }
    }

    fn send(&self, batch: &[String], retries: u32) {
        if batch.is_empty() {
            return;
        }
        let body = request(batch);
        let mut pause = PAUSE;
        let mut tried = 0;
        let counted = loop {
            let refused = match self.try_send(&body) {
                Ok(()) => break &self.counts.sent,
                Err(refused) => refused,
            };
            if !refused.is_passing || tried == retries {
                let (url, why) = (&self.url, &refused.why);
                let line = format!("traces: {url} rejects spans: {why}; {} lost", batch.len());
                self.notices.say(Kind::Traces, url, line);
                break &self.counts.failed;
            }
            tried += 1;
            sleep(pause);
            pause *= 2;
        };
        counted.fetch_add(batch.len() as u64, Ordering::Relaxed);
    }

    fn try_send(&self, body: &str) -> Result<(), SendError> {
        let request = self.agent.post(&self.url);
        let answer = request
            .header("Content-Type", "application/json")
            .send(body);
        let answer = answer.map_err(|error| SendError {
            why: error.to_string(),
            is_passing: true,
        })?;
        let status = answer.status();
        if status.is_success() {
            return Ok(());
        }
        Err(SendError {
            why: format!("status {status}"),
            // The statuses that OTLP names as retryable.
            is_passing: matches!(status.as_u16(), 429 | 502..=504),
        })
    }
}

/// Returns a request with these spans, which are JSON already.
fn request(spans: &[String]) -> String {
    let attribute = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
    let resource = json!({"attributes": [
        attribute("service.name", "microcache"),
        attribute("service.version", env!("CARGO_PKG_VERSION")),
        attribute("process.pid", &std::process::id().to_string()),
    ]});
    let mut body = String::with_capacity(spans.iter().map(String::len).sum::<usize>() + 512);
    // Writing to a string does not fail.
    let _ = write!(
        body,
        r#"{{"resourceSpans":[{{"resource":{resource},"scopeSpans":[{{"scope":{{"name":"microcache"}},"spans":["#
    );
    for (number, span) in spans.iter().enumerate() {
        if number > 0 {
            body.push(',');
        }
        body.push_str(span);
    }
    body.push_str("]}]}]}");
    body
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn spans_stand_where_otlp_has_them() {
        let spans = [
            json!({"name": "a\"b"}).to_string(),
            json!({"name": "c"}).to_string(),
        ];
        let sent: Value = serde_json::from_str(&request(&spans)).expect("JSON");
        let all = &sent["resourceSpans"][0]["scopeSpans"][0]["spans"];
        assert_eq!(*all, json!([{"name": "a\"b"}, {"name": "c"}]));
        let resource = &sent["resourceSpans"][0]["resource"]["attributes"];
        assert_eq!(resource[0]["value"]["stringValue"], "microcache");
    }
}
