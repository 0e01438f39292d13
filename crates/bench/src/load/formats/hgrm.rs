//! `HdrHistogram` percentile distribution (`.hgrm`), as read by its plotters.

use std::fmt::Write;

use crate::load::report::BenchReport;
use crate::load::unit::millis;

/// Steps per halving of the distance to 100 %.
const STEPS: u32 = 5;

/// Returns the distribution of total latency, in milliseconds.
pub fn hgrm(report: &BenchReport) -> String {
    let total = report.tally.overall().total;
    let mut out = String::from("       Value     Percentile TotalCount 1/(1-Percentile)\n\n");
    for step in total.histogram().iter_quantiles(STEPS) {
        let quantile = step.quantile_iterated_to();
        let value = step.value_iterated_to() as f64 / 1e3;
        let count = total.histogram().count_between(0, step.value_iterated_to());
        let _ = write!(out, "{value:12.3} {quantile:14.12} {count:10}");
        if quantile < 1.0 {
            let _ = write!(out, " {:14.2}", 1.0 / (1.0 - quantile));
        }
        out.push('\n');
    }
    let _ = write!(
        out,
        "#[Mean    = {:12.3}, StdDeviation   = {:12.3}]\n#[Max     = {:12.3}, Total count    = {:12}]\n\
         #[Buckets = {:12}, SubBuckets     = {:12}]\n",
        millis(total.mean()),
        millis(total.stdev()),
        millis(total.max()),
        total.count(),
        total.histogram().buckets(),
        2048
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::testing::report;

    #[test]
    fn a_plotter_can_read_it() {
        let text = hgrm(&report());
        let rows: Vec<Vec<f64>> = text
            .lines()
            .skip(2)
            .filter(|line| !line.starts_with('#'))
            .map(|line| {
                line.split_whitespace()
                    .map(|w| w.parse().expect(w))
                    .collect()
            })
            .collect();
        assert!(
            rows.windows(2)
                .all(|pair| pair[0][0] <= pair[1][0] && pair[0][1] <= pair[1][1])
        );
        let (first, last) = (&rows[0], &rows[rows.len() - 1]);
        assert!((first[0] - 1.0).abs() < 0.01, "{first:?}");
        assert!((last[0] - 100.0).abs() < 0.1, "{last:?}");
        assert!((last[2] - 100.0).abs() < 0.1 && last.len() == 3, "{last:?}");
        assert!(text.contains("Total count    =          100]"), "{text}");
    }
}
