//! Starts what documents and updates need, from the configuration.

use std::sync::Arc;

use microcache_push::{BackendError, Hub, Push, PushSettings};

use crate::config::{Config, GoesTo};

/// Starts the Mercure hub, if it is enabled, or reconfigures the running one.
pub(super) fn start_mercure(known: Option<&Arc<Hub>>, config: &Config) -> Option<Arc<Hub>> {
    let settings = config.push.mercure.settings(&config.push.settings)?;
    Some(match known {
        Some(hub) => {
            hub.renew(settings);
            Arc::clone(hub)
        }
        None => Arc::new(Hub::new(settings)),
    })
}

/// Loads the stored documents, and starts their subscriptions, if documents or pages can be watched. Enabling
/// documents by a reload needs a restart.
pub(crate) fn start_push(config: &Config) -> Result<Option<Arc<Push>>, BackendError> {
    let push = &config.push;
    let is_watched = config.routes.iter().any(|it| it.goes_to == GoesTo::Watch);
    let settings = PushSettings {
        prefixes: push.prefixes.clone(),
        ..push.settings.clone()
    };
    is_watched
        .then(|| Push::start(settings, push.keys.clone()).map(Arc::new))
        .transpose()
}
