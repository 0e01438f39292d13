//! What was seen in an interval, as one line of JSON.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// One request.
pub struct Sample {
    pub latency: Duration,
    /// The status and the outcome, or what went wrong.
    pub answer: Result<(u16, &'static str), String>,
    /// What is wrong with the body.
    pub wrong: Option<&'static str>,
    /// By how much the pause before it was longer than planned.
    pub overslept: Duration,
}

pub fn line(interval: usize, took: Duration, cpu: Duration, samples: &[Sample]) -> String {
    let mut micros: Vec<f64> = samples
        .iter()
        .map(|sample| sample.latency.as_secs_f64() * 1e6)
        .collect();
    micros.sort_unstable_by(f64::total_cmp);
    let mut line = format!(
        "{{\"interval\":{interval},\"seconds\":{:.6},\"requests\":{},\"cpu_us\":{}",
        took.as_secs_f64(),
        samples.len(),
        cpu.as_micros()
    );
    let overslept = samples
        .iter()
        .map(|sample| sample.overslept.as_secs_f64() * 1e6);
    let _ = write!(
        line,
        ",\"mean_us\":{:.1},\"p50_us\":{:.1},\"p95_us\":{:.1},\"p99_us\":{:.1},\"max_us\":{:.1},\"overslept_us\":{:.1}",
        mean(micros.iter().copied()),
        nearest(&micros, 0.50),
        nearest(&micros, 0.95),
        nearest(&micros, 0.99),
        nearest(&micros, 1.0),
        mean(overslept)
    );
    let answers = || {
        samples
            .iter()
            .filter_map(|sample| sample.answer.as_ref().ok())
    };
    let errors = samples
        .iter()
        .filter_map(|sample| sample.answer.as_ref().err());
    counts(
        &mut line,
        "statuses",
        answers().map(|(status, _)| status.to_string()),
    );
    counts(
        &mut line,
        "outcomes",
        answers().map(|(_, outcome)| (*outcome).to_owned()),
    );
    counts(&mut line, "errors", errors.cloned());
    let wrong = samples.iter().filter_map(|sample| sample.wrong);
    counts(&mut line, "wrong", wrong.map(str::to_owned));
    line + "}"
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), value| (sum + value, count + 1));
    sum / f64::from(count.max(1))
}

/// The percentile by nearest rank.
pub fn nearest(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or(0.0)
}

fn counts(line: &mut String, name: &str, values: impl Iterator<Item = String>) {
    let mut all: BTreeMap<String, u64> = BTreeMap::new();
    for value in values {
        *all.entry(value).or_default() += 1;
    }
    let all: Vec<String> = all
        .iter()
        .map(|(value, count)| {
            let plain = value.replace(['"', '\\', '\n', '\t'], " ");
            format!("\"{plain}\":{count}")
        })
        .collect();
    let _ = write!(line, ",\"{name}\":{{{}}}", all.join(","));
}
