//! Encoder of the Prometheus text format.

use std::fmt::{Display, Write};
use std::ops::RangeInclusive;

use microcache_proxy::Latencies;

/// Exponents of the histogram buckets for hits: 2 to this power, in microseconds; the last is about a second.
pub(crate) const OF_HITS: RangeInclusive<usize> = 0..=20;
/// Exponents of the buckets for origins: from a quarter of a millisecond to more than four minutes.
pub(crate) const OF_ORIGINS: RangeInclusive<usize> = 8..=28;

/// Metric families in text form, each followed by its samples.
#[derive(Default)]
pub(crate) struct Exposition {
    text: String,
    name: &'static str,
}

impl Exposition {
    pub(crate) fn counter(&mut self, name: &'static str, help: &str) -> &mut Self {
        self.family(name, "counter", help)
    }

    pub(crate) fn gauge(&mut self, name: &'static str, help: &str) -> &mut Self {
        self.family(name, "gauge", help)
    }

    pub(crate) fn histogram(&mut self, name: &'static str, help: &str) -> &mut Self {
        self.family(name, "histogram", help)
    }

    fn family(&mut self, name: &'static str, kind: &str, help: &str) -> &mut Self {
        self.name = name;
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        self
    }

    /// Adds a sample to the most recent family.
    pub(crate) fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) -> &mut Self {
        self.line("", labels, value)
    }

    /// Adds a histogram with one label, in seconds. The buckets are bounds of the recorded classes, so
    /// nothing is interpolated.
    pub(crate) fn times(
        &mut self,
        label: (&str, &str),
        times: &Latencies,
        powers: RangeInclusive<usize>,
    ) -> &mut Self {
        let count = times.count();
        for power in powers {
            let end = (1_u64 << power) as f64 / 1e6;
            let labels = [label, ("le", &end.to_string())];
            self.line("_bucket", &labels, times.below(power));
        }
        self.line("_bucket", &[label, ("le", "+Inf")], count)
            .line("_sum", &[label], times.total().as_secs_f64())
            .line("_count", &[label], count)
    }

    fn line(&mut self, end: &str, labels: &[(&str, &str)], value: impl Display) -> &mut Self {
        self.text.push_str(self.name);
        self.text.push_str(end);
        for (number, (label, of)) in labels.iter().enumerate() {
            self.text.push(if number == 0 { '{' } else { ',' });
            let _ = write!(self.text, "{label}=\"{}\"", escaped(of));
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
        self
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }
}

fn escaped(label: &str) -> String {
    label
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut out = Exposition::default();
        out.gauge("x", "An x.")
            .sample(&[("a", "\"\\\n"), ("b", "")], 1)
            .sample(&[], 2);
        let expected = "# HELP x An x.\n# TYPE x gauge\nx{a=\"\\\"\\\\\\n\",b=\"\"} 1\nx 2\n";
        assert_eq!(out.text, expected);
    }

    #[test]
    fn a_histogram_has_its_classes_in_seconds_and_their_sum() {
        let mut out = Exposition::default();
        out.histogram("x", "Times.")
            .times(("route", "a"), &Latencies::default(), 0..=1);
        let expected = "# HELP x Times.\n# TYPE x histogram\n\
            x_bucket{route=\"a\",le=\"0.000001\"} 0\nx_bucket{route=\"a\",le=\"0.000002\"} 0\n\
            x_bucket{route=\"a\",le=\"+Inf\"} 0\nx_sum{route=\"a\"} 0\nx_count{route=\"a\"} 0\n";
        assert_eq!(out.text, expected);
    }
}
