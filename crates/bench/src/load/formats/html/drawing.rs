//! SVG line and area chart.

use std::fmt::{Display, Write};

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 64.0;
const BOTTOM: f64 = 24.0;
const TOP: f64 = 8.0;
const RIGHT: f64 = 36.0;

/// SVG chart. Coordinates on both axes are fractions from 0 to 1.
pub(super) struct Drawing(String);

impl Drawing {
    pub(super) fn new(title: &str) -> Self {
        Self(format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">\n"
        ))
    }

    /// Adds a horizontal grid line with its label.
    pub(super) fn mark_y(&mut self, y: f64, label: impl Display) {
        let (left, right, y) = (place_x(0.0), place_x(1.0), place_y(y));
        let _ = writeln!(
            self.0,
            "<path class=\"grid\" d=\"M{left:.1} {y:.1}H{right:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            left - 6.0,
            y + 4.0
        );
    }

    /// Adds a label below the horizontal axis.
    pub(super) fn mark_x(&mut self, x: f64, label: impl Display) {
        let _ = writeln!(
            self.0,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
            place_x(x),
            HEIGHT - 6.0
        );
    }

    pub(super) fn line(&mut self, class: impl Display, points: &[(f64, f64)]) {
        let path = path(points.iter().copied());
        let _ = writeln!(self.0, "<path class=\"line {class}\" d=\"{path}\"/>");
    }

    /// Fills the area between two lines with the same horizontal coordinates.
    pub(super) fn area(&mut self, class: impl Display, lower: &[(f64, f64)], upper: &[(f64, f64)]) {
        let around = lower.iter().chain(upper.iter().rev()).copied();
        let path = path(around);
        let _ = writeln!(self.0, "<path class=\"area {class}\" d=\"{path}Z\"/>");
    }

    pub(super) fn end(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}

fn path(points: impl Iterator<Item = (f64, f64)>) -> String {
    let mut path = String::new();
    for (number, (x, y)) in points.enumerate() {
        let letter = if number == 0 { 'M' } else { 'L' };
        let _ = write!(path, "{letter}{:.1} {:.1}", place_x(x), place_y(y));
    }
    path
}

fn place_x(share: f64) -> f64 {
    LEFT + share.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
}

fn place_y(share: f64) -> f64 {
    TOP + (1.0 - share.clamp(0.0, 1.0)) * (HEIGHT - TOP - BOTTOM)
}

/// Returns the next round number, at least `value`, for the upper end of an axis.
pub(super) fn round_up(value: f64) -> f64 {
    let power = 10f64.powf(value.max(1.0).log10().floor());
    let rounds = [1.0, 2.0, 4.0, 8.0, 10.0].map(|digit| digit * power);
    let no_less = rounds.into_iter().find(|round| *round >= value);
    no_less.unwrap_or(value)
}

/// Logarithmic scale of latencies, in whole decades.
pub(super) struct Decades {
    first: f64,
    last: f64,
}

impl Decades {
    /// Returns the decades that span these latencies, in microseconds.
    pub(super) fn spanning(shortest: f64, longest: f64) -> Self {
        let first = shortest.max(1.0).log10().floor();
        let last = longest.max(1.0).log10().ceil().max(first + 1.0);
        Self { first, last }
    }

    pub(super) fn place(&self, micros: f64) -> f64 {
        (micros.max(1.0).log10() - self.first) / (self.last - self.first)
    }

    /// Powers of ten on the scale, in microseconds.
    pub(super) fn marks(&self) -> impl Iterator<Item = f64> + use<> {
        let last = self.last;
        std::iter::successors(Some(self.first), |power| Some(power + 1.0))
            .take_while(move |power| *power <= last)
            .map(|power| 10f64.powf(power))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        for (value, end) in [
            (0.0, 1.0),
            (1.0, 1.0),
            (3.0, 4.0),
            (7_612.0, 8_000.0),
            (81.0, 100.0),
        ] {
            assert!((round_up(value) - end).abs() < 1e-6, "{value}");
        }
    }

    #[test]
    fn decades_cover_their_range() {
        let decades = Decades::spanning(120.0, 4_500.0);
        let marks: Vec<_> = decades.marks().map(f64::round).collect();
        assert_eq!(marks, [100.0, 1_000.0, 10_000.0]);
        assert!((decades.place(1_000.0) - 0.5).abs() < 1e-9);
        let none: Vec<_> = Decades::spanning(0.0, 0.0)
            .marks()
            .map(f64::round)
            .collect();
        assert_eq!(none, [1.0, 10.0]);
    }
}
