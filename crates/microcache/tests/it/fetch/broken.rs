//! Directories that are no good: what is fetched is fetched all the same.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

use super::origin_with_page;
use super::place::{Place, printed};
use crate::support::{Reply, left_out};

/// A user other than root.
const OTHER: u32 = 65_534;

#[test]
fn an_unusable_directory_is_reported_and_the_fetch_succeeds() {
    let (origin, place) = (origin_with_page(), Place::new());
    let url = format!("{}/page", origin.url());
    let file = place.path("file");
    fs::write(&file, "a file").expect("written");
    for directory in [file.to_str().expect("a path"), "/proc/self/none"] {
        let run = |flags: &[&str]| {
            let mut command = place.bare();
            command.args(["--cache", directory]).args(flags).arg(&url);
            printed(command.output().expect("it runs"))
        };
        let fetched = run(&[]);
        assert_eq!(
            (fetched.code, fetched.out.as_str()),
            (0, "the page"),
            "{}",
            fetched.err
        );
        assert_eq!(fetched.err.lines().count(), 1, "{}", fetched.err);
        assert!(
            fetched.err.contains("continuing without a cache"),
            "{}",
            fetched.err
        );
        assert!(fetched.err.contains(directory), "{}", fetched.err);
        let offline = run(&["--offline"]);
        assert_eq!((offline.code, offline.out.as_str()), (3, ""));
        assert!(offline.err.contains(directory), "{}", offline.err);
    }
}

#[test]
fn damaged_or_removed_entries_are_fetched_again() {
    let (origin, place) = (origin_with_page(), Place::new());
    let url = format!("{}/page", origin.url());
    let home = place.cache().join("microcache-shared-v1");
    let record = || {
        let name = place.files().into_iter().find(|name| name.len() == 32);
        let name = name.expect("it is stored");
        home.join(&name[..2]).join(name)
    };
    assert_eq!(place.run(&[&url]).out, "the page");
    for requested in 2..6 {
        let mut bytes = fs::read(record()).expect("it is there");
        match requested {
            2 => bytes.truncate(bytes.len() / 2),
            3 => *bytes.last_mut().expect("it is not empty") ^= 1,
            _ => bytes[30] ^= 1,
        }
        match requested {
            5 => fs::remove_dir_all(place.cache()).expect("removed"),
            _ => fs::write(record(), &bytes).expect("written"),
        }
        let run = place.run(&[&url]);
        assert_eq!(
            (run.code, run.out.as_str(), run.err.as_str()),
            (0, "the page", "")
        );
        assert_eq!(origin.count("/page"), requested);
        assert_eq!(place.run(&["--offline", &url]).out, "the page");
    }
}

#[test]
fn a_read_only_directory_is_readable() {
    let (origin, place) = (origin_with_page(), Place::new());
    let other = Reply::new(200).with("Cache-Control: max-age=600");
    origin.on("/other").reply(other.body("other"));
    if chown(place.folder(), Some(OTHER), Some(OTHER)).is_err() {
        return left_out(
            "fetch with a read-only directory: needs root, who can become somebody else",
        );
    }
    // The program may have been built where only root may look.
    let program = place.path("microcache");
    fs::copy(env!("CARGO_BIN_EXE_microcache"), &program).expect("a copy");
    let run = |target: &str| {
        let mut command = Command::new("setpriv");
        let fetch = place.command(&[&format!("{}{target}", origin.url())]);
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(&program)
            .args(fetch.get_args())
            .env("no_proxy", "*");
        printed(command.output().expect("it runs"))
    };
    assert_eq!(run("/page").out, "the page");
    let home = place.cache().join("microcache-shared-v1");
    let folders = || {
        fs::read_dir(&home)
            .expect("it is there")
            .map(|it| it.expect("an entry").path())
    };
    for path in folders().chain([home.clone()]) {
        fs::set_permissions(&path, Permissions::from_mode(0o500)).expect("it is ours");
    }
    assert_eq!(run("/page").out, "the page");
    assert_eq!(origin.count("/page"), 1, "it is a hit");
    let unstored = run("/other");
    assert_eq!(
        (unstored.code, unstored.out.as_str()),
        (0, "other"),
        "{}",
        unstored.err
    );
    assert!(unstored.err.contains("the cache: "), "{}", unstored.err);
    assert!(
        unstored.err.contains("ermission denied"),
        "{}",
        unstored.err
    );
    // Root has no business in it either.
    let foreign = place.run(&[&format!("{}/page", origin.url())]);
    assert_eq!((foreign.code, foreign.out.as_str()), (0, "the page"));
    assert!(
        foreign.err.contains("belongs to another user"),
        "{}",
        foreign.err
    );
}
