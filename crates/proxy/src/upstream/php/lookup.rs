//! The script or file that a path names. Blocks on the disk.
//!
//! Each segment of the path is decoded once. A script is the first segment that ends in `.php` and is a file below the
//! document root; the remainder is its `PATH_INFO`. A path with such a segment that is no file runs nothing, not even
//! the index script: otherwise `/upload.jpg/x.php` would be a matter of how PHP repairs paths.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use microcache_policy::key::split_query;
use microcache_policy::{glob, percent};

use super::closed::is_closed;
use super::script::Script;
use super::sendable::may_be_sent;
use super::settings::PhpSettings;
use crate::files::{FoundPath, find, is_hidden, named, open_root};

/// End of the names of scripts.
const SCRIPT: &[u8] = b".php";
/// Index of a directory without scripts.
pub(super) const INDEX_FILE: &str = "index.html";

/// The answer to a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Destination {
    Script(Script),
    File,
    /// A directory whose URL lacks its slash.
    Folder,
    /// A script in a directory of `php_deny`, or anything in one that the application closes.
    Denied,
    Nothing,
}

/// Finds the script or file of a target. `sends_files`: the method is one that a file answers.
pub(super) fn destination(
    root: &Path,
    settings: &PhpSettings,
    target: &[u8],
    sends_files: bool,
) -> io::Result<Destination> {
    let (path, _query) = split_query(target);
    let Some(segments) = segments(path) else {
        return Ok(Destination::Nothing);
    };
    let lookup = Lookup {
        within: open_root(root)?,
        root,
        settings,
    };
    if segments.iter().any(|segment| segment.ends_with(SCRIPT)) {
        return lookup.script(&segments);
    }
    if let Some(named) = named(target) {
        match lookup.find(&named.path)? {
            Some(FoundPath {
                is_folder: true, ..
            }) if named.is_folder => {
                let index = named.path.join(&settings.index);
                if let Some(found) = lookup.find_file(&index)? {
                    return lookup.run(&index, &found, Vec::new());
                }
                if sends_files
                    && let Some(found) = lookup.find_file(&named.path.join(INDEX_FILE))?
                {
                    return lookup.send(&found);
                }
            }
            Some(FoundPath {
                is_folder: true, ..
            }) => {
                for index in [&*settings.index, INDEX_FILE] {
                    if sends_files && lookup.find_file(&named.path.join(index))?.is_some() {
                        return Ok(Destination::Folder);
                    }
                }
            }
            Some(found) if sends_files && !named.is_folder && is_sendable(&named.path, &found) => {
                return lookup.send(&found);
            }
            Some(_) | None => {}
        }
    }
    let index = Path::new(&settings.index);
    match lookup.find_file(index)? {
        Some(found) => lookup.run(index, &found, Vec::new()),
        None => Ok(Destination::Nothing),
    }
}

/// Returns the decoded segments; `None` for paths that no application needs and that two programs may read differently.
fn segments(path: &[u8]) -> Option<Vec<Vec<u8>>> {
    let path = path.strip_prefix(b"/")?;
    let segment = |segment| {
        let decoded = percent::decoded(segment)?;
        let is_step = decoded == b"." || decoded == b"..";
        // A slash that was encoded may hide steps.
        let hides_steps = decoded.split(|&b| b == b'/').any(|it| it == b"..");
        (!is_step && !hides_steps && !decoded.contains(&0)).then_some(decoded)
    };
    path.split(|&byte| byte == b'/').map(segment).collect()
}

/// The file, and the one that a link leads to, have names that may be sent.
fn is_sendable(path: &Path, found: &FoundPath) -> bool {
    [path, found.path.as_path()].into_iter().all(|path| {
        path.file_name()
            .is_some_and(|name| may_be_sent(name.as_bytes()))
    })
}

struct Lookup<'a> {
    within: File,
    root: &'a Path,
    settings: &'a PhpSettings,
}

impl Lookup<'_> {
    /// Returns the first script that the segments name.
    fn script(&self, segments: &[Vec<u8>]) -> io::Result<Destination> {
        let mut path = PathBuf::new();
        for (at, segment) in segments.iter().enumerate() {
            if segment.is_empty() || segment.contains(&b'/') || is_hidden(segment) {
                break;
            }
            path.push(OsString::from_vec(segment.clone()));
            if segment.ends_with(SCRIPT)
                && let Some(found) = self.find_file(&path)?
            {
                let mut path_info = Vec::new();
                for segment in &segments[at + 1..] {
                    path_info.push(b'/');
                    path_info.extend_from_slice(segment);
                }
                return self.run(&path, &found, path_info);
            }
        }
        Ok(Destination::Nothing)
    }

    /// Sends a file that exists.
    fn send(&self, found: &FoundPath) -> io::Result<Destination> {
        Ok(if is_closed(&self.within, &found.path)? {
            Destination::Denied
        } else {
            Destination::File
        })
    }

    /// Runs a script that exists, unless its path or that of the file it links to is denied.
    fn run(&self, path: &Path, found: &FoundPath, path_info: Vec<u8>) -> io::Result<Destination> {
        let absolute = |path: &Path| [b"/", path.as_os_str().as_bytes()].concat();
        let name = absolute(path);
        let is_denied = |path: &[u8]| {
            let mut deny = self.settings.deny.iter();
            deny.any(|pattern| glob::matches(pattern.as_bytes(), path))
        };
        if is_denied(&name)
            || is_denied(&absolute(&found.path))
            || is_closed(&self.within, &found.path)?
        {
            return Ok(Destination::Denied);
        }
        // A link to something else could be an upload.
        if !found.path.as_os_str().as_bytes().ends_with(SCRIPT) {
            return Ok(Destination::Nothing);
        }
        Ok(Destination::Script(Script::new(self.root, name, path_info)))
    }

    fn find(&self, path: &Path) -> io::Result<Option<FoundPath>> {
        if path.as_os_str().is_empty() {
            return find(&self.within, Path::new("."));
        }
        find(&self.within, path)
    }

    fn find_file(&self, path: &Path) -> io::Result<Option<FoundPath>> {
        Ok(self.find(path)?.filter(|found| found.is_file))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use microcache_testkit::Folder;
    use proptest::prelude::*;

    use super::*;

    /// A site as WordPress has it.
    fn site() -> Folder {
        let folder = Folder::new();
        let root = folder.path();
        for directory in [
            "wp-admin",
            "wp-content/uploads",
            "static",
            "empty",
            "vendor/phpunit",
            "closed/deep",
            "x.php.d",
            ".git",
        ] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        for file in [
            "index.php",
            "a.php",
            "a b.php",
            "wp-admin/index.php",
            "wp-content/uploads/x.php",
            "wp-content/uploads/x.jpg",
            "static/index.html",
            "robots.txt",
            "dump.sql",
            ".env",
            ".git/x.php",
            "vendor/phpunit/eval-stdin.php",
            "vendor/style.css",
            "closed/index.html",
            "closed/a.php",
            "closed/deep/a.txt",
            "wp-config.php.bak",
        ] {
            fs::write(root.join(file), "").unwrap();
        }
        fs::write(root.join("closed/.htaccess"), "Require all denied").unwrap();
        fs::create_dir(root.join("folder.php")).unwrap();
        fs::write(root.join("folder.php/page.txt"), "").unwrap();
        symlink("a.php", root.join("link.php")).unwrap();
        symlink("/etc/passwd", root.join("out.php")).unwrap();
        symlink("wp-content/uploads/x.php", root.join("up.php")).unwrap();
        symlink("wp-content/uploads/x.jpg", root.join("image.php")).unwrap();
        symlink("dump.sql", root.join("dump.txt")).unwrap();
        folder
    }

    fn of(folder: &Folder, target: &str, sends_files: bool) -> Destination {
        destination(
            folder.path(),
            &PhpSettings::default(),
            target.as_bytes(),
            sends_files,
        )
        .unwrap()
    }

    /// The name and the path behind it of the script that runs.
    fn run(folder: &Folder, target: &str) -> Option<(String, String)> {
        match of(folder, target, true) {
            Destination::Script(script) => {
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                Some((text(script.name()), text(script.path_info())))
            }
            _ => None,
        }
    }

    #[test]
    fn a_path_names_a_script_and_what_follows_it() {
        let folder = site();
        for (target, name, path_info) in [
            ("/", "/index.php", ""),
            ("/?p=1", "/index.php", ""),
            ("/2024/05/hello-world/", "/index.php", ""),
            ("/2024//05", "/index.php", ""),
            ("/caf%C3%A9/AC%2FDC", "/index.php", ""),
            ("/index.php", "/index.php", ""),
            ("/index.php/", "/index.php", "/"),
            ("/index.php/a/b%20c", "/index.php", "/a/b c"),
            ("/index.php/a.php//b", "/index.php", "/a.php//b"),
            ("/a%20b.php?x=/y.php", "/a b.php", ""),
            ("/wp-admin/", "/wp-admin/index.php", ""),
            ("/empty/", "/index.php", ""),
            ("/empty", "/index.php", ""),
            ("/link.php", "/link.php", ""),
            ("/.env", "/index.php", ""),
            ("/.git/config", "/index.php", ""),
            ("/dump.sql", "/index.php", ""),
            ("/dump.txt", "/index.php", ""),
            ("/wp-config.php.bak", "/index.php", ""),
            ("/robots.txt/", "/index.php", ""),
            ("/wp-content/uploads/missing.jpg", "/index.php", ""),
        ] {
            let expected = Some((name.to_owned(), path_info.to_owned()));
            assert_eq!(run(&folder, target), expected, "{target}");
        }
        let post = of(&folder, "/robots.txt", false);
        assert!(matches!(post, Destination::Script(_)), "{post:?}");
    }

    #[test]
    fn files_are_sent() {
        let folder = site();
        for target in [
            "/robots.txt",
            "/robots.txt?v=1",
            "/static/",
            "/wp-content/uploads/x.jpg",
            "/vendor/style.css",
        ] {
            assert_eq!(of(&folder, target, true), Destination::File, "{target}");
        }
        for target in ["/static", "/wp-admin"] {
            assert_eq!(of(&folder, target, true), Destination::Folder, "{target}");
        }
    }

    #[test]
    fn nothing_else_runs() {
        let folder = site();
        for target in [
            "/missing.php",
            "/missing.php/a",
            "/wp-content/uploads/x.jpg/y.php",
            "/robots.txt/y.php",
            "/folder.php",
            "/folder.php/",
            "/folder.php/page.txt",
            "/out.php",
            "/a.php%00",
            "/a.php%00.jpg",
            "/../a.php",
            "/x/../a.php",
            "/x/%2e%2e/a.php",
            "/x%2f..%2fa.php",
            "/./a.php",
            "//a.php",
            "/wp-admin%2findex.php",
            "/a%2ephp%2500.jpg%zz",
            "/.git/x.php",
            "/%2egit/x.php",
            "/a.php%2f..",
            "a.php",
            "*",
        ] {
            assert_eq!(of(&folder, target, true), Destination::Nothing, "{target}");
        }
        assert_eq!(run(&folder, "/a%2ephp").unwrap().0, "/a.php");
        assert_eq!(
            of(&folder, "/a%252ephp", true),
            of(&folder, "/", true),
            "decoded once"
        );
    }

    #[test]
    fn nothing_runs_where_uploads_are() {
        let folder = site();
        for target in [
            "/wp-content/uploads/x.php",
            "/wp-content/uploads/x.php/a",
            "/wp-content/uploads/%78.php",
            "/up.php",
            "/image.php",
            "/vendor/phpunit/eval-stdin.php",
        ] {
            assert_eq!(of(&folder, target, true), Destination::Denied, "{target}");
        }
    }

    #[test]
    fn nothing_is_sent_of_a_closed_directory() {
        let folder = site();
        for target in [
            "/closed/",
            "/closed/index.html",
            "/closed/a.php",
            "/closed/a.php/x",
            "/closed/deep/a.txt",
            "/cl%6fsed/deep/a.txt",
        ] {
            assert_eq!(of(&folder, target, true), Destination::Denied, "{target}");
        }
        assert_eq!(
            run(&folder, "/closed/missing").unwrap().0,
            "/index.php",
            "as for any other path"
        );
    }

    #[test]
    fn an_empty_root_has_nothing() {
        let folder = Folder::new();
        assert_eq!(of(&folder, "/", true), Destination::Nothing);
        let absent = folder.path().join("none");
        assert!(destination(&absent, &PhpSettings::default(), b"/", true).is_err());
    }

    proptest! {
        #[test]
        fn only_scripts_that_exist_run(target in "/[a./%2eEfF0xphiu-]{0,16}(/|\\.php|a\\.php)?") {
            let folder = Folder::new();
            fs::write(folder.path().join("a.php"), "").unwrap();
            if let Some((name, _)) = run(&folder, &target) {
                prop_assert_eq!(name, "/a.php");
            }
        }
    }
}
