//! The command line: `microcache http://localhost:3000`.

mod acme;
mod banner;
mod bench;
mod cli;
mod count;
mod fetch;
mod logs;
mod operate;
mod operators;
mod otlp;
mod service;
mod top;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use microcache_bench::demo::{self, DemoOutcome, DemoScreen};
use microcache_bench::origin::{self, OriginServer};
use microcache_proxy::config::{Config, Report, Source, SourceError};
use microcache_proxy::{InheritedSockets, Notices, Server, ServerError};
use tikv_jemallocator::Jemalloc;

use acme::Acme;
use cli::{Job, Message};
use count::count;
use logs::Logs;
use operators::AdminListener;
use otlp::Exporter;

/// The exit status for errors in the command line or the configuration.
const BAD_USAGE: u8 = 2;

/// The exit status after Ctrl-C, as in shells.
const INTERRUPTED: u8 = 130;

/// The allocator; docs/decisions/allocator.md has the measurement.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    let done = match cli::parse(std::env::args_os()) {
        Ok(Job::Serve(source)) => serve(source),
        Ok(Job::Check(file)) => Ok(check(&file)),
        Ok(Job::Bench(load)) => Ok(bench::run(&load)),
        Ok(Job::Demo(settings)) => Ok(demonstrate(&settings)),
        Ok(Job::Fetch(settings)) => Ok(fetch::run(&settings)),
        Ok(Job::Origin(settings)) => Ok(originate(settings)),
        Ok(Job::Operate(errand)) => Ok(operate::run(&errand)),
        Ok(Job::Top(server)) => Ok(top::run(&server)),
        Ok(Job::Print(text)) | Err(Message::Help(text)) => {
            print(&text);
            Ok(ExitCode::SUCCESS)
        }
        Ok(Job::Manual(folder)) => Ok(write_manual(&folder)),
        Err(Message::Wrong(what)) => Ok(refuse(&format!("microcache: {what}"))),
    };
    done.unwrap_or_else(|error| {
        tell(&format!("microcache: {error}\n"));
        ExitCode::FAILURE
    })
}

fn serve(source: Source) -> Result<ExitCode, ServerError> {
    let mut inherited = match InheritedSockets::receive() {
        Ok(inherited) => inherited,
        Err(error) => {
            let why =
                format!("microcache: the sockets of the previous process cannot be used: {error}");
            return Ok(refuse(&why));
        }
    };
    let config = match source.read() {
        Ok(config) => config,
        Err(why) => {
            inherited.failed(&why.to_string());
            return Ok(refuse(&unusable(&why)));
        }
    };
    warn(&config);
    let admin = match operators::bind(&config.admin, &mut inherited) {
        Ok(admin) => admin,
        Err(why) => {
            inherited.failed(&why);
            return Ok(refuse(&format!("microcache: {why}")));
        }
    };
    let logs = match Logs::open(&config) {
        Ok(logs) => logs,
        Err(why) => {
            inherited.failed(&why.to_string());
            tell(&format!("microcache: {why}\n"));
            return Ok(ExitCode::FAILURE);
        }
    };
    let ended = serve_with(&config, source, &logs, admin, inherited);
    if let Err(error) = &ended {
        logs.failed(error);
    }
    if let Some(lost) = logs.finish() {
        tell(&format!("microcache: {lost}\n"));
    }
    ended
}

fn serve_with(
    config: &Config,
    source: Source,
    logs: &Logs,
    admin: AdminListener,
    inherited: InheritedSockets,
) -> Result<ExitCode, ServerError> {
    let notices = Notices::default();
    logs.listen(&notices);
    let acme = Acme::new(&notices);
    let looks_after = acme.clone();
    let mut server = Server::bind(config.clone(), notices.clone(), inherited)?
        .reloads_from(source)
        .on_stage(move |stage| {
            service::tell(stage);
            looks_after.on_stage(stage);
        });
    if let Some(reopen) = logs.reopening() {
        server = server.on_reopen(reopen);
    }
    let exporter = Exporter::start(config, &notices);
    if let Some(exporter) = &exporter {
        server = server.traced(exporter.traces());
    }
    let server = match (logs.access(), exporter.as_ref().map(Exporter::requests)) {
        (Some(access), Some(traces)) => server.on_finished(move |finished| {
            access(finished);
            traces(finished);
        }),
        (Some(access), None) => server.on_finished(access),
        (None, Some(traces)) => server.on_finished(traces),
        (None, None) => server,
    };
    let server = server.start()?;
    let started = banner::started(config, server.addresses(), &admin.summary());
    logs.banner("started", &started);
    acme.begin(server.handle());
    admin.start(server.handle())?;
    let Some(summary) = server.run()? else {
        return Ok(INTERRUPTED.into());
    };
    if let Some(exporter) = &exporter {
        exporter.finish();
    }
    logs.banner("stopped", &banner::stopped(&summary));
    Ok(ExitCode::SUCCESS)
}

fn check(file: &Path) -> ExitCode {
    let source = Source {
        file: Some(file.to_owned()),
        ..Source::default()
    };
    match source.read() {
        Ok(config) => {
            warn(&config);
            let name = file.display();
            print(&format!("{name} is fine: {}\n", banner::contents(&config)));
            ExitCode::SUCCESS
        }
        Err(SourceError::Mistakes(report)) => refuse(&with_count(&report)),
        Err(why) => refuse(&unusable(&why)),
    }
}

/// Prints the warnings of a configuration.
fn warn(config: &Config) {
    if config.warnings.count() > 0 {
        tell(&format!("{}\n", config.warnings));
    }
}

fn write_manual(folder: &Path) -> ExitCode {
    match cli::manual::write(folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let folder = folder.display();
            tell(&format!(
                "microcache man: cannot write into {folder}: {error}\n"
            ));
            ExitCode::FAILURE
        }
    }
}

fn demonstrate(settings: &demo::Settings) -> ExitCode {
    match demo::run(settings, &mut DemoScreen::standard()) {
        Ok(DemoOutcome::Complete) => ExitCode::SUCCESS,
        Ok(DemoOutcome::Interrupted) => INTERRUPTED.into(),
        Err(error) => refuse(&format!("microcache demo: {error}")),
    }
}

fn originate(settings: origin::Settings) -> ExitCode {
    let what = settings.summary();
    let done = OriginServer::bind(settings).and_then(|origin| {
        let counters = origin.counters();
        let started = banner::origin_started(origin.address(), &what);
        origin.run(|| tell(&started))?;
        tell(&banner::origin_stopped(counters.totals()));
        Ok(())
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error @ origin::Error::Listen(..)) => refuse(&format!(
            "microcache origin: {error}; choose another address with --listen"
        )),
        Err(error) => refuse(&format!("microcache origin: {error}")),
    }
}

fn with_count(report: &Report) -> String {
    format!("{report}\n{}", count(report.count() as u64, "mistake"))
}

/// Formats the error of a configuration. Mistakes begin with their places.
fn unusable(why: &SourceError) -> String {
    match why {
        SourceError::Mistakes(report) => report.to_string(),
        SourceError::Unreadable { .. } => format!("microcache: {why}"),
    }
}

fn refuse(what: &str) -> ExitCode {
    tell(&format!("{what}\n"));
    BAD_USAGE.into()
}

/// Prints to standard output. A closed pipe is not an error.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// Prints to standard error. A closed pipe is not an error.
fn tell(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}
