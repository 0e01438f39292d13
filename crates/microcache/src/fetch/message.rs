//! Messages on standard error.

use std::error::Error;

use reqwest::Url;

use crate::tell;

/// Message of the innermost error.
pub(super) fn deepest(error: &dyn Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

/// URL for messages: without user, password and fragment.
pub(super) fn without_secrets(url: &Url) -> Url {
    let mut url = url.clone();
    // Fails for URLs that cannot have them.
    let _ = url.set_username("").and_then(|()| url.set_password(None));
    url.set_fragment(None);
    url
}

pub(super) fn say(what: &str) {
    tell(&format!("microcache fetch: {what}\n"));
}
