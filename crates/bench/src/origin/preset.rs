//! Presets modelled on applications with published measurements.

use std::time::Duration;

use http::HeaderValue;

use super::settings::{InvalidOption, PageSettings, Settings, WorkKind};
use super::values::{Fraction, SecondsRange};

/// Presets: name and description.
pub const PRESETS: &[(&str, &str)] = &[
    ("wordpress", "CMS page: 57 KB of HTML, 180 ms of CPU time"),
    (
        "java-blog",
        "page with two full table scans: 27 KB of HTML, 130 ms of CPU time",
    ),
    (
        "big-json",
        "large API document: 673 KB of JSON, 600 ms of CPU time, ETag",
    ),
    (
        "cim",
        "5 KB, 100 ms of sleep, max-age of 5 to 60 s by URL, a quarter of the URLs unchanging",
    ),
    ("static-100", "100 bytes, no render time"),
];

impl Settings {
    /// Returns the settings of a preset, one of [`super::PRESETS`].
    ///
    /// # Errors
    ///
    /// An error that lists the presets.
    pub fn like(name: &str) -> Result<Self, InvalidOption> {
        find(name).map_err(|what| InvalidOption {
            option: "like".to_owned(),
            what,
        })
    }
}

/// Returns the settings of a preset.
///
/// # Errors
///
/// A message that lists the presets.
fn find(name: &str) -> Result<Settings, String> {
    let page = PageSettings::default();
    let settings = Settings::default();
    let settings = match name {
        // One worker, since the measured server rendered 5.5 pages per second, which is one core.
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
                max_age: SecondsRange::between(5, 60),
                unchanging: Fraction::percent(25),
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
                unchanging: Fraction::ALL,
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
        let message = find("wordpres").expect_err("there is none");
        assert!(
            message.contains("wordpress, java-blog, big-json"),
            "{message}"
        );
    }
}
