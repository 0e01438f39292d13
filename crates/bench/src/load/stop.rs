//! Ending a run from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Tells a run to end. Clones tell the same run.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Ends the run; what was measured so far is reported.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether somebody wants the end.
    pub fn is_wanted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
