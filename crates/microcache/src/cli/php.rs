//! `--php DIRECTORY`: an application in PHP by one argument.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf, absolute};

use clap::{Arg, ArgMatches, value_parser};
use microcache_proxy::config::Source;

use super::{Message, is_typed, wrong};

/// Directories of php-fpm's sockets: of Debian, and of Fedora and its relatives.
const SOCKETS: [&str; 2] = ["/run/php", "/run/php-fpm"];
/// Concurrent requests to php-fpm: the `pm.max_children` that it comes with.
const WORKERS: &str = "5";

/// The arguments.
pub(super) fn args() -> [Arg; 2] {
    [
        Arg::new("php")
            .long("php")
            .value_name("DIRECTORY")
            .value_parser(value_parser!(PathBuf))
            .help_heading("Origin (backend)")
            .help("PHP application in this directory, run by php-fpm [5 concurrent requests]"),
        Arg::new("php-socket")
            .long("php-socket")
            .value_name("PATH|HOST:PORT")
            .help_heading("Origin (backend)")
            .help("Socket of php-fpm for --php [the newest /run/php/php*-fpm.sock]"),
    ]
}

/// Adds the origin, the document root and the limit that `--php` stands for.
pub(super) fn apply(matches: &ArgMatches, source: &mut Source) -> Result<(), Message> {
    let socket = matches.get_one::<String>("php-socket");
    let Some(root) = matches.get_one::<PathBuf>("php") else {
        return match socket {
            Some(_) => Err(wrong("--php-socket needs --php DIRECTORY")),
            None => Ok(()),
        };
    };
    if let Some(url) = source.urls.first() {
        let what = format!("--php is the application, and so is {url}; remove one of them");
        return Err(Message::Wrong(what));
    }
    let url = match socket {
        Some(socket) if socket.starts_with('/') => format!("fastcgi://unix:{socket}"),
        Some(address) => format!("fastcgi://{address}"),
        None => match newest_socket(&SOCKETS.map(Path::new)) {
            Some(path) => format!("fastcgi://unix:{}", path.display()),
            None => {
                return Err(wrong(
                    "no socket of php-fpm in /run/php; install and start it, or name its socket with --php-socket",
                ));
            }
        },
    };
    source.urls.push(url);
    let root = absolute(root).unwrap_or_else(|_| root.clone());
    let mut add = |option, value: String| source.flags.push((option, vec![value]));
    add("php_root", root.to_string_lossy().into_owned());
    if source.file.is_none() && !is_typed(matches, "max_concurrent") {
        add("max_concurrent", WORKERS.to_owned());
    }
    Ok(())
}

/// Returns the socket that was made last: that of the version in use.
fn newest_socket(folders: &[&Path]) -> Option<PathBuf> {
    let folders = folders
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok());
    let sockets = folders.flatten().filter_map(|entry| {
        let path = entry.ok()?.path();
        let name = path.file_name()?.to_str()?;
        let is_named = name == "www.sock" || name.starts_with("php") && name.ends_with("-fpm.sock");
        let about = fs::metadata(&path).ok()?;
        let made = about.modified().ok()?;
        (is_named && about.file_type().is_socket()).then_some((made, path))
    });
    sockets.max().map(|(_, path)| path)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::net::UnixListener;
    use std::thread;
    use std::time::Duration;

    use microcache_testkit::Folder;

    use super::*;
    use crate::cli::{Job, parse};

    fn read(line: &str) -> Result<Source, String> {
        match parse(line.split(' ').map(OsString::from)) {
            Ok(Job::Serve(source)) => Ok(source),
            Err(Message::Wrong(what)) => Err(what),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_argument_stands_for_origin_root_and_limit() {
        let source = read("microcache --php /srv/www --php-socket /run/a.sock").unwrap();
        assert_eq!(source.urls, ["fastcgi://unix:/run/a.sock"]);
        let owned = |text: &str| vec![text.to_owned()];
        let root = ("php_root", owned("/srv/www"));
        assert_eq!(source.flags, [root.clone(), ("max_concurrent", owned("5"))]);
        let line = "microcache --php /srv/www --php-socket 127.0.0.1:9000 --max-concurrent 7";
        let source = read(line).unwrap();
        assert_eq!(source.urls, ["fastcgi://127.0.0.1:9000"]);
        assert_eq!(source.flags, [("max_concurrent", owned("7")), root]);
        for (line, says) in [
            (
                "microcache --php /srv/www --php-socket /a http://a",
                "remove one",
            ),
            (
                "microcache --php-socket /run/a.sock http://a",
                "--php DIRECTORY",
            ),
        ] {
            assert!(read(line).unwrap_err().contains(says), "{line}");
        }
    }

    #[test]
    fn the_newest_socket_is_found() {
        let folder = Folder::new();
        // A socket cannot be opened, so its time is that of the clock.
        let make = |name: &str| {
            thread::sleep(Duration::from_millis(20));
            UnixListener::bind(folder.path().join(name)).unwrap()
        };
        assert_eq!(newest_socket(&[folder.path()]), None);
        fs::write(folder.path().join("php9-fpm.sock"), "no socket").unwrap();
        let _kept = [
            make("php7.4-fpm.sock"),
            make("php8.2-fpm.sock"),
            make("other.sock"),
        ];
        let newest = folder.path().join("php8.2-fpm.sock");
        let folders = [Path::new("/none"), folder.path()];
        assert_eq!(newest_socket(&folders), Some(newest));
    }
}
