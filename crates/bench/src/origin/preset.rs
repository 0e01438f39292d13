//! Applications that were measured before, and published.

use std::time::Duration;

use http::HeaderValue;

use super::settings::{PageSettings, Settings, WorkKind};
use super::values::{Seconds, Share};

/// The names of what the application can be like, each with what it stands for.
pub const PRESETS: &[(&str, &str)] = &[
    (
        "wordpress",
        "a page of a CMS: 57 KB of HTML for 180 ms of CPU",
    ),
    (
        "java-blog",
        "a page with two full scans of a table: 27 KB of HTML for 130 ms of CPU",
    ),
    (
        "big-json",
        "one large document of an API: 673 KB of JSON for 600 ms of CPU, with an ETag",
    ),
    (
        "cim",
        "5 KB each, 100 ms of sleep, max-age from 5 to 60 s by url, a quarter of the urls never change",
    ),
    ("static-100", "100 bytes without any work"),
];

/// The application with this name, or what names there are.
pub(super) fn find(name: &str) -> Result<Settings, String> {
    let page = PageSettings::default();
    let settings = Settings::default();
    let settings = match name {
        // One worker: the measured one made five and a half of these a second, a processor's worth.
        "wordpress" => settings,
        "java-blog" => Settings {
            page: PageSettings {
                work: Duration::from_millis(130),
                size: 27_000,
                ..page
            },
            ..settings
        },
        "big-json" => Settings {
            page: PageSettings {
                work: Duration::from_millis(600),
                size: 672_864,
                content_type: HeaderValue::from_static("application/json"),
                etag: true,
                ..page
            },
            ..settings
        },
        "cim" => Settings {
            page: PageSettings {
                work: Duration::from_millis(100),
                work_kind: WorkKind::Sleep,
                size: 5000,
                max_age: Seconds::between(5, 60),
                unchanging: Share::percent(25),
                etag: true,
                last_modified: true,
                ..page
            },
            workers: 100,
            ..settings
        },
        "static-100" => Settings {
            page: PageSettings {
                work: Duration::ZERO,
                size: 100,
                unchanging: Share::ALL,
                last_modified: true,
                ..page
            },
            ..settings
        },
        _ => return Err(unknown(name)),
    };
    Ok(settings)
}

fn unknown(name: &str) -> String {
    let names: Vec<&str> = PRESETS.iter().map(|(name, _)| *name).collect();
    format!("expected one of {}, found `{name}`", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_there() {
        for (name, _) in PRESETS {
            find(name).unwrap_or_else(|what| panic!("{name}: {what}"));
        }
        let told = find("wordpres").expect_err("there is none");
        assert!(told.contains("wordpress, java-blog, big-json"), "{told}");
    }
}
