//! `microcache bench`: the load generator.
//!
//! [`run`] generates the load described by [`Settings`], calls a progress callback at the end of every
//! slice, and returns a [`BenchReport`].
//!
//! ```no_run
//! use microcache_bench::load::{self, Settings, LoadTarget, TargetUrl};
//!
//! let url = TargetUrl::parse("http://localhost:8080/")?;
//! let settings = Settings::new(vec![LoadTarget::get(url)]);
//! let report = load::run(&settings, &mut |progress| {
//!     println!("{:.0} requests/s", progress.slice.rate());
//! })?;
//! println!("{:?}", report.tally.overall().total.percentile(99.0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod arrivals;
mod backoff;
mod cache_status;
mod error;
mod formats;
mod http1;
mod http2;
mod live;
mod origin_counter;
mod outcome;
mod plan;
mod random;
mod reactor;
mod recorder;
mod report;
mod request_source;
mod run;
mod settings;
mod socket;
mod stop;
pub mod subscribe;
mod tally;
mod target;
#[cfg(test)]
mod testing;
mod threshold;
mod timer;
mod transport;
mod trust;
mod unit;
pub mod url_file;
mod url_selector;

pub use error::LoadError;
pub use formats::{Format, hgrm, html};
pub use live::progress_line;
pub use outcome::{CacheOutcome, RequestFault};
pub use report::{BenchReport, LoadProgress, OriginCount, Slice};
pub use run::run;
pub use settings::{
    CertificateTrust, LoadProtocol, RequestPace, Settings, UrlOrder, header, method,
};
pub use stop::{Stop, stop_on_signals};
pub use tally::{Latency, Tally, Timing};
pub use target::{LoadTarget, TargetServer, TargetUrl};
pub use threshold::Threshold;
pub use unit::duration;
