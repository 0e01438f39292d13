//! The access log: one line for each request, as text or as JSON.

use std::borrow::Cow;
use std::cell::RefCell;

use http::Version;
use microcache_engine::clock;
use microcache_policy::Time;
use microcache_proxy::config::{LogConfig, LogField, LogForm};
use microcache_proxy::{FinishedRequest, by_chance, request_id};

use super::form::{escape_text, push_common_date, push_date, push_number, quote_json, quote_text};
use super::writer::Writer;

/// The status of a request whose client left before the response, as in nginx.
const CLIENT_LEFT: u16 = 499;

/// The access log.
pub(super) struct AccessLog {
    writer: Writer,
    config: LogConfig,
    /// The fields of a line and their names.
    fields: Vec<(String, LogField)>,
}

/// A value in a line.
enum LogValue<'a> {
    Text(&'a [u8]),
    Number(u64),
    Time(Time),
    Share(f64),
}

impl LogValue<'_> {
    /// Writes a value that needs no quotes in a line of text.
    fn write_plain(&self, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) => escape_text(out, text),
            Self::Number(number) => push_number(out, *number),
            Self::Time(time) => push_date(out, *time),
            Self::Share(share) => out.extend_from_slice(share.to_string().as_bytes()),
        }
    }
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
    request_id: Option<Cow<'a, [u8]>>,
    /// The coding that was made here.
    coding: Option<&'static str>,
    /// The share of such requests that get a line, if not all do.
    sample: Option<f64>,
}

impl AccessLog {
    pub(super) fn new(writer: Writer, config: LogConfig) -> Self {
        let fields = match &config.access_fields[..] {
            [] => LogField::usual(),
            chosen => chosen.to_vec(),
        };
        let named = fields.into_iter().map(|field| (field.name(), field));
        Self {
            writer,
            fields: named.collect(),
            config,
        }
    }

    /// Writes the line of a request, if it is logged, without blocking.
    pub(super) fn write(&self, finished: &FinishedRequest<'_>) {
        thread_local! {
            static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        if finished.route.is_some_and(|route| !route.access_log) {
            return;
        }
        let share = self.config.access_sample;
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
            route: finished.route.map(|route| &*route.name),
            first_byte_millis: answer.map(|answer| answer.at.since(finished.began)),
            total_millis: finished.ended.since(finished.began),
            cache_status: answer.map(|answer| {
                let mut value = Vec::with_capacity(96);
                answer.cache_status.write(&mut value);
                value
            }),
            request_id: finished.request.as_ref().and_then(request_id),
            coding: answer.and_then(|answer| Some(answer.cache_status.coding?.as_str())),
            sample,
        };
        match self.config.access_form {
            LogForm::Text if self.config.access_fields.is_empty() => {
                self.combined(out, finished, &facts);
            }
            LogForm::Text => self.chosen_text(out, finished, &facts),
            LogForm::Json => self.json(out, finished, &facts),
        }
        out.push(b'\n');
    }

    /// Writes a line in the combined format, with further fields at the end.
    fn combined(&self, out: &mut Vec<u8>, finished: &FinishedRequest<'_>, facts: &Facts<'_>) {
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

    /// Writes the chosen fields, separated by spaces.
    fn chosen_text(&self, out: &mut Vec<u8>, finished: &FinishedRequest<'_>, facts: &Facts<'_>) {
        for (i, (name, field)) in self.fields.iter().enumerate() {
            if i > 0 {
                out.push(b' ');
            }
            out.extend_from_slice(name.as_bytes());
            out.push(b'=');
            match self.value(field, finished, facts) {
                None => out.push(b'-'),
                Some(LogValue::Text(text)) => quote_text(out, text),
                Some(value) => value.write_plain(out),
            }
        }
    }

    /// Writes a JSON object of the fields that have a value.
    fn json(&self, out: &mut Vec<u8>, finished: &FinishedRequest<'_>, facts: &Facts<'_>) {
        let mut separator = b'{';
        for (name, field) in &self.fields {
            let Some(value) = self.value(field, finished, facts) else {
                continue;
            };
            out.push(separator);
            out.push(b'"');
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"\":");
            match value {
                LogValue::Text(text) => quote_json(out, text),
                LogValue::Time(_) => {
                    out.push(b'"');
                    value.write_plain(out);
                    out.push(b'"');
                }
                LogValue::Number(_) | LogValue::Share(_) => value.write_plain(out),
            }
            separator = b',';
        }
        if separator == b'{' {
            out.push(b'{');
        }
        out.push(b'}');
    }

    /// Returns the value of a field, if the request has one.
    fn value<'v>(
        &self,
        field: &LogField,
        finished: &'v FinishedRequest<'_>,
        facts: &'v Facts<'_>,
    ) -> Option<LogValue<'v>> {
        let request = finished.request.as_ref();
        let number = |number: u64| Some(LogValue::Number(number));
        let text = match field {
            LogField::Time => return Some(LogValue::Time(clock::date(finished.began))),
            LogField::Status => return number(facts.status.into()),
            LogField::Bytes => return number(finished.bytes),
            LogField::FirstByte => return facts.first_byte_millis.and_then(number),
            LogField::Total => return number(facts.total_millis),
            LogField::UpstreamTime => {
                return number(finished.server?.first_byte?.as_millis() as u64);
            }
            LogField::Sample => return facts.sample.map(LogValue::Share),
            LogField::Client => Some(finished.address.as_bytes()),
            LogField::Method => request.map(|request| request.method.as_str().as_bytes()),
            LogField::Scheme => request.map(|request| request.scheme.as_str().as_bytes()),
            LogField::Host => request.map(|request| request.host),
            LogField::Target => request.map(|request| self.shown(request.target)),
            LogField::Protocol => request.map(|_| protocol(finished.version).as_bytes()),
            LogField::Outcome => Some(facts.outcome.as_bytes()),
            LogField::Route => facts.route.map(str::as_bytes),
            LogField::CacheStatus => facts.cache_status.as_deref(),
            LogField::Detail => finished
                .answer
                .and_then(|answer| answer.cache_status.detail)
                .map(|detail| detail.as_str().as_bytes()),
            LogField::Coding => facts.coding.map(str::as_bytes),
            LogField::Referer => self.field(finished, "Referer"),
            LogField::UserAgent => self.field(finished, "User-Agent"),
            LogField::ForwardedFor => forwarded_for(finished),
            LogField::Upstream => finished.server.map(|server| server.name.as_bytes()),
            LogField::RequestId => facts.request_id.as_deref(),
            LogField::Request(name) => self.field(finished, name),
            LogField::Response(name) => finished.response.get(name),
        };
        text.map(LogValue::Text)
    }

    fn field<'a>(&self, finished: &FinishedRequest<'a>, name: &str) -> Option<&'a [u8]> {
        let value = finished.request?.fields.get(name)?;
        Some(if name.eq_ignore_ascii_case("Referer") {
            self.shown(value)
        } else {
            value
        })
    }

    /// A url as it may be written down.
    fn shown<'a>(&self, url: &'a [u8]) -> &'a [u8] {
        if self.config.access_query {
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
