//! `microcache bench`: generates the load, shows the progress, prints the report.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use microcache_bench::load::subscribe::{self, SubscribeSettings};
use microcache_bench::load::{self, BenchReport};

use crate::cli::Bench;
use crate::{print, refuse, tell};

pub(crate) fn run(bench: &Bench) -> ExitCode {
    let watched = std::io::stderr().is_terminal();
    if let Err(why) = load::stop_on_signals(&bench.settings.stop) {
        return refuse(&format!(
            "microcache bench: the system refuses signals: {why}"
        ));
    }
    if let Some(subscribe) = &bench.subscribe {
        return run_streams(bench, subscribe, watched);
    }
    let report = load::run(&bench.settings, &mut |progress| {
        if watched {
            show(&load::progress_line(progress, &bench.settings));
        }
    });
    if watched {
        show("");
    }
    let report = match report {
        Ok(report) => report,
        Err(why) => return refuse(&format!("microcache bench: {why}")),
    };
    print(&bench.format.write(&report));
    if let Err(why) = keep(bench, &report) {
        return refuse(&format!("microcache bench: {why}"));
    }
    judge(bench, &report)
}

fn run_streams(bench: &Bench, subscribe: &SubscribeSettings, watched: bool) -> ExitCode {
    let report = subscribe::run(&bench.settings, subscribe, &mut |progress| {
        if watched {
            show(&progress.to_string());
        }
    });
    if watched {
        show("");
    }
    match report {
        Ok(report) => {
            print(&report.write(bench.format).unwrap_or_default());
            ExitCode::SUCCESS
        }
        Err(why) => refuse(&format!("microcache bench: {why}")),
    }
}

/// Overwrites the current line of the terminal.
fn show(line: &str) {
    let mut out = std::io::stderr().lock();
    let _ = write!(out, "\r\x1b[2K{line}").and_then(|()| out.flush());
}

fn keep(bench: &Bench, report: &BenchReport) -> Result<(), String> {
    if let Some(path) = &bench.hgrm {
        write_file(path, &load::hgrm(report))?;
    }
    if let Some(path) = &bench.html {
        write_file(path, &load::html(report))?;
    }
    Ok(())
}

fn write_file(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|why| format!("cannot write {}: {why}", path.display()))
}

fn judge(bench: &Bench, report: &BenchReport) -> ExitCode {
    let failures: Vec<_> = bench
        .thresholds
        .iter()
        .filter_map(|threshold| threshold.failure(report))
        .collect();
    for failure in &failures {
        tell(&format!("microcache bench: failed: {failure}\n"));
    }
    if failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
