//! The access log: one line for each request, as text or as JSON.

use std::cell::RefCell;

use http::Version;
use microcache_engine::clock;
use microcache_proxy::config::{Config, LogForm};
use microcache_proxy::{FinishedRequest, by_chance};

use super::form::{escape_text, push_common_date, push_date, push_number, quote_json, quote_text};
use super::writer::Writer;

/// The status of a request whose client left before the response, as in nginx.
const CLIENT_LEFT: u16 = 499;

/// The access log.
pub(super) struct AccessLog {
    pub(super) writer: Writer,
    pub(super) config: Config,
}

/// The fields of a line beyond the request itself.
struct Facts<'a> {
    status: u16,
    outcome: &'static str,
    /// The route that took it.
    route: Option<&'a str>,
    first_byte_millis: Option<u64>,
    total_millis: u64,
    /// The `Cache-Status` member.
    cache_status: Option<Vec<u8>>,
    /// The coding that was made here.
    coding: Option<&'static str>,
    /// The share of such requests that get a line, if not all do.
    sample: Option<f64>,
}

impl AccessLog {
    /// Writes the line of a request, if it is logged, without blocking.
    pub(super) fn write(&self, finished: &FinishedRequest<'_>) {
        thread_local! {
            static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        let share = self.config.logs.access_sample;
        let is_failure = finished.answer.is_some_and(|answer| answer.status >= 500);
        if share < 1.0 && !is_failure && !by_chance(share) {
            return;
        }
        let sample = (share < 1.0 && !is_failure).then_some(share);
        LINE.with_borrow_mut(|line| {
            line.clear();
            self.line(line, finished, sample);
            self.writer.push(line);
        });
    }

    fn line(&self, out: &mut Vec<u8>, finished: &FinishedRequest<'_>, sample: Option<f64>) {
        let answer = finished.answer;
        let facts = Facts {
            status: answer.map_or(CLIENT_LEFT, |answer| answer.status),
            outcome: answer.map_or("aborted", |answer| answer.outcome.as_str()),
            route: finished.route,
            first_byte_millis: answer.map(|answer| answer.at.since(finished.began)),
            total_millis: finished.ended.since(finished.began),
            cache_status: answer.map(|answer| {
                let mut value = Vec::with_capacity(96);
                answer.cache_status.write(&mut value);
                value
            }),
            coding: answer.and_then(|answer| Some(answer.cache_status.coding?.as_str())),
            sample,
        };
        match self.config.logs.access_form {
            LogForm::Text => self.text(out, finished, &facts),
            LogForm::Json => self.json(out, finished, &facts),
        }
        out.push(b'\n');
    }

    fn text(&self, out: &mut Vec<u8>, finished: &FinishedRequest<'_>, facts: &Facts<'_>) {
        out.extend_from_slice(finished.address.as_bytes());
        out.extend_from_slice(b" - - [");
        push_common_date(out, clock::date(finished.began));
        out.extend_from_slice(b"] \"");
        if let Some(request) = &finished.request {
            escape_text(out, request.method.as_str().as_bytes());
            out.push(b' ');
            escape_text(out, self.shown(request.target));
            out.push(b' ');
            out.extend_from_slice(protocol(finished.version).as_bytes());
        } else {
            out.push(b'-');
        }
        out.extend_from_slice(b"\" ");
        push_number(out, facts.status.into());
        out.push(b' ');
        push_number(out, finished.bytes);
        for name in ["Referer", "User-Agent"] {
            out.push(b' ');
            quote_text(out, self.field(finished, name).unwrap_or(b"-"));
        }
        out.extend_from_slice(b" outcome=");
        out.extend_from_slice(facts.outcome.as_bytes());
        if let Some(millis) = facts.first_byte_millis {
            out.extend_from_slice(b" first_byte_ms=");
            push_number(out, millis);
        }
        out.extend_from_slice(b" total_ms=");
        push_number(out, facts.total_millis);
        if let Some(request) = &finished.request {
            out.extend_from_slice(b" host=");
            quote_text(out, request.host);
        }
        for (name, value) in [
            (" route=", facts.route.map(str::as_bytes)),
            (" cache_status=", facts.cache_status.as_deref()),
            (" coding=", facts.coding.map(str::as_bytes)),
            (" forwarded_for=", forwarded_for(finished)),
        ] {
            if let Some(value) = value {
                out.extend_from_slice(name.as_bytes());
                quote_text(out, value);
            }
        }
        if let Some(sample) = facts.sample {
            out.extend_from_slice(format!(" sample={sample}").as_bytes());
        }
    }

    fn json(&self, out: &mut Vec<u8>, finished: &FinishedRequest<'_>, facts: &Facts<'_>) {
        out.extend_from_slice(b"{\"time\":\"");
        push_date(out, clock::date(finished.began));
        out.extend_from_slice(b"\",\"client\":");
        quote_json(out, finished.address.as_bytes());
        if let Some(request) = &finished.request {
            for (name, value) in [
                (",\"method\":", request.method.as_str().as_bytes()),
                (",\"scheme\":", request.scheme.as_str().as_bytes()),
                (",\"host\":", request.host),
                (",\"target\":", self.shown(request.target)),
                (",\"protocol\":", protocol(finished.version).as_bytes()),
            ] {
                out.extend_from_slice(name.as_bytes());
                quote_json(out, value);
            }
        }
        out.extend_from_slice(b",\"status\":");
        push_number(out, facts.status.into());
        out.extend_from_slice(b",\"bytes\":");
        push_number(out, finished.bytes);
        out.extend_from_slice(b",\"outcome\":\"");
        out.extend_from_slice(facts.outcome.as_bytes());
        out.push(b'"');
        if let Some(millis) = facts.first_byte_millis {
            out.extend_from_slice(b",\"first_byte_ms\":");
            push_number(out, millis);
        }
        out.extend_from_slice(b",\"total_ms\":");
        push_number(out, facts.total_millis);
        let detail = finished
            .answer
            .and_then(|answer| answer.cache_status.detail);
        for (name, value) in [
            (",\"route\":", facts.route.map(str::as_bytes)),
            (",\"cache_status\":", facts.cache_status.as_deref()),
            (
                ",\"detail\":",
                detail.map(|detail| detail.as_str().as_bytes()),
            ),
            (",\"coding\":", facts.coding.map(str::as_bytes)),
            (",\"referer\":", self.field(finished, "Referer")),
            (",\"user_agent\":", self.field(finished, "User-Agent")),
            (",\"forwarded_for\":", forwarded_for(finished)),
        ] {
            if let Some(value) = value {
                out.extend_from_slice(name.as_bytes());
                quote_json(out, value);
            }
        }
        if let Some(sample) = facts.sample {
            out.extend_from_slice(format!(",\"sample\":{sample}").as_bytes());
        }
        out.push(b'}');
    }

    fn field<'a>(&self, finished: &FinishedRequest<'a>, name: &str) -> Option<&'a [u8]> {
        let value = finished.request?.fields.get(name)?;
        Some(if name == "Referer" {
            self.shown(value)
        } else {
            value
        })
    }

    /// A url as it may be written down.
    fn shown<'a>(&self, url: &'a [u8]) -> &'a [u8] {
        if self.config.logs.access_query {
            return microcache_proxy::redacted_target(url);
        }
        memchr::memchr2(b'?', b'#', url).map_or(url, |end| &url[..end])
    }
}

/// The client as announced by a trusted proxy.
fn forwarded_for<'a>(finished: &FinishedRequest<'a>) -> Option<&'a [u8]> {
    let request = finished.request.filter(|request| request.is_trusted)?;
    request.fields.get("X-Forwarded-For")
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        Version::HTTP_3 => "HTTP/3.0",
        _ => "HTTP/1.1",
    }
}
