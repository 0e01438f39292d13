//! Whether a request is where it can be waited for: in a tokio runtime that has timers.
//!
//! A runtime does not say whether it has them. Whoever makes a timer in one without is ended by a panic of tokio's:
//! it is provoked here once and caught, so that it hits no request.

use std::cell::Cell;
use std::panic::catch_unwind;
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::time::sleep;

/// What is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    Runtime,
    Timers,
}

impl Missing {
    /// In a word, as it stands in [`CacheInfo`](crate::CacheInfo).
    pub(crate) const fn why(self) -> &'static str {
        match self {
            Self::Runtime => "no-runtime",
            Self::Timers => "no-timers",
        }
    }
}

thread_local! {
    /// The runtime of which it was asked last, and what it has: threads rarely go from one to another.
    static KNOWN: Cell<Option<(Id, bool)>> = const { Cell::new(None) };
}

/// Whether this thread is in a runtime with timers at the moment.
pub(crate) fn is_here() -> Result<(), Missing> {
    let runtime = Handle::try_current().map_err(|_| Missing::Runtime)?;
    let id = runtime.id();
    let known = KNOWN.get().filter(|(of, _)| *of == id);
    let has_timers = known.map_or_else(has_timers, |(_, has)| has);
    KNOWN.set(Some((id, has_timers)));
    if has_timers {
        Ok(())
    } else {
        Err(Missing::Timers)
    }
}

fn has_timers() -> bool {
    catch_unwind(|| drop(sleep(Duration::ZERO))).is_ok()
}
