//! `microcache bench`: the load generator.
//!
//! [`run`] makes the load that [`Settings`] describe and returns a [`Report`]; meanwhile it tells a watcher how things stand.
//!
//! ```no_run
//! use microcache_bench::load::{self, Settings, Target, Url};
//!
//! let url = Url::parse("http://localhost:8080/")?;
//! let settings = Settings::new(vec![Target::get(url)]);
//! let report = load::run(&settings, &mut |progress| {
//!     println!("{:.0} requests/s", progress.slice.rate());
//! })?;
//! println!("{:?}", report.tally.overall().total.percentile(99.0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cache_status;
mod choice;
mod error;
mod formats;
mod http1;
mod http2;
mod live;
mod origin_counter;
mod outcome;
mod pace;
mod plan;
mod random;
mod recorder;
mod report;
mod rest;
mod run;
mod settings;
mod source;
mod stop;
pub mod subscribe;
mod tally;
mod target;
#[cfg(test)]
mod testing;
mod threshold;
mod timer;
mod trust;
mod unit;
pub mod url_file;

pub use error::LoadError;
pub use formats::{Format, hgrm, html};
pub use live::line;
pub use outcome::{Fault, Outcome};
pub use report::{OriginCount, Progress, Report, Slice};
pub use run::run;
pub use settings::{Choice, Pace, Protocol, Settings, Trust, header, method};
pub use stop::{Stop, stop_on_signals};
pub use tally::{Latency, Tally, Timing};
pub use target::{Server, Target, Url};
pub use threshold::Threshold;
pub use unit::duration;
