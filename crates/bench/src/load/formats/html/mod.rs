//! Report as one self-contained HTML page: two charts and the tables, without scripts or external resources.

mod drawing;
mod latency;
mod time_line;

use std::fmt::Write;

use super::tables;
use crate::load::outcome::CacheOutcome;
use crate::load::report::BenchReport;
use crate::load::unit::{show_count, show_duration, show_rounded};

/// Returns the report as an HTML page.
pub fn html(report: &BenchReport) -> String {
    let url = escape(&report.url.to_string());
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{url}: microcache bench</title>\n<style>{STYLE}</style>\n<h1>{url}</h1>\n"
    );
    summary(report, &mut out);
    out.push_str("<h2>Latency by percentile</h2>\n");
    legend(report, &mut out);
    out.push_str(&latency::draw(report));
    out.push_str("<h2>Requests per second</h2>\n");
    out.push_str(&time_line::rates(report));
    out.push_str("<h2>Latency over time</h2>\n<p class=\"legend\">");
    for (class, name) in [("p50", "median"), ("p99", "99 %"), ("max", "longest")] {
        let _ = write!(out, "<span class=\"{class}\">{name}</span> ");
    }
    out.push_str("</p>\n");
    out.push_str(&time_line::latencies(report));
    let tables = escape(&tables::write(report));
    let _ = writeln!(out, "<h2>Figures</h2>\n<pre>{tables}</pre>\n</html>");
    out
}

fn summary(report: &BenchReport, out: &mut String) {
    let total = report.tally.overall().total;
    let mut figures = vec![
        ("requests/s", show_rounded(report.rate())),
        ("median", show_duration(total.percentile(50.0))),
        ("99 %", show_duration(total.percentile(99.0))),
        ("longest", show_duration(total.max())),
        ("errors", show_count(report.tally.faults())),
    ];
    if report.tally.count_of(CacheOutcome::None) < report.tally.answers() {
        figures.push(("hits", format!("{:.1} %", 100.0 * report.hit_share())));
    }
    if let Some(origin) = report.origin {
        figures.push(("origin requests", show_count(origin.requests)));
    }
    out.push_str("<dl>");
    for (name, value) in figures {
        let _ = write!(out, "<div><dt>{name}</dt><dd>{value}</dd></div>");
    }
    out.push_str("</dl>\n");
}

/// Adds the colour legend of the outcomes in the report.
fn legend(report: &BenchReport, out: &mut String) {
    out.push_str("<p class=\"legend\">");
    for outcome in present_outcomes(report) {
        let _ = write!(out, "<span class=\"{outcome}\">{outcome}</span> ");
    }
    out.push_str("</p>\n");
}

fn present_outcomes(report: &BenchReport) -> impl Iterator<Item = CacheOutcome> {
    let of = |outcome: &CacheOutcome| report.tally.count_of(*outcome) > 0;
    CacheOutcome::ALL.into_iter().filter(of)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

const STYLE: &str = "
body { font: 15px/1.45 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222; background: #fff }
h1 { font-size: 1.2rem; overflow-wrap: anywhere } h2 { font-size: 1rem; margin: 2rem 0 .3rem }
dl { display: flex; flex-wrap: wrap; gap: .5rem 2rem } dt { color: #666; font-size: .85rem } dd { margin: 0; font-size: 1.4rem }
svg { width: 100%; height: auto } svg text { font-size: 11px; fill: #666 } pre { overflow-x: auto; font-size: 13px }
.grid { stroke: #ddd } .line { fill: none; stroke: currentColor; stroke-width: 1.6 } .area { fill: currentColor; stroke: none }
.legend span::before { content: '■ ' }
.hit { color: #2a9d5c } .stale { color: #a8c23a } .revalidated { color: #2f8fc4 } .miss { color: #d9822b }
.collapsed { color: #8a63c9 } .pass { color: #888 } .none { color: #4a6fa5 } .fault { color: #d0342c }
.p50 { color: #2a9d5c } .p99 { color: #d9822b } .max { color: #d0342c }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #181a1b } .grid { stroke: #444 } svg text, dt { fill: #999; color: #999 } }
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::testing::report;

    #[test]
    fn the_page_is_self_contained() {
        let page = html(&report());
        assert!(page.starts_with("<!doctype html>"));
        for word in ["<script", "src=", "href=", "@import", "url(", "NaN", "inf"] {
            assert!(!page.contains(word), "{word}");
        }
        for text in [
            "a=1&amp;b=&lt;2&gt;",
            "<dd>90.0 %</dd>",
            "<dt>origin requests</dt><dd>10</dd>",
            "<span class=\"hit\">hit</span>",
            "<span class=\"miss\">miss</span>",
            "p99.9",
        ] {
            assert!(page.contains(text), "{text}");
        }
        assert_eq!(page.matches("<svg").count(), 3);
        assert_eq!(page.matches("</svg>").count(), 3);
        assert!(!page.contains("class=\"stale\""));
    }

    #[test]
    fn a_run_without_answers_has_a_page_too() {
        let mut report = report();
        report.tally = crate::load::Tally::default();
        report.time_line.clear();
        let page = html(&report);
        assert_eq!(page.matches("<svg").count(), 3);
        assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
    }
}
