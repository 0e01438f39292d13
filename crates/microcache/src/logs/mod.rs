//! The logs: the access log, and the server log.
//!
//! Lines are queued without waiting; one thread per destination writes them. The server log consists of `tracing`
//! events.

mod access;
mod events;
mod form;
mod queue;
mod sink;
mod writer;

use std::io;
use std::panic;
use std::time::Duration;

use microcache_proxy::config::{Config, LogForm, LogLevel, LogPlace};
use microcache_proxy::{FinishedRequest, Kind, Notices, ServerError};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use access::AccessLog;
use events::EventLog;
use writer::Writer;

use crate::count::count;

/// The maximum wait for unwritten lines at exit.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// The logs of a server.
pub(crate) struct Logs {
    /// One writer per destination, which logs may share.
    writers: Vec<Writer>,
    config: Config,
}

/// The failure to open a log.
#[derive(Debug)]
pub(crate) struct CannotOpen {
    place: LogPlace,
    option: &'static str,
    error: io::Error,
}

impl Logs {
    /// Opens all logs.
    pub(crate) fn open(config: &Config) -> Result<Self, CannotOpen> {
        let mut logs = Self {
            writers: Vec::new(),
            config: config.clone(),
        };
        logs.add("log", &config.logs.place)?;
        if let Some(place) = &config.logs.access {
            logs.add("access_log", place)?;
        }
        Ok(logs)
    }

    fn add(&mut self, option: &'static str, place: &LogPlace) -> Result<(), CannotOpen> {
        if self.writer(place).is_none() {
            let writer = Writer::start(place, self.config.logs.buffer);
            self.writers.push(writer.map_err(|error| CannotOpen {
                place: place.clone(),
                option,
                error,
            })?);
        }
        Ok(())
    }

    fn writer(&self, place: &LogPlace) -> Option<&Writer> {
        self.writers.iter().find(|writer| writer.place() == place)
    }

    /// Installs the server log for this process, panics included.
    pub(crate) fn listen(&self, notices: &Notices) {
        let logs = &self.config.logs;
        let Some(writer) = self.writer(&logs.place) else {
            return;
        };
        let log = EventLog {
            writer: writer.clone(),
            form: logs.form,
            level: logs.level,
        };
        // There is no other subscriber in this process.
        let _ = tracing_subscriber::registry().with(log).try_init();
        let notices = notices.clone();
        panic::set_hook(Box::new(move |panic| {
            let place = panic.location().map(ToString::to_string);
            let place = place.unwrap_or_default();
            let what = panic.payload_as_str().unwrap_or("a panic");
            let line = format!("bug: panic at {place}: {what}; other requests continue");
            notices.say(Kind::Panic, &place, line);
        }));
    }

    /// Returns the function that logs a request, if the access log is on.
    pub(crate) fn access(&self) -> Option<impl Fn(&FinishedRequest<'_>) + Send + Sync + 'static> {
        let writer = self.writer(self.config.logs.access.as_ref()?)?.clone();
        let log = AccessLog::new(writer, self.config.logs.clone());
        Some(move |finished: &FinishedRequest<'_>| log.write(finished))
    }

    /// Returns the function that reopens the files, if there are any.
    pub(crate) fn reopening(&self) -> Option<impl Fn() + Send + Sync + 'static> {
        let is_file = |writer: &&Writer| matches!(writer.place(), LogPlace::File(_));
        let files: Vec<Writer> = self.writers.iter().filter(is_file).cloned().collect();
        (!files.is_empty()).then_some(move || files.iter().for_each(Writer::reopen))
    }

    /// Writes a text of several lines: as it is, or as one JSON object.
    pub(crate) fn banner(&self, kind: &'static str, text: &str) {
        let logs = &self.config.logs;
        if logs.form == LogForm::Json {
            tracing::info!(kind, "{}", text.trim_end());
        } else if logs.level >= LogLevel::Info
            && let Some(writer) = self.writer(&logs.place)
        {
            writer.push_lines(text.as_bytes(), text.lines().count() as u64, true);
        }
    }

    /// Logs the error that ended the server, unless the log is standard error, which gets it anyway.
    pub(crate) fn failed(&self, error: &ServerError) {
        if self.config.logs.place != LogPlace::Stderr {
            tracing::error!(kind = "failed", "{error}");
        }
    }

    /// Writes all lines at exit, and returns a message about those lost.
    pub(crate) fn finish(&self) -> Option<String> {
        let finish = |writer: &Writer| {
            let (place, lost) = (writer.place(), writer.finish(LAST_WAIT));
            (lost > 0).then(|| format!("log: not written to {place}: {}", count(lost, "line")))
        };
        // The first one reports the losses of the others.
        let (log, others) = self.writers.split_first()?;
        for line in others.iter().filter_map(finish) {
            tracing::warn!(kind = "log-dropped", "{line}");
        }
        finish(log)
    }
}

impl std::fmt::Display for CannotOpen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            place,
            option,
            error,
        } = self;
        let remedy = match error.kind() {
            io::ErrorKind::NotFound => "create its directory first",
            io::ErrorKind::PermissionDenied => {
                "allow the user of this process to write there, or choose another file"
            }
            io::ErrorKind::IsADirectory => "write the name of a file in it",
            _ => "choose another file",
        };
        write!(f, "`{option}`: cannot write to {place}: {error}; {remedy}")
    }
}
