//! An opaque, shareable error of an origin implementation.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// The error of a custom origin, shared by all waiters of the fetch.
#[derive(Clone)]
pub struct Cause(Arc<dyn Error + Send + Sync>);

impl Cause {
    /// Wraps an error.
    pub fn new(error: Box<dyn Error + Send + Sync>) -> Self {
        Self(error.into())
    }

    /// The wrapped error.
    pub fn get(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.0
    }
}

/// Transparent: `source` skips to the wrapped error's own source.
impl Error for Cause {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Equal only to itself, not to an error with the same text.
impl PartialEq for Cause {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Cause {}
