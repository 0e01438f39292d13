//! Settings of the origin.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use http::{HeaderName, HeaderValue, StatusCode};

use super::values::{Fraction, SecondsRange};

/// Resource used by a render.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkKind {
    /// CPU time of one thread.
    Cpu,
    /// Wall-clock time only.
    Sleep,
}

/// Invalid option value.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{option}: {what}")]
pub struct InvalidOption {
    /// Name of the option, without dashes.
    pub option: String,
    /// Expected value.
    pub what: String,
}

/// Settings of the origin; [`Settings::set`] changes them by option name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub(super) listen: SocketAddr,
    pub(super) page: PageSettings,
    pub(super) workers: usize,
    pub(super) queue: usize,
    pub(super) error_rate: Fraction,
    pub(super) error_status: StatusCode,
    pub(super) truncate_rate: Fraction,
}

/// Settings of a page, which a request may override.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PageSettings {
    pub(super) work: Duration,
    pub(super) work_kind: WorkKind,
    pub(super) size: u64,
    pub(super) content_type: HeaderValue,
    pub(super) status: StatusCode,
    pub(super) slow_body: Duration,
    pub(super) unchanging: Fraction,
    pub(super) etag: bool,
    pub(super) last_modified: bool,
    pub(super) max_age: Option<SecondsRange>,
    pub(super) cache_control: Option<HeaderValue>,
    pub(super) vary: Option<HeaderValue>,
    pub(super) set_cookie: Option<HeaderValue>,
    /// Request fields to repeat in the page.
    pub(super) echo: Vec<HeaderName>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 3000)),
            page: PageSettings::default(),
            workers: 1,
            queue: 1000,
            error_rate: Fraction::default(),
            error_status: StatusCode::INTERNAL_SERVER_ERROR,
            truncate_rate: Fraction::default(),
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
            unchanging: Fraction::default(),
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
    /// Sets the listen address.
    pub fn set_listen(&mut self, address: SocketAddr) {
        self.listen = address;
    }

    /// Sets the render time.
    pub fn set_work(&mut self, work: Duration) {
        self.page.work = work;
    }

    /// Listen address.
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// Returns a one-line description.
    pub fn summary(&self) -> String {
        let page = &self.page;
        let size = page.size;
        let content_type = page.content_type.to_str().unwrap_or_default();
        if page.work.is_zero() {
            return format!("{size} bytes of {content_type}, no render time");
        }
        let kind = match page.work_kind {
            WorkKind::Cpu => "CPU time",
            WorkKind::Sleep => "sleep",
        };
        let workers = match self.workers {
            1 => "1 worker".to_owned(),
            workers => format!("{workers} workers"),
        };
        format!(
            "{size} bytes of {content_type}; {:?} of {kind} per render; {workers}, queue of {}",
            page.work, self.queue
        )
    }
}
