//! Responses from files of a directory.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use http::Method;
use microcache_engine::{Body, OriginError, OriginResponse, clock};
use microcache_policy::key::split_query;
use microcache_policy::vary::Codings;
use microcache_policy::{
    FieldsBuf, Precondition, RangeVerdict, RequestFacts, Rules, Time, date, precondition, range,
};

use super::content::content;
use super::lookup::{FileLookup, OpenedFile, look, open_root};
use super::path::named;
use super::root::Root;

/// Codings of precompressed files with their suffixes; usually smallest first.
const CODINGS: [(&str, &str); 3] = [("br", ".br"), ("zstd", ".zst"), ("gzip", ".gz")];

/// Allowed methods.
const METHODS: [Method; 2] = [Method::GET, Method::HEAD];

/// A request for a file.
pub(super) struct FileRequest {
    pub(super) method: Method,
    pub(super) target: Bytes,
    pub(super) fields: FieldsBuf,
    pub(super) now: Time,
}

/// Answers a request. Blocks on the disk.
pub(super) fn answer(
    root: &Root,
    file_request: &FileRequest,
) -> Result<OriginResponse, OriginError> {
    if !METHODS.contains(&file_request.method) {
        let mut refused = bare(405);
        refused.fields.push("Allow", "GET, HEAD");
        return Ok(refused);
    }
    let found = answer_if_found(root, file_request)?;
    Ok(found.unwrap_or_else(|| bare(404)))
}

/// Answers a request with a file, if there is one. Blocks on the disk.
pub(super) fn answer_if_found(
    root: &Root,
    file_request: &FileRequest,
) -> Result<Option<OriginResponse>, OriginError> {
    let Some(named) = named(&file_request.target) else {
        return Ok(None);
    };
    let folder = root.folder.display();
    let failed = |error: io::Error| {
        let what = format!("{folder}/{}: {error}", named.path.display());
        OriginError::Connect(what.into())
    };
    let within = open_root(&root.folder).map_err(failed)?;
    let path = if named.is_folder {
        named.path.join(&root.index)
    } else {
        named.path.clone()
    };
    match look(&within, &path).map_err(failed)? {
        FileLookup::File(found) => {
            let chosen =
                FileRepresentation::of(root, file_request, &within, path, found).map_err(failed)?;
            chosen.answer(file_request).map_err(failed).map(Some)
        }
        FileLookup::Folder if !named.is_folder => {
            let index = look(&within, &named.path.join(&root.index)).map_err(failed)?;
            let has_index = matches!(index, FileLookup::File(_));
            Ok(has_index.then(|| with_slash(&file_request.target)))
        }
        FileLookup::Folder | FileLookup::Nothing => Ok(None),
        FileLookup::Forbidden => Ok(Some(bare(403))),
    }
}

/// Redirects to the URL with a slash, which relative links in a directory index need.
pub(crate) fn with_slash(target: &[u8]) -> OriginResponse {
    let (path, _) = split_query(target);
    let query = &target[path.len()..];
    let mut moved = bare(301);
    moved.fields.push("Location", [path, b"/", query].concat());
    moved
}

/// The file to send, with its coding.
struct FileRepresentation {
    found: OpenedFile,
    coding: Option<&'static str>,
    /// Other codings exist, so the response varies by `Accept-Encoding`.
    varies: bool,
    path: PathBuf,
}

impl FileRepresentation {
    fn of(
        root: &Root,
        file_request: &FileRequest,
        within: &File,
        path: PathBuf,
        found: OpenedFile,
    ) -> io::Result<Self> {
        let mut chosen = Self {
            found,
            coding: None,
            varies: false,
            path,
        };
        if !root.precompressed {
            return Ok(chosen);
        }
        let accepted = Codings::accepted(file_request.fields.fields());
        for (coding, ending) in CODINGS {
            let mut beside = chosen.path.clone().into_os_string();
            beside.push(ending);
            if let FileLookup::File(found) = look(within, Path::new(&beside))? {
                chosen.varies = true;
                if chosen.coding.is_none() && accepted.has(coding) {
                    (chosen.found, chosen.coding) = (found, Some(coding));
                }
            }
        }
        Ok(chosen)
    }

    fn answer(self, file_request: &FileRequest) -> io::Result<OriginResponse> {
        let length = self.found.about.len();
        let now = file_request.now;
        let mut fields = self.fields(now);
        let facts = RequestFacts::read(
            &file_request.method,
            file_request.fields.fields(),
            false,
            &Rules::default(),
        );
        let request = file_request.fields.fields();
        match precondition(request, &facts, 200, fields.fields(), now) {
            Precondition::Send => {}
            Precondition::NotModified => {
                let length = Some(length);
                fields.remove("Accept-Ranges");
                return Ok(OriginResponse {
                    fields,
                    length,
                    ..bare(304)
                });
            }
            Precondition::Failed => return Ok(bare(412)),
        }
        let (status, first, part) = match range(request, &facts, 200, fields.fields(), length, now)
        {
            RangeVerdict::Full => (200, 0, length),
            RangeVerdict::Part { first, last } => {
                fields.push("Content-Range", format!("bytes {first}-{last}/{length}"));
                (206, first, last - first + 1)
            }
            RangeVerdict::Unsatisfiable => {
                let mut refused = bare(416);
                refused
                    .fields
                    .push("Content-Range", format!("bytes */{length}"));
                return Ok(refused);
            }
        };
        let body = if file_request.method == Method::HEAD {
            Body::Empty
        } else {
            content(self.found.file, first, part)?
        };
        Ok(OriginResponse {
            status,
            fields,
            length: Some(part),
            body,
            tunnel: None,
            waited: 0,
        })
    }

    fn fields(&self, now: Time) -> FieldsBuf {
        let mut fields = FieldsBuf::new();
        fields.push("Date", date::format(clock::date(now)));
        fields.push("Content-Type", media_type(&self.path));
        if let Some(coding) = self.coding {
            fields.push("Content-Encoding", coding);
        }
        if self.varies {
            fields.push("Vary", "Accept-Encoding");
        }
        let modified = modified(&self.found.about);
        fields.push("Last-Modified", date::format(modified));
        fields.push("ETag", entity_tag(&self.found.about));
        fields.push("Accept-Ranges", "bytes");
        fields
    }
}

/// Returns the media type of a file by its suffix. Text is labelled as UTF-8.
pub(crate) fn media_type(path: &Path) -> String {
    let kind = mime_guess::from_path(path).first_or_octet_stream();
    if kind.type_() == "text" && kind.get_param("charset").is_none() {
        format!("{kind}; charset=utf-8")
    } else {
        kind.to_string()
    }
}

fn modified(about: &Metadata) -> Time {
    let seconds = u64::try_from(about.mtime()).unwrap_or(0);
    Time::from_millis(seconds * 1000)
}

/// Returns the entity tag of a file's state: writing in place changes the time, replacing the file changes its
/// inode.
fn entity_tag(about: &Metadata) -> String {
    let changed = (about.mtime(), about.mtime_nsec());
    format!(
        "\"{:x}-{:x}-{:x}-{:x}\"",
        about.ino(),
        about.len(),
        changed.0,
        changed.1
    )
}

/// Returns a response without content.
pub(crate) fn bare(status: u16) -> OriginResponse {
    OriginResponse {
        status,
        fields: <_>::default(),
        length: Some(0),
        body: Body::Empty,
        tunnel: None,
        waited: 0,
    }
}
