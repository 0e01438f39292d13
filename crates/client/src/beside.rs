//! What a response has beside what is stored of it: its version, and the extensions that the inner service has put
//! there. They are of one request, and come back to the one who sent it.

use std::mem;
use std::sync::Arc;

use http::{Extensions, Response, Version};
use parking_lot::Mutex;

use crate::info::{CacheInfo, Outcome};

/// Travels with a request to the inner service, among its extensions. Whoever sent it looks afterwards whether the
/// response to it has left something there.
#[derive(Clone, Default)]
pub(crate) struct Beside(Arc<Mutex<Option<(Version, Extensions)>>>);

impl Beside {
    /// Of a response to a request that this has travelled with. Of several the last one counts.
    pub(crate) fn leave<R>(&self, response: &mut Response<R>) {
        let extensions = mem::take(response.extensions_mut());
        *self.0.lock() = Some((response.version(), extensions));
    }

    /// Gives it to the response that it is of. Others are stored, or were fetched by somebody else.
    pub(crate) fn added_to<R>(&self, mut response: Response<R>) -> Response<R> {
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
