//! Detection of a tokio runtime with timers.
//!
//! A runtime does not expose whether it has them, and creating a timer without them panics: the panic is provoked once
//! here and caught, so that it hits no request.

use std::cell::Cell;
use std::panic::catch_unwind;
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::time::sleep;

/// The missing facility.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuntimeError {
    NoRuntime,
    NoTimers,
}

impl RuntimeError {
    /// The reason in [`CacheInfo`](crate::CacheInfo).
    pub(crate) const fn why(self) -> &'static str {
        match self {
            Self::NoRuntime => "no-runtime",
            Self::NoTimers => "no-timers",
        }
    }
}

thread_local! {
    /// The last runtime that was checked, and the result: threads rarely change runtimes.
    static KNOWN: Cell<Option<(Id, bool)>> = const { Cell::new(None) };
}

/// Succeeds if the current thread is in a runtime with timers.
pub(crate) fn check() -> Result<(), RuntimeError> {
    let runtime = Handle::try_current().map_err(|_| RuntimeError::NoRuntime)?;
    let id = runtime.id();
    let known = KNOWN.get().filter(|(of, _)| *of == id);
    let has_timers = known.map_or_else(has_timers, |(_, has)| has);
    KNOWN.set(Some((id, has_timers)));
    if has_timers {
        Ok(())
    } else {
        Err(RuntimeError::NoTimers)
    }
}

fn has_timers() -> bool {
    catch_unwind(|| drop(sleep(Duration::ZERO))).is_ok()
}
