//! The drawing of the screen. Everything important fits 80 columns and 24 lines.

use std::time::{Duration, Instant};

use microcache_engine::Outcome;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Row, Sparkline, Table};
use serde_json::Value;

use super::figures::{ListKind, Rates};
use super::lists;
use super::screen::{Mode, Screen};
use super::styles::{BAD, CLIENTS, ORIGIN, QUIET, STRONG};
use crate::count::count;
use crate::operate::render::{duration, filled, list, number, server_address, size, time};

/// Lines for the servers of the upstreams, with their heading.
const SERVERS: u16 = 4;
/// Lines for the tiers below memory.
const TIERS: u16 = 3;
/// The age at which numbers are marked as old.
const OLD: Duration = Duration::from_secs(4);

pub(super) fn draw(frame: &mut Frame, screen: &Screen, now: Instant) {
    let none = Value::Null;
    let answer = screen
        .stats
        .as_ref()
        .map_or(&none, |(_, answer)| answer)
        .clone();
    let tiers = (list(&answer["tiers"]).len() as u16).min(TIERS);
    let push = u16::from(answer["push"].is_object());
    let servers = servers(&answer);
    let [head, figures, drawing, upstreams, list_area, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(4 + tiers + push),
        Constraint::Length(3),
        Constraint::Length((servers.len() as u16 + 1).min(SERVERS)),
        Constraint::Min(3),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(title(screen, &answer, now), head);
    frame.render_widget(Paragraph::new(lines(screen, &answer)), figures);
    draw_seconds(frame, screen, drawing);
    draw_servers(frame, servers, upstreams);
    lists::draw(frame, screen, list_area);
    frame.render_widget(keys(screen), foot);
}

fn title<'a>(screen: &'a Screen, answer: &Value, now: Instant) -> Paragraph<'a> {
    let age = screen
        .stats
        .as_ref()
        .map(|(at, _)| now.saturating_duration_since(*at));
    let standing = match (&screen.lost, age) {
        (Some(why), _) => Span::styled(format!("connection lost, retrying: {why}"), BAD),
        (None, Some(age)) if age > OLD => {
            Span::styled(format!("no answer for {} s", age.as_secs()), BAD)
        }
        _ if answer["draining"] == true => Span::styled("draining", BAD),
        _ if answer["maintenance"]["on"] == true => Span::styled("maintenance mode", BAD),
        _ => Span::styled(screen.admin.as_str(), QUIET),
    };
    let name = format!(
        "microcache {}",
        answer["version"].as_str().unwrap_or_default()
    );
    let up = format!("  up {}  ", duration(number(&answer["uptime_seconds"])));
    Paragraph::new(Line::from(vec![
        Span::styled(name, STRONG),
        Span::raw(up),
        standing,
    ]))
}

/// The lines of figures: requests, origin, latency, memory, tiers, documents.
fn lines(screen: &Screen, answer: &Value) -> Vec<Line<'static>> {
    let rates = screen.rates.unwrap_or_default();
    let mut lines = vec![
        of_clients(screen.rates.as_ref()),
        of_origin(&rates, answer),
        of_times(answer),
        line("memory", vec![Span::raw(of_memory(&answer["memory"]))]),
    ];
    for tier in list(&answer["tiers"]).iter().take(TIERS.into()) {
        let mut parts = vec![Span::raw(format!(
            "{}  {}  {}",
            filled(tier),
            count(number(&tier["hits"]), "hit"),
            count(number(&tier["misses"]), "miss")
        ))];
        let troubles = list(&tier["degraded"]).iter().filter_map(Value::as_str);
        parts.extend(troubles.map(|trouble| Span::styled(format!("  {trouble}"), BAD)));
        let name = tier["name"].as_str().unwrap_or_default();
        lines.push(line(name, parts));
    }
    let push = &answer["push"];
    if push.is_object() {
        lines.push(line("push", vec![Span::raw(of_push(&rates, push))]));
    }
    lines
}

fn line(name: &str, parts: Vec<Span<'static>>) -> Line<'static> {
    let mut all = vec![Span::styled(format!("{name:<10}"), QUIET)];
    all.extend(parts);
    Line::from(all)
}

fn of_clients(rates: Option<&Rates>) -> Line<'static> {
    let Some(rates) = rates else {
        return line("clients", vec![Span::raw("counting")]);
    };
    let mut parts = vec![
        Span::styled(
            format!("{:>8}/s  ", rate(rates.clients)),
            CLIENTS.patch(STRONG),
        ),
        Span::raw(match rates.hit_ratio() {
            Some(ratio) => format!("hit ratio {ratio:.1} %  "),
            None => "no requests".to_owned(),
        }),
    ];
    let outcomes = Outcome::ALL.iter().zip(rates.outcomes);
    parts.extend(
        outcomes
            .filter(|(_, each)| *each > 0.0)
            .map(|(outcome, each)| {
                let is_error = *outcome == Outcome::Error;
                let style = if is_error { BAD } else { QUIET };
                Span::styled(format!("{} {}  ", outcome.as_str(), rate(each)), style)
            }),
    );
    line("clients", parts)
}

fn of_origin(rates: &Rates, answer: &Value) -> Line<'static> {
    let mut parts = vec![Span::styled(
        format!("{:>8}/s  ", rate(rates.origin)),
        ORIGIN.patch(STRONG),
    )];
    if rates.clients > 0.0 {
        let spared = (1.0 - rates.origin / rates.clients).max(0.0) * 100.0;
        parts.push(Span::raw(format!("spared {spared:.2} %  ")));
    }
    let fetches = &answer["fetches"];
    parts.push(Span::raw(format!(
        "{} in progress, {} waiting",
        count(number(&fetches["in_progress"]), "fetch"),
        count(number(&fetches["waiting"]), "request")
    )));
    line("origin", parts)
}

/// The latency in the last minute.
fn of_times(answer: &Value) -> Line<'static> {
    let minute = &answer["windows"][0];
    let both = |of: &Value| match of["p50"].as_f64() {
        Some(p50) => format!(
            "p50 {}, p99 {}",
            time(p50),
            time(of["p99"].as_f64().unwrap_or(p50))
        ),
        None => "–".to_owned(),
    };
    line(
        "latency",
        vec![
            Span::styled("hits ", CLIENTS),
            Span::raw(both(&minute["hit_microseconds"])),
            Span::styled("   origin ", ORIGIN),
            Span::raw(both(&minute["first_byte_microseconds"])),
        ],
    )
}

fn of_memory(memory: &Value) -> String {
    const WIDTH: u64 = 12;
    let (bytes, capacity) = (number(&memory["bytes"]), number(&memory["capacity"]));
    let full = (bytes.saturating_mul(WIDTH) / capacity.max(1)).min(WIDTH);
    let bar: String = (0..WIDTH)
        .map(|place| if place < full { '█' } else { '░' })
        .collect();
    format!(
        "{bar}  {}  {}  {} evicted",
        filled(memory),
        count(number(&memory["keys"]), "key"),
        number(&memory["evicted"])
    )
}

fn of_push(rates: &Rates, push: &Value) -> String {
    format!(
        "{}  events {}/s  changes {}/s  {}  {}",
        count(number(&push["subscribers"]), "subscriber"),
        rate(rates.events),
        rate(rates.changes),
        count(number(&push["documents"]), "document"),
        size(number(&push["bytes"])),
    )
}

/// Draws the history: requests of clients above, of the origin below, on the same scale.
fn draw_seconds(frame: &mut Frame, screen: &Screen, area: Rect) {
    let [clients, origin] =
        Layout::vertical([Constraint::Length(2), Constraint::Length(1)]).areas(area);
    let newest = screen.seconds.iter().rev().take(area.width.into());
    let seconds: Vec<_> = newest.collect();
    let most = seconds.iter().map(|one| one.clients.max(one.origin));
    let most = most.fold(1.0, f64::max);
    for (place, style, of) in [
        (clients, CLIENTS, (|one| one.clients) as fn(&Rates) -> f64),
        (origin, ORIGIN, |one| one.origin),
    ] {
        let heights = seconds.iter().rev().map(|one| thousandths(of(one)));
        let blank = usize::from(place.width).saturating_sub(seconds.len());
        let heights: Vec<u64> = std::iter::repeat_n(0, blank).chain(heights).collect();
        let drawing = Sparkline::default()
            .data(heights)
            .max(thousandths(most))
            .style(style);
        frame.render_widget(drawing, place);
    }
}

fn servers(answer: &Value) -> Vec<Row<'static>> {
    let groups = list(&answer["upstreams"]).iter();
    let servers = groups.flat_map(|group| {
        list(&group["servers"]).iter().map(move |server| {
            let up = server["up"] == true;
            let name = group["name"].as_str().unwrap_or_default();
            let address = server_address(server);
            let row = Row::new([
                format!("{name} {address}"),
                if up { "up" } else { "DOWN" }.to_owned(),
                number(&server["active"]).to_string(),
                number(&group["queued"]).to_string(),
                number(&server["requests"]).to_string(),
                number(&server["failures"]).to_string(),
            ]);
            (up, row.style(if up { Style::new() } else { BAD }))
        })
    });
    // The servers that are down come first, in case there is no room for all.
    let mut servers: Vec<_> = servers.collect();
    servers.sort_by_key(|(up, _)| *up);
    servers.into_iter().map(|(_, row)| row).collect()
}

fn draw_servers(frame: &mut Frame, servers: Vec<Row<'static>>, area: Rect) {
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(4),
        Constraint::Length(6),
        Constraint::Length(7),
        Constraint::Length(10),
        Constraint::Length(8),
    ];
    let heading = ["upstream", "", "active", "waiting", "requests", "failed"];
    let table = Table::new(servers, widths).header(Row::new(heading).style(QUIET));
    frame.render_widget(table, area);
}

fn keys(screen: &Screen) -> Paragraph<'_> {
    match (&screen.mode, &screen.message) {
        (Mode::Filter, _) => Paragraph::new(format!(
            "filter: {}▏  Enter applies, Esc clears",
            screen.filter
        )),
        (Mode::Confirm(url), _) => Paragraph::new(Line::from(vec![
            Span::styled("purge? y for yes, any other key for no: ", BAD),
            Span::raw(url.as_str()),
        ])),
        (Mode::Browse, Some(message)) => Paragraph::new(message.as_str()).style(STRONG),
        (Mode::Browse, None) => {
            let keys = match screen.listed {
                ListKind::Urls => {
                    "q quit  Tab routes, errors, nodes  s sort (1-4)  / filter  p purge  ? keys"
                }
                ListKind::Routes => "q quit  Tab errors, nodes, urls  ↑↓ select  / filter  ? keys",
                ListKind::Errors => "q quit  Tab nodes, urls, routes  ↑↓ select  / filter  ? keys",
                ListKind::Nodes => "q quit  Tab urls, routes, errors  ↑↓ select  / filter  ? keys",
            };
            Paragraph::new(keys).style(QUIET)
        }
    }
}

/// Formats a rate; small ones get a decimal.
fn rate(each: f64) -> String {
    if each > 0.0 && each < 10.0 {
        format!("{each:.1}")
    } else {
        format!("{each:.0}")
    }
}

/// A rate in thousandths, so that slow origins do not round to zero.
#[expect(clippy::cast_sign_loss, reason = "rates are not below zero")]
fn thousandths(rate: f64) -> u64 {
    (rate * 1000.0) as u64
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;

    use super::super::feed::News;
    use super::*;

    fn stats(total: u64, origin: u64, up: bool) -> Value {
        json!({
            "version": "0.1.0", "pid": 1, "uptime_seconds": 700, "draining": false,
            "requests": {"total": total, "hit": total - origin, "miss": origin},
            "origin": {"requests": origin},
            "windows": [{
                "hit_microseconds": {"p50": 38.0, "p99": 228.0},
                "first_byte_microseconds": {"p50": 182_000.0, "p99": 1_100_000.0},
            }],
            "routes": [
                {"name": "api", "requests": {"total": 10, "error": 3}, "origin": {"requests": 7}},
                {
                    "name": "pages", "requests": {"total": total, "hit": total - origin}, "origin": {"requests": origin},
                    "hit_microseconds": {"p50": 38.0}, "wait_microseconds": {"p50": 190_000.0},
                },
            ],
            "fetches": {"in_progress": 3, "waiting": 14},
            "memory": {"bytes": 134_217_728_u64, "capacity": 268_435_456_u64, "keys": 1812, "evicted": 0},
            "tiers": [{"name": "disk", "bytes": 1024, "hits": 5, "misses": 1, "degraded": ["read-only"]}],
            "upstreams": [{"name": "app", "queued": 2, "servers": [
                {"host": "10.0.0.5", "port": 3000, "up": true, "active": 3, "requests": 900, "failures": 0},
                {"host": "10.0.0.6", "port": 3000, "up": up, "active": 0, "requests": 900, "failures": 7},
            ]}],
        })
    }

    /// Two seconds of a server under load.
    fn screen() -> (Screen, Instant) {
        let began = Instant::now();
        let later = began + Duration::from_secs(1);
        let mut screen = Screen::new("http://127.0.0.1:8081");
        screen.hear(News::Stats(stats(1000, 10, true)), began);
        screen.hear(News::Stats(stats(3000, 12, false)), later);
        let urls = json!({"by": "requests", "urls": [
            {"url": "https://www.example.org/", "requests": 90_000, "bytes": 900_000_000, "misses": 30, "origin_microseconds": 4_000_000},
            {"url": "https://www.example.org/news", "truncated": true, "requests": 45_000},
        ]});
        screen.hear(News::Urls(Ok(urls)), later);
        (screen, later)
    }

    fn drawn(screen: &mut Screen, now: Instant, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
        let drawn = terminal
            .draw(|frame| draw(frame, screen, now))
            .expect("drawn");
        let cells = drawn.buffer.content().chunks(width.into());
        cells
            .map(|line| {
                line.iter()
                    .map(ratatui::buffer::Cell::symbol)
                    .collect::<String>()
            })
            .map(|line| line.trim_end().to_owned())
            .collect()
    }

    #[test]
    fn eighty_columns_and_twenty_four_lines_have_room_for_all() {
        let (mut screen, now) = screen();
        let lines = drawn(&mut screen, now, 80, 24);
        let expected = [
            "microcache 0.1.0  up 11 min 40 s  http://127.0.0.1:8081",
            "clients       2000/s  hit ratio 99.9 %  hit 1998  miss 2.0",
            "origin         2.0/s  spared 99.90 %  3 fetches in progress, 14 requests waiting",
            "latency   hits p50 38 µs, p99 228 µs   origin p50 182 ms, p99 1.1 s",
            "memory    ██████░░░░░░  128.0 MiB of 256.0 MiB  1812 keys  0 evicted",
            "disk      1.0 KiB  5 hits  1 miss  read-only",
        ];
        assert_eq!(lines[..expected.len()], expected);
        assert!(
            lines[7].ends_with('█') && lines[8].trim_end().is_empty(),
            "{lines:#?}"
        );
        let of = |word: &str| {
            let found = lines.iter().find(|line| line.contains(word));
            found.unwrap_or_else(|| panic!("{word}: {lines:#?}"))
        };
        assert!(of("10.0.0.6:3000").contains("DOWN"));
        assert!(of("10.0.0.5:3000").contains("up"));
        assert!(of("https://www.example.org/ ").contains("90000  858.3 MiB         30      4.0 s"));
        assert!(of("/news…").contains("45000          –"));
        assert!(lines[23].starts_with("q quit"));
    }

    #[test]
    fn documents_and_subscribers_have_a_line_where_there_are_any() {
        let (mut screen, now) = screen();
        let has_line = |lines: &[String]| lines.iter().any(|line| line.starts_with("push "));
        assert!(!has_line(&drawn(&mut screen, now, 80, 24)));
        let answer = |events: u64, changes: u64| {
            let mut answer = stats(5000, 12, true);
            answer["push"] = json!({
                "subscribers": 1200, "events": events, "changes": {"made": changes},
                "documents": 30, "bytes": 2048,
            });
            answer
        };
        let (second, third) = (now + Duration::from_secs(1), now + Duration::from_secs(2));
        screen.hear(News::Stats(answer(1000, 10)), second);
        screen.hear(News::Stats(answer(3400, 12)), third);
        let lines = drawn(&mut screen, third, 80, 24);
        let expected =
            "push      1200 subscribers  events 2400/s  changes 2.0/s  30 documents  2.0 KiB";
        assert_eq!(lines[6], expected, "{lines:#?}");
        assert!(lines[5].starts_with("disk"), "{lines:#?}");
        assert!(lines[8].ends_with('█'), "{lines:#?}");
        assert!(lines[23].starts_with("q quit"));
    }

    #[test]
    fn prompts_and_errors_are_on_the_screen() {
        let (mut screen, now) = screen();
        let mut check = |change: &dyn Fn(&mut Screen), wanted: &str| {
            change(&mut screen);
            let lines = drawn(&mut screen, now, 80, 24);
            assert!(
                lines.iter().any(|line| line.contains(wanted)),
                "{wanted}: {lines:#?}"
            );
        };
        check(
            &|screen| screen.lost = Some("connection refused".to_owned()),
            "connection lost, retrying: connection refused",
        );
        check(&|screen| screen.mode = Mode::Filter, "filter: ▏");
        check(
            &|screen| screen.filter = "news".to_owned(),
            "urls with `news`",
        );
        check(
            &|screen| screen.mode = Mode::Confirm("http://a/".to_owned()),
            "purge? y for yes, any other key for no: http://a/",
        );
        check(
            &|screen| screen.no_urls = Some("there is no resource at /v1/top".to_owned()),
            "there is no resource at /v1/top",
        );
        let (mut screen, now) = self::screen();
        let later = drawn(&mut screen, now + Duration::from_secs(9), 80, 24);
        assert!(later[0].contains("no answer for 9 s"), "{later:#?}");
    }

    #[test]
    fn routes_and_errors_have_their_lists() {
        let (mut screen, now) = screen();
        let errors = json!({"errors": [
            {"at_milliseconds": 0, "count": 7, "upstream": "app", "route": "pages", "url": "http://a/x", "reason": "no answer"},
            {"at_milliseconds": u64::MAX, "count": 1, "route": "api", "reason": "origin-busy"},
        ]});
        screen.hear(News::Errors(errors), now);
        screen.list(ListKind::Routes);
        let lines = drawn(&mut screen, now, 80, 24);
        let of = |lines: &[String], word: &str| {
            let found = lines.iter().position(|line| line.contains(word));
            found.unwrap_or_else(|| panic!("{word}: {lines:#?}"))
        };
        assert!(of(&lines, "pages   ") < of(&lines, "api   "), "{lines:#?}");
        let pages = &lines[of(&lines, "pages   ")];
        let cells: Vec<_> = pages.split_whitespace().collect();
        let expected = [
            "pages", "3000", "99.6", "%", "12", "0", "38", "µs", "190", "ms", "–",
        ];
        assert_eq!(cells, expected, "{pages}");
        screen.list(ListKind::Errors);
        let lines = drawn(&mut screen, now, 80, 24);
        assert!(
            lines[of(&lines, "no answer")].contains("7 app"),
            "{lines:#?}"
        );
        assert!(lines[of(&lines, "origin-busy")].contains("0 s     1 api"));
        screen.filter = "busy".to_owned();
        let lines = drawn(&mut screen, now, 80, 24);
        assert!(!lines.iter().any(|line| line.contains("no answer")));
        screen.hear(News::Errors(json!({"errors": []})), now);
        let lines = drawn(&mut screen, now, 80, 24);
        of(&lines, "no recent errors");
    }

    #[test]
    fn every_terminal_size_and_an_empty_screen_are_drawn() {
        let (mut full, now) = screen();
        let mut empty = Screen::new("http://127.0.0.1:8081");
        for (width, height) in [(1, 1), (20, 5), (80, 24), (300, 100), (500, 10)] {
            assert_eq!(
                drawn(&mut full, now, width, height).len(),
                usize::from(height)
            );
            assert_eq!(
                drawn(&mut empty, now, width, height).len(),
                usize::from(height)
            );
        }
    }
}
