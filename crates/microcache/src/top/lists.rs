//! The lists below the figures: the busiest URLs, the routes, and recent errors.

use std::time::{SystemTime, UNIX_EPOCH};

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::Style;
use ratatui::text::Span;
use ratatui::widgets::{Paragraph, Row, Table, TableState};

use super::figures::{Error, ListKind, Node, Order, Route};
use super::screen::Screen;
use super::styles::{BAD, MARKED, QUIET, STRONG};
use crate::operate::render::{duration, size, time};

/// Draws the selected list.
pub(super) fn draw(frame: &mut Frame, screen: &Screen, area: Rect) {
    match screen.listed {
        ListKind::Urls => draw_urls(frame, screen, area),
        ListKind::Routes => draw_routes(frame, screen, area),
        ListKind::Errors => draw_errors(frame, screen, area),
        ListKind::Nodes => draw_nodes(frame, screen, area),
    }
}

/// The width of a column next to a URL.
const WIDTH: u16 = 10;

/// Shortens a url to `room` characters, in its middle: urls of one site differ at their ends.
fn fitted(url: &str, room: usize) -> String {
    let count = url.chars().count();
    if count <= room {
        return url.to_owned();
    }
    let before = room / 3;
    let after = room.saturating_sub(before + 1);
    let start: String = url.chars().take(before).collect();
    let end: String = url.chars().skip(count - after).collect();
    format!("{start}…{end}")
}

fn draw_urls(frame: &mut Frame, screen: &Screen, area: Rect) {
    if let Some(why) = &screen.no_urls {
        frame.render_widget(Paragraph::new(why.as_str()).style(QUIET), area);
        return;
    }
    let name = named(screen, "busiest urls", "urls");
    let heading = Row::new(std::iter::once(name).chain(Order::ALL.map(|order| {
        let style = if order == screen.order { STRONG } else { QUIET };
        Span::styled(format!("{:>10}", order.heading()), style)
    })));
    let beside = Order::ALL.len() as u16 * (WIDTH + 1);
    let room = usize::from(area.width.saturating_sub(beside));
    let rows = screen.shown().map(|url| {
        let [requests, bytes, misses, origin] = url.amounts;
        let known = |amount: Option<String>| format!("{:>10}", amount.as_deref().unwrap_or("–"));
        Row::new([
            if url.is_cut {
                fitted(&format!("{}…", url.name), room)
            } else {
                fitted(&url.name, room)
            },
            known(requests.map(|count| count.to_string())),
            known(bytes.map(size)),
            known(misses.map(|count| count.to_string())),
            known(origin.map(|micros| time(micros as f64))),
        ])
    });
    let mut widths = vec![Constraint::Fill(1)];
    widths.extend(Order::ALL.map(|_| Constraint::Length(WIDTH)));
    let table = Table::new(rows, widths).header(heading);
    draw_marked(frame, screen, table, area);
}

/// The columns of routes after their names, each with its width.
const OF_ROUTES: [(&str, u16); 7] = [
    ("requests", 9),
    ("hits", 7),
    ("origin", 7),
    ("errors", 6),
    ("hit", 7),
    ("waited", 7),
    ("origin", 7),
];

fn draw_routes(frame: &mut Frame, screen: &Screen, area: Rect) {
    let name = named(screen, "routes, p50", "routes");
    let headings = OF_ROUTES.map(|(heading, width)| {
        Span::styled(
            format!("{heading:>width$}", width = usize::from(width)),
            QUIET,
        )
    });
    let heading = Row::new(std::iter::once(name).chain(headings));
    let rows = screen.shown_routes().map(row_of_route);
    let mut widths = vec![Constraint::Fill(1)];
    widths.extend(OF_ROUTES.map(|(_, width)| Constraint::Length(width)));
    draw_marked(
        frame,
        screen,
        Table::new(rows, widths).header(heading),
        area,
    );
}

fn row_of_route(route: &Route) -> Row<'static> {
    let cells = [
        route.requests.to_string(),
        route
            .hits
            .map_or_else(|| "–".to_owned(), |share| format!("{share:.1} %")),
        route.origin.to_string(),
        route.errors.to_string(),
    ];
    let latency = route
        .p50
        .map(|p50| p50.map_or_else(|| "–".to_owned(), time));
    let cells = cells.into_iter().chain(latency).zip(OF_ROUTES);
    let cells =
        cells.map(|(cell, (_, width))| format!("{cell:>width$}", width = usize::from(width)));
    Row::new(std::iter::once(route.name.clone()).chain(cells))
}

fn draw_errors(frame: &mut Frame, screen: &Screen, area: Rect) {
    if screen.errors.is_empty() {
        let none = Paragraph::new("no recent errors").style(QUIET);
        frame.render_widget(none, area);
        return;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_millis() as u64);
    let heading = Row::new([
        Span::styled("    ago", QUIET),
        Span::styled("times", QUIET),
        Span::styled("where", QUIET),
        named(screen, "recent errors", "errors"),
    ]);
    let rows = screen.shown_errors().map(|error| row_of_error(error, now));
    let widths = [
        Constraint::Length(7),
        Constraint::Length(5),
        Constraint::Length(12),
        Constraint::Fill(1),
    ];
    draw_marked(
        frame,
        screen,
        Table::new(rows, widths).header(heading),
        area,
    );
}

fn row_of_error(error: &Error, now: u64) -> Row<'static> {
    // The clock of the server may be ahead of this one.
    let ago = duration(now.saturating_sub(error.at) / 1000);
    let largest: String = ago.split(' ').take(2).collect::<Vec<_>>().join(" ");
    let what = match error.url.as_str() {
        "" => error.reason.clone(),
        url => format!("{}  {url}", error.reason),
    };
    Row::new([
        format!("{largest:>7}"),
        format!("{:>5}", error.count),
        error.place.clone(),
        what,
    ])
    .style(if error.count > 1 { BAD } else { STRONG })
}

/// The columns of nodes after their names, each with its width.
const OF_NODES: [(&str, u16); 7] = [
    ("version", 8),
    ("requests/s", 10),
    ("origin/s", 8),
    ("hits", 7),
    ("memory", 9),
    ("behind", 6),
    ("", 10),
];

fn draw_nodes(frame: &mut Frame, screen: &Screen, area: Rect) {
    let headings = OF_NODES.map(|(heading, width)| {
        let width = usize::from(width);
        Span::styled(format!("{heading:>width$}"), QUIET)
    });
    let heading = Row::new(std::iter::once(named(screen, "nodes", "nodes")).chain(headings));
    let mut widths = vec![Constraint::Fill(1)];
    widths.extend(OF_NODES.map(|(_, width)| Constraint::Length(width)));
    let table = Table::new(screen.shown_nodes().map(row_of_node), widths);
    draw_marked(frame, screen, table.header(heading), area);
}

fn row_of_node(node: &Node) -> Row<'static> {
    let hits = node.hits.map(|share| format!("{share:.1} %"));
    let cells = [
        node.version.clone(),
        format!("{:.1}", node.requests_per_second),
        format!("{:.1}", node.origin_per_second),
        hits.unwrap_or_else(|| "–".to_owned()),
        size(node.memory),
        node.behind
            .map_or_else(|| "–".to_owned(), |seconds| format!("{seconds} s")),
        node.state.clone(),
    ];
    let cells = cells.into_iter().zip(OF_NODES);
    let cells =
        cells.map(|(cell, (_, width))| format!("{cell:>width$}", width = usize::from(width)));
    let row = Row::new(std::iter::once(node.name.clone()).chain(cells));
    row.style(if node.is_well { Style::new() } else { BAD })
}

fn draw_marked(frame: &mut Frame, screen: &Screen, table: Table<'_>, area: Rect) {
    let mut state = TableState::new().with_selected(Some(screen.marked));
    frame.render_stateful_widget(table.row_highlight_style(MARKED), area, &mut state);
}

/// Returns the title of a list, or the filter that narrows it.
fn named(screen: &Screen, whole: &'static str, kind: &str) -> Span<'static> {
    if screen.filter.is_empty() {
        Span::styled(whole, QUIET)
    } else {
        Span::styled(format!("{kind} with `{}`", screen.filter), STRONG)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_urls_that_differ_at_their_ends_do_not_look_alike() {
        let urls = [1, 2].map(|page| format!("http://www.example.org/a/long/way/{page}"));
        let [one, other] = urls.each_ref().map(|url| fitted(url, 20));
        assert_eq!(one, "http:/…/a/long/way/1");
        assert_ne!(one, other);
        assert_eq!(fitted(&urls[0], 100), urls[0]);
        for room in 0..urls[0].len() {
            assert!(fitted(&urls[0], room).chars().count() <= room.max(1));
        }
    }
}
