//! Report of a subscription run as text tables and as JSON.

use std::fmt::{self, Write};
use std::time::UNIX_EPOCH;

use serde_json::{Map, Value, json};

use super::context::SubscribeProgress;
use super::report::{PublicationReport, SubscribeReport};
use super::settings::StreamKind;
use super::stream_tally::{StreamFaults, StreamTally};
use crate::load::formats::{Format, figures, latency, percentile_names, plural};
use crate::load::unit::{millis, show_bytes, show_count, show_duration, show_rounded};

impl fmt::Display for SubscribeProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (opened, wanted) = (self.opened as u64, self.wanted as u64);
        write!(
            f,
            "{} of {} open  {}  {} published",
            show_count(opened),
            plural(wanted, "stream"),
            plural(self.events, "event"),
            show_count(self.published)
        )
    }
}

impl SubscribeReport {
    /// Formats the report; `None` if the format has no representation of event streams.
    pub fn write(&self, format: Format) -> Option<String> {
        match format {
            Format::Tables => Some(own(self)),
            Format::Json => Some(format!("{:#}\n", value(self))),
            Format::Ab | Format::Siege | Format::Wrk | Format::Csv => None,
        }
    }
}

fn own(report: &SubscribeReport) -> String {
    let mut out = format!(
        "{}\n{}, {}, {}",
        report.url,
        plural(report.streams.wanted, noun(report.kind)),
        plural(report.threads as u64, "thread"),
        show_duration(report.elapsed)
    );
    if let Some(published) = &report.publications {
        let _ = write!(
            out,
            ", {} published every {}",
            show_bytes(published.size as f64),
            show_duration(published.every)
        );
    }
    out.push('\n');
    if report.interrupted {
        out.push_str("Interrupted: figures up to the interruption.\n");
    }
    streams(report, &mut out);
    if let Some(published) = &report.publications {
        publications(report, published, &mut out);
    }
    let _ = writeln!(
        out,
        "\ncpu        {:.0}% of a core on the busiest thread",
        100.0 * report.busiest
    );
    out
}

const fn noun(kind: StreamKind) -> &'static str {
    match kind {
        StreamKind::Events => "stream",
        StreamKind::WebSocket => "WebSocket",
    }
}

fn streams(report: &SubscribeReport, out: &mut String) {
    let streams = &report.streams;
    let _ = writeln!(
        out,
        "\nopened     {} within {}",
        show_count(streams.opened),
        show_duration(report.opened_within)
    );
    if streams.refused() > 0 {
        let _ = writeln!(out, "refused    {}", refusals(streams));
    }
    if streams.stalled > 0 {
        let _ = writeln!(out, "stalled    {}", show_count(streams.stalled));
    }
    let _ = write!(out, "closed     ");
    if streams.gone() == 0 {
        out.push_str("none");
    } else {
        let mut gone = Vec::new();
        for (count, what) in [
            (streams.ended, "ended by the server"),
            (streams.stalled_ended, "ended while stalled"),
        ] {
            if count > 0 {
                gone.push(format!("{what}: {}", show_count(count)));
            }
        }
        gone.extend(faults(&streams.broken));
        out.push_str(&gone.join("  "));
    }
    let _ = writeln!(
        out,
        "\nevents     {}, {}",
        show_count(report.events),
        show_bytes(report.bytes as f64)
    );
}

fn publications(report: &SubscribeReport, published: &PublicationReport, out: &mut String) {
    let _ = write!(
        out,
        "published  {}, {} of them delivered to every stream",
        show_count(published.answered.count()),
        show_count(published.complete)
    );
    let mut not = Vec::new();
    for (status, count) in &published.refused {
        not.push(format!("{status}: {}", show_count(*count)));
    }
    not.extend(faults(&published.failed));
    if published.unsent > 0 {
        not.push(format!("never sent: {}", show_count(published.unsent)));
    }
    if !not.is_empty() {
        let _ = write!(out, "; not published  {}", not.join("  "));
    }
    let _ = writeln!(
        out,
        "\ndelivered  {}, {}/s",
        show_count(published.delivered.count()),
        show_rounded(report.deliveries_per_second())
    );
    let _ = writeln!(
        out,
        "missing    skipped: {}  lost: {}  out of order: {}  twice: {}",
        show_count(published.skipped),
        show_count(published.lost),
        show_count(published.disordered),
        show_count(published.duplicates)
    );
    out.push_str("\nlatency          mean     stdev");
    percentile_names(out);
    for (name, latency) in [
        ("response", &published.answered),
        ("a stream", &published.delivered),
        ("the last", &published.last),
    ] {
        let _ = write!(out, "{name:<11}");
        figures(latency, out);
    }
}

/// Lists the reasons why streams were not opened, with their counts.
pub(super) fn refusals(streams: &StreamTally) -> String {
    let mut all = Vec::new();
    for (status, count) in &streams.statuses {
        all.push(format!("{status}: {}", show_count(*count)));
    }
    if streams.without_events > 0 {
        let count = show_count(streams.without_events);
        all.push(format!("not an event stream: {count}"));
    }
    all.extend(faults(&streams.failed));
    all.join("  ")
}

fn faults(faults: &StreamFaults) -> Vec<String> {
    let each = faults.each();
    each.map(|(fault, count)| format!("{fault}: {}", show_count(count)))
        .collect()
}

fn value(report: &SubscribeReport) -> Value {
    let streams = &report.streams;
    let began = report.began.duration_since(UNIX_EPOCH).unwrap_or_default();
    json!({
        "url": report.url.to_string(),
        "kind": match report.kind {
            StreamKind::Events => "events",
            StreamKind::WebSocket => "websocket",
        },
        "threads": report.threads,
        "began_unix": began.as_secs_f64(),
        "opened_within_ms": millis(report.opened_within),
        "warmup_ms": millis(report.warmup),
        "elapsed_ms": millis(report.elapsed),
        "interrupted": report.interrupted,
        "busiest_thread": report.busiest,
        "streams": {
            "wanted": streams.wanted,
            "opened": streams.opened,
            "healthy": streams.healthy,
            "refused": streams.refused(),
            "statuses": statuses(&streams.statuses),
            "no_event_stream": streams.without_events,
            "failed": fault_map(&streams.failed),
            "gone": streams.gone(),
            "ended": streams.ended,
            "broken": fault_map(&streams.broken),
            "stalled": streams.stalled,
            "stalled_ended": streams.stalled_ended,
            "opening_ms": latency(&report.opening),
        },
        "events": report.events,
        "bytes": report.bytes,
        "publications": report.publications.as_ref().map(|published| json!({
            "every_ms": millis(published.every),
            "size": published.size,
            "published": published.answered.count(),
            "complete": published.complete,
            "refused": statuses(&published.refused),
            "failed": fault_map(&published.failed),
            "unsent": published.unsent,
            "deliveries": published.delivered.count(),
            "deliveries_per_second": report.deliveries_per_second(),
            "skipped": published.skipped,
            "lost": published.lost,
            "out_of_order": published.disordered,
            "duplicates": published.duplicates,
            "response_ms": latency(&published.answered),
            "stream_ms": latency(&published.delivered),
            "last_stream_ms": latency(&published.last),
        })),
    })
}

fn statuses(statuses: &std::collections::BTreeMap<u16, u64>) -> Map<String, Value> {
    let each = statuses.iter();
    each.map(|(status, count)| (status.to_string(), json!(count)))
        .collect()
}

fn fault_map(faults: &StreamFaults) -> Map<String, Value> {
    let name = |fault: crate::load::RequestFault| fault.as_str().to_lowercase().replace(' ', "_");
    let each = faults.each();
    each.map(|(fault, count)| (name(fault), json!(count)))
        .collect()
}
