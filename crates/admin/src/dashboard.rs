//! Dashboard. Its assets are in the binary and load nothing from other hosts.

use axum::extract::Path;
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use http::HeaderValue;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};

use crate::problem::Problem;

const PAGE: &str = include_str!("../assets/index.html");

/// Assets of the page: name, media type, content.
const ASSETS: [(&str, &str, &str); 9] = [
    (
        "dashboard.css",
        CSS,
        include_str!("../assets/dashboard.css"),
    ),
    ("main.js", SCRIPT, include_str!("../assets/main.js")),
    ("stream.js", SCRIPT, include_str!("../assets/stream.js")),
    ("chart.js", SCRIPT, include_str!("../assets/chart.js")),
    ("format.js", SCRIPT, include_str!("../assets/format.js")),
    ("lists.js", SCRIPT, include_str!("../assets/lists.js")),
    ("panels.js", SCRIPT, include_str!("../assets/panels.js")),
    ("actions.js", SCRIPT, include_str!("../assets/actions.js")),
    (
        "icon.svg",
        "image/svg+xml",
        include_str!("../assets/icon.svg"),
    ),
];

const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Content security policy: only assets of this server, no inline scripts, no frames. Text never becomes
/// markup, since URLs and error messages are untrusted.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

pub(crate) async fn page() -> Response {
    file("text/html; charset=utf-8", PAGE)
}

pub(crate) async fn asset(Path(name): Path<String>, uri: Uri) -> Response {
    let asset = ASSETS.iter().find(|(known, ..)| *known == name);
    match asset {
        Some((_, kind, content)) => file(kind, content),
        None => Problem::not_found(&uri).into_response(),
    }
}

fn file(kind: &'static str, content: &'static str) -> Response {
    let fields: [(HeaderName, &'static str); 7] = [
        (CONTENT_TYPE, kind),
        (CONTENT_SECURITY_POLICY, POLICY),
        // After an upgrade the page and its scripts must have the same version.
        (CACHE_CONTROL, "no-store"),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ];
    let fields = fields.map(|(name, value)| (name, HeaderValue::from_static(value)));
    (fields, content).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All assets and their names.
    fn files() -> impl Iterator<Item = (&'static str, &'static str)> {
        let assets = ASSETS.iter().map(|&(name, _, content)| (name, content));
        assets.chain([("index.html", PAGE)])
    }

    #[test]
    fn the_page_loads_nothing_but_its_own_files() {
        for (name, content) in files() {
            for (place, loaded) in [
                "src=\"",
                "href=\"",
                "url(",
                "from \"",
                "import(\"",
                "fetch(\"",
            ]
            .iter()
            .flat_map(|place| content.split(place).skip(1).map(move |rest| (place, rest)))
            {
                let loaded = loaded.split(['"', ')']).next().unwrap_or_default();
                let local = loaded
                    .strip_prefix("/assets/")
                    .or_else(|| loaded.strip_prefix("./"));
                let is_ours =
                    local.is_some_and(|local| ASSETS.iter().any(|(known, ..)| *known == local));
                let is_of_the_interface = loaded.starts_with("/v1/") || loaded.starts_with('#');
                assert!(is_ours || is_of_the_interface, "{name}: {place}{loaded}");
            }
        }
    }

    #[test]
    fn the_page_has_nothing_that_its_policy_blocks() {
        for (name, content) in files() {
            for forbidden in [
                "innerHTML",
                "insertAdjacentHTML",
                "document.write",
                "style=\"",
                "<style",
                " onclick=",
                "eval(",
            ] {
                assert!(!content.contains(forbidden), "{name}: {forbidden}");
            }
        }
        assert_eq!(PAGE.matches("<script").count(), 1);
    }
}
