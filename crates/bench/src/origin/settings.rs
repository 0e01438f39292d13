//! What the application is told to be.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use http::{HeaderName, HeaderValue, StatusCode};

use super::options::ORIGIN_OPTIONS;
use super::preset;
use super::values::{Seconds, Share};

/// What a render spends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkKind {
    /// CPU time of one thread.
    Cpu,
    /// Time only.
    Sleep,
}

/// What is wrong with an option, and what to write instead.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{option}: {what}")]
pub struct Wrong {
    /// Its name, without dashes.
    pub option: String,
    /// What is expected.
    pub what: String,
}

/// What the application is told to be; [`Settings::set`] changes it by the name of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub(super) listen: SocketAddr,
    pub(super) page: PageSettings,
    pub(super) workers: usize,
    pub(super) queue: usize,
    pub(super) error_rate: Share,
    pub(super) error_status: StatusCode,
    pub(super) truncate_rate: Share,
}

/// What a page is told to be. A request may ask for one of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PageSettings {
    pub(super) work: Duration,
    pub(super) work_kind: WorkKind,
    pub(super) size: u64,
    pub(super) content_type: HeaderValue,
    pub(super) status: StatusCode,
    pub(super) slow_body: Duration,
    pub(super) unchanging: Share,
    pub(super) etag: bool,
    pub(super) last_modified: bool,
    pub(super) max_age: Option<Seconds>,
    pub(super) cache_control: Option<HeaderValue>,
    pub(super) vary: Option<HeaderValue>,
    pub(super) set_cookie: Option<HeaderValue>,
    /// The request's fields that a page names.
    pub(super) echo: Vec<HeaderName>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 3000)),
            page: PageSettings::default(),
            workers: 1,
            queue: 1000,
            error_rate: Share::default(),
            error_status: StatusCode::INTERNAL_SERVER_ERROR,
            truncate_rate: Share::default(),
        }
    }
}

impl Default for PageSettings {
    fn default() -> Self {
        Self {
            work: Duration::from_millis(180),
            work_kind: WorkKind::Cpu,
            size: 57_000,
            content_type: HeaderValue::from_static("text/html; charset=utf-8"),
            status: StatusCode::OK,
            slow_body: Duration::ZERO,
            unchanging: Share::default(),
            etag: false,
            last_modified: false,
            max_age: None,
            cache_control: None,
            vary: None,
            set_cookie: None,
            echo: Vec::new(),
        }
    }
}

impl Settings {
    /// An application like one that was measured before: one of [`super::PRESETS`].
    pub fn like(name: &str) -> Result<Self, Wrong> {
        preset::find(name).map_err(|what| Wrong {
            option: "like".to_owned(),
            what,
        })
    }

    /// Sets an option by its name.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Wrong> {
        let wrong = |what: String| Wrong {
            option: name.to_owned(),
            what,
        };
        let option = ORIGIN_OPTIONS
            .iter()
            .find(|option| option.name == name)
            .ok_or_else(|| wrong("there is no such option".to_owned()))?;
        option
            .set(self, value)
            .map_err(|what| wrong(format!("{what}, found `{value}`")))
    }

    /// Sets where it listens.
    pub fn set_listen(&mut self, address: SocketAddr) {
        self.listen = address;
    }

    /// Sets what a render costs.
    pub fn set_work(&mut self, work: Duration) {
        self.page.work = work;
    }

    /// Where it listens.
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// What it does, in one line.
    pub fn summary(&self) -> String {
        let page = &self.page;
        let size = page.size;
        let content_type = page.content_type.to_str().unwrap_or_default();
        if page.work.is_zero() {
            return format!("{size} bytes of {content_type}, without work");
        }
        let kind = match page.work_kind {
            WorkKind::Cpu => "CPU time",
            WorkKind::Sleep => "sleep",
        };
        format!(
            "{size} bytes of {content_type}; {:?} of {kind} for each; {} at a time, and {} may wait",
            page.work, self.workers, self.queue
        )
    }
}
