//! The version and extensions of a response of the inner service, which are not stored: they are passed around the
//! cache to the caller of that request.

use std::mem;
use std::sync::Arc;

use http::{Extensions, Response, Version};
use parking_lot::Mutex;

use crate::info::{CacheInfo, Outcome};

/// A slot in the extensions of a request to the inner service, which receives the version and extensions of its
/// response.
#[derive(Clone, Default)]
pub(crate) struct Passthrough(Arc<Mutex<Option<(Version, Extensions)>>>);

impl Passthrough {
    /// Moves version and extensions of a response into the slot. The last response counts.
    pub(crate) fn put<R>(&self, response: &mut Response<R>) {
        let extensions = mem::take(response.extensions_mut());
        *self.0.lock() = Some((response.version(), extensions));
    }

    /// Adds the contents of the slot to a response. It is empty if the response was stored, or fetched by another
    /// caller.
    pub(crate) fn add_to<R>(&self, mut response: Response<R>) -> Response<R> {
        let info = response.extensions().get::<CacheInfo>().copied();
        let is_its_own = info.is_some_and(|info| {
            matches!(
                info.outcome,
                Outcome::Miss | Outcome::Bypass | Outcome::Failure
            )
        });
        if is_its_own && let Some((version, mut extensions)) = self.0.lock().take() {
            extensions.extend(mem::take(response.extensions_mut()));
            *response.version_mut() = version;
            *response.extensions_mut() = extensions;
        }
        response
    }
}
