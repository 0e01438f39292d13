//! Files that the application names instead of sending them: X-Accel-Redirect of nginx, X-Sendfile of Apache.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::Method;
use microcache_engine::origin::BoxFuture;
use microcache_engine::{Clock, Origin, OriginError, OriginRequest, OriginResponse};
use microcache_policy::fields::is_one_of;
use microcache_policy::{Fields, FieldsBuf};
use tokio::task::spawn_blocking;

use super::answer::{FileRequest, answer};
use super::root::Root;

/// Request fields that select a part of a file, or none of it.
const CONDITIONS: [&str; 6] = [
    "range",
    "if-range",
    "if-match",
    "if-none-match",
    "if-modified-since",
    "if-unmodified-since",
];
/// Response fields that describe the file, and not the application's response.
const OF_THE_FILE: [&str; 8] = [
    "accept-ranges",
    "content-encoding",
    "content-range",
    "date",
    "etag",
    "last-modified",
    "x-accel-redirect",
    "x-sendfile",
];

/// Directory whose files the application may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedDirectory {
    /// Beginning of the paths in X-Accel-Redirect, with slashes at both ends.
    pub prefix: String,
    /// Path of the directory.
    pub folder: PathBuf,
}

/// Origin whose responses may name a file to be sent.
pub(crate) struct SendfileOrigin {
    application: Arc<dyn Origin>,
    directories: Arc<[NamedDirectory]>,
    clock: Clock,
}

impl SendfileOrigin {
    pub(crate) fn new(application: Arc<dyn Origin>, directories: &[NamedDirectory]) -> Self {
        Self {
            application,
            directories: directories.into(),
            clock: Clock::start(),
        }
    }
}

impl Origin for SendfileOrigin {
    fn fetch(&self, request: OriginRequest) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        let method = if request.method == Method::HEAD {
            Method::HEAD
        } else {
            Method::GET
        };
        let mut conditions = FieldsBuf::new();
        conditions.extend_if(request.fields.fields(), |name, _| {
            is_one_of(name, &CONDITIONS)
        });
        Box::pin(async move {
            let response = self.application.fetch(request).await?;
            let Some(file) = named_file(response.fields.fields(), &self.directories)? else {
                return Ok(response);
            };
            let file_request = FileRequest {
                method,
                target: file.target.into(),
                fields: conditions,
                now: self.clock.now(),
            };
            let answered = spawn_blocking(move || answer(&file.root, &file_request)).await;
            let answered = answered.unwrap_or(Err(OriginError::Disconnected))?;
            Ok(merged(answered, response.fields.fields()))
        })
    }
}

/// File that a response names.
struct NamedFile {
    root: Root,
    /// Path below the directory, as in a request.
    target: Vec<u8>,
}

/// Returns the file that a response names, or an error where it is in none of the directories.
fn named_file(
    fields: Fields<'_>,
    directories: &[NamedDirectory],
) -> Result<Option<NamedFile>, OriginError> {
    let of = |directory: &NamedDirectory, target: Vec<u8>| NamedFile {
        root: Root {
            folder: directory.folder.clone(),
            index: "index.html".to_owned(),
            precompressed: false,
        },
        target,
    };
    if let Some(path) = fields.get("x-accel-redirect") {
        // The longest prefix decides, as with `location` of nginx.
        let mut matching: Vec<_> = directories
            .iter()
            .filter(|directory| path.starts_with(directory.prefix.as_bytes()))
            .collect();
        matching.sort_by_key(|directory| directory.prefix.len());
        let directory = matching.pop().ok_or(OriginError::Malformed(
            "X-Accel-Redirect names a path that is not in `x_accel`",
        ))?;
        return Ok(Some(of(
            directory,
            path[directory.prefix.len() - 1..].to_vec(),
        )));
    }
    let Some(path) = fields.get("x-sendfile") else {
        return Ok(None);
    };
    let outside = || OriginError::Malformed("X-Sendfile names a file outside of `x_accel`");
    let path = Path::new(std::str::from_utf8(path).map_err(|_| outside())?);
    let below = |directory: &NamedDirectory| {
        let rest = path.strip_prefix(&directory.folder).ok()?.to_str()?;
        Some(of(directory, encoded(rest)))
    };
    directories
        .iter()
        .find_map(below)
        .map(Some)
        .ok_or_else(outside)
}

/// Returns a path below a directory as in a request: X-Sendfile is not encoded.
fn encoded(path: &str) -> Vec<u8> {
    let mut target = b"/".to_vec();
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            target.push(byte);
        } else {
            target.extend(format!("%{byte:02X}").bytes());
        }
    }
    target
}

/// Adds the application's fields to the response with the file.
fn merged(mut file: OriginResponse, application: Fields<'_>) -> OriginResponse {
    if application.contains("content-type") {
        file.fields.remove("content-type");
    }
    file.fields
        .extend_if(application, |name, _| !is_one_of(name, &OF_THE_FILE));
    file
}

#[cfg(test)]
mod tests {
    use microcache_testkit::Folder;

    use super::*;

    fn find(lines: &str, folder: &Path) -> Result<Option<String>, OriginError> {
        let directory = |prefix: &str, folder: PathBuf| NamedDirectory {
            prefix: prefix.to_owned(),
            folder,
        };
        let directories = [
            directory("/files/", folder.to_owned()),
            directory("/files/deep/", folder.join("deep")),
        ];
        let found = named_file(Fields::new(lines.as_bytes()), &directories)?;
        Ok(found.map(|file| {
            let below = file.root.folder.strip_prefix(folder).expect("below");
            format!(
                "{}:{}",
                below.display(),
                String::from_utf8_lossy(&file.target)
            )
        }))
    }

    #[test]
    fn a_file_is_named_below_a_directory() {
        let folder = Folder::new();
        let found = |lines: &str| find(lines, folder.path());
        let is = |text: &str| Ok(Some(text.to_owned()));
        assert_eq!(found("A: b\r\n"), Ok(None));
        assert_eq!(
            found("X-Accel-Redirect: /files/a%20b.pdf\r\n"),
            is(":/a%20b.pdf")
        );
        assert_eq!(found("X-Accel-Redirect: /files/deep/a\r\n"), is("deep:/a"));
        let sendfile = format!("X-Sendfile: {}/a b.pdf\r\n", folder.as_str());
        assert_eq!(found(&sendfile), is(":/a%20b.pdf"));
        for outside in [
            "X-Accel-Redirect: /other/a\r\n",
            "X-Sendfile: /etc/passwd\r\n",
            "X-Sendfile: a\r\n",
        ] {
            assert!(found(outside).is_err(), "{outside}");
        }
    }
}
