//! Writer of samples in the Prometheus text format.

use std::fmt::{Display, Write};
use std::ops::RangeInclusive;

use microcache_proxy::Latencies;

/// Exponents of the histogram buckets for hits: 2 to this power, in microseconds; the last is about a second.
pub(super) const OF_HITS: RangeInclusive<usize> = 0..=20;
/// Exponents of the buckets for origins: from a quarter of a millisecond to more than four minutes.
pub(super) const OF_ORIGINS: RangeInclusive<usize> = 8..=28;

/// Samples of one metric and one subject, such as a route.
pub(super) struct Samples<'a> {
    text: &'a mut String,
    metric: &'static str,
    /// Labels of the subject, which come first in every sample.
    labels: &'a [(&'static str, &'a str)],
}

impl<'a> Samples<'a> {
    pub(super) const fn new(
        text: &'a mut String,
        metric: &'static str,
        labels: &'a [(&'static str, &'a str)],
    ) -> Self {
        Self {
            text,
            metric,
            labels,
        }
    }

    /// Adds the only sample of the subject.
    pub(super) fn value(&mut self, value: impl Display) {
        self.line("", &[], value);
    }

    /// Adds a sample for each value of another label.
    pub(super) fn by<'v, V: Display>(
        &mut self,
        label: &str,
        values: impl IntoIterator<Item = (&'v str, V)>,
    ) {
        for (of, value) in values {
            self.line("", &[(label, of)], value);
        }
    }

    /// Adds a histogram in seconds. The buckets are bounds of the recorded classes, so nothing is interpolated.
    pub(super) fn times(&mut self, times: &Latencies, powers: RangeInclusive<usize>) {
        for power in powers {
            let end = (1_u64 << power) as f64 / 1e6;
            let end = end.to_string();
            self.line("_bucket", &[("le", &end)], times.below(power));
        }
        self.line("_bucket", &[("le", "+Inf")], times.count());
        self.line("_sum", &[], times.total().as_secs_f64());
        self.line("_count", &[], times.count());
    }

    fn line(&mut self, end: &str, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(self.metric);
        self.text.push_str(end);
        let mut mark = '{';
        for (label, of) in self.labels.iter().chain(labels) {
            // Writing to a string does not fail.
            let _ = write!(self.text, "{mark}{label}=\"{}\"", escaped(of));
            mark = ',';
        }
        if mark == ',' {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
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

    fn written(labels: &[(&'static str, &str)], write: impl Fn(&mut Samples<'_>)) -> String {
        let mut text = String::new();
        write(&mut Samples::new(&mut text, "x", labels));
        text
    }

    #[test]
    fn labels_are_escaped() {
        let text = written(&[("a", "\"\\\n")], |to| to.by("b", [("", 1), ("c", 2)]));
        assert_eq!(
            text,
            "x{a=\"\\\"\\\\\\n\",b=\"\"} 1\nx{a=\"\\\"\\\\\\n\",b=\"c\"} 2\n"
        );
        assert_eq!(written(&[], |to| to.value(2.5)), "x 2.5\n");
    }

    #[test]
    fn a_histogram_has_its_classes_in_seconds_and_their_sum() {
        let none = Latencies::default();
        let text = written(&[("route", "a")], |to| to.times(&none, 0..=1));
        let expected = "x_bucket{route=\"a\",le=\"0.000001\"} 0\nx_bucket{route=\"a\",le=\"0.000002\"} 0\n\
            x_bucket{route=\"a\",le=\"+Inf\"} 0\nx_sum{route=\"a\"} 0\nx_count{route=\"a\"} 0\n";
        assert_eq!(text, expected);
    }
}
