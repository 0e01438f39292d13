//! Other users with write access above or within the directory, who plant links and files.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use microcache_store::disk::{Disk, DiskError, JOURNAL_LIMIT};
use microcache_store::{LocalTier, PutOutcome, Tier, TierError};

use crate::{MIB, Place, body, id};

/// Neighbouring directory with names as used by the tier, which must stay unchanged.
struct Victim(PathBuf);

impl Victim {
    fn beside(place: &Place) -> Self {
        let path = place.directory.with_extension("victim");
        fs::create_dir_all(path.join("tmp")).expect("a directory");
        let victim = Self(path);
        for name in Self::names() {
            let file = victim.0.join(name);
            fs::create_dir_all(file.parent().expect("it is in one")).expect("a directory");
            fs::write(file, b"precious").expect("a file");
        }
        victim
    }

    fn names() -> [String; 6] {
        let entry = id("one").to_string();
        [
            "7".into(),
            "journal".into(),
            "tmp/7".into(),
            entry.clone(),
            format!("{}/{entry}", &entry[..2]),
            "letters/to-mother".into(),
        ]
    }

    fn file(&self) -> PathBuf {
        self.0.join("7")
    }

    fn is_whole(&self) -> bool {
        let is_there = |name| fs::read(self.0.join(name)).is_ok_and(|it| it == b"precious");
        let count = fs::read_dir(&self.0).expect("it is there").count();
        Self::names().into_iter().all(is_there) && count == 6
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn home(place: &Place) -> PathBuf {
    place.directory.join("microcache-v1")
}

fn refused(place: &Place) -> DiskError {
    let mut refused = None;
    // A child process of another test holds a copy of our lock until it calls exec.
    place.wait_until("free", || {
        let opened = Disk::open(place.settings(MIB), place.runtime.handle());
        let error = opened.expect_err("it is refused");
        let is_free = !matches!(error, DiskError::Taken { .. });
        refused = Some(error);
        is_free
    });
    refused.expect("it came true")
}

fn journal_of(place: &Place, disk: &Disk) -> Result<usize, TierError> {
    let loaded = place.runtime.block_on(disk.load_journal());
    loaded.map(|journal| journal.records.len())
}

fn append(place: &Place, disk: &Disk) -> Result<(), TierError> {
    let record = vec![Bytes::from_static(b"record")];
    place.runtime.block_on(disk.append_to_journal(record))
}

#[test]
fn a_directory_that_others_may_write_to_is_refused() {
    let place = Place::new();
    for of in [place.directory.clone(), home(&place)] {
        drop(place.open_when_free(&place.settings(MIB)));
        fs::set_permissions(&of, Permissions::from_mode(0o777)).expect("ours");
        let error = refused(&place);
        assert!(matches!(error, DiskError::Ownership(_)), "{error}");
        let remedy = format!("chmod go-w {}", of.display());
        assert!(error.to_string().contains(&remedy), "{error}");
        fs::set_permissions(&of, Permissions::from_mode(0o700)).expect("ours");
    }
    drop(place.open_when_free(&place.settings(MIB)));
}

#[test]
fn a_link_in_place_of_a_folder_is_refused() {
    let place = Place::new();
    let victim = Victim::beside(&place);
    drop(place.open(place.settings(MIB)));
    for of in [home(&place).join("tmp"), home(&place)] {
        fs::remove_dir_all(&of).expect("it is there");
        symlink(&victim.0, &of).expect("a link");
        let error = refused(&place).to_string();
        let expected = format!("{} cannot be used: ", of.display());
        assert!(error.starts_with(&expected), "{error}");
        fs::remove_file(&of).expect("the link");
        assert!(victim.is_whole());
    }
}

#[test]
fn a_link_present_at_the_start_is_left_alone_and_reported() {
    let place = Place::new();
    let victim = Victim::beside(&place);
    drop(place.open(place.settings(MIB)));
    let folder = &id("one").to_string()[..2];
    let names = [format!("microcache-v1/{folder}"), "microcache-v7".into()];
    for name in &names {
        symlink(&victim.0, place.directory.join(name)).expect("a link");
    }
    let disk = place.open_when_free(&place.settings(MIB));
    place.runtime.block_on(disk.counted());
    let report = disk.stats().foreign.expect("some are not ours");
    for name in &names {
        assert!(report.contains(name), "{name}: {report}");
        assert!(place.directory.join(name).is_symlink());
    }
    assert!(!matches!(place.try_get(&disk, "one"), Ok(Some(_))));
    assert!(place.try_put(&disk, "one", b"", body(1, 9)).is_err());
    assert!(victim.is_whole());
}

#[test]
fn a_link_that_is_made_while_it_runs_leads_nowhere() {
    let place = Place::new();
    let victim = Victim::beside(&place);
    let disk = place.open(place.settings(MIB));
    place.put(&disk, "one", b"head", body(1, 100));
    let folder = place.path("one").parent().expect("a folder").to_path_buf();
    fs::remove_dir_all(&folder).expect("it is there");
    symlink(&victim.0, &folder).expect("a link");
    assert!(disk.try_get(id("one")).is_none());
    assert!(place.try_get(&disk, "one").is_err());
    assert!(place.try_put(&disk, "one", b"", body(1, 9)).is_err());
    let _ = place.runtime.block_on(disk.remove(id("one")));
    assert!(victim.is_whole());
    fs::remove_file(&folder).expect("the link");
    assert_eq!(place.put(&disk, "one", b"", body(1, 9)), PutOutcome::Stored);
}

#[test]
fn a_folder_that_is_moved_away_takes_nothing_along() {
    let place = Place::new();
    let victim = Victim::beside(&place);
    let disk = place.open(place.settings(MIB));
    place.put(&disk, "one", b"head", body(1, 100));
    let away = place.directory.join("away");
    fs::rename(home(&place), &away).expect("it is there");
    symlink(&victim.0, home(&place)).expect("a link");
    place.put(&disk, "two", b"head", body(2, 100));
    assert!(place.get(&disk, "one").is_some(), "it is still open");
    place
        .runtime
        .block_on(disk.remove(id("one")))
        .expect("removed");
    assert!(append(&place, &disk).is_ok());
    assert!(victim.is_whole());
}

#[test]
fn other_names_of_foreign_files_are_not_written_to() {
    let place = Place::new();
    let victim = Victim::beside(&place);
    let journal = home(&place).join("journal");
    let disk = place.open(place.settings(MIB));
    append(&place, &disk).expect("a journal");
    let links: [fn(&Path, &Path) -> io::Result<()>; 2] = [
        |from, to| fs::hard_link(from, to),
        |from, to| symlink(from, to),
    ];
    for link in links {
        for aside in ["journal.new", "journal.damaged"] {
            link(&victim.file(), &home(&place).join(aside)).expect("a link");
        }
        fs::remove_file(&journal).expect("it is there");
        link(&victim.file(), &journal).expect("a link");
        assert!(append(&place, &disk).is_err());
        let replaced = disk.replace_journal(vec![Bytes::from_static(b"record")]);
        place.runtime.block_on(replaced).expect("another file");
        assert_eq!(journal_of(&place, &disk), Ok(1));
        // A damaged journal is set aside without following a link of that name.
        fs::write(&journal, b"damaged").expect("ours");
        assert_eq!(journal_of(&place, &disk), Ok(0));
        assert!(victim.is_whole());
        fs::remove_file(home(&place).join("journal.damaged")).expect("it is there");
    }
    drop(disk);
    let lock = place.directory.join("microcache.lock");
    fs::remove_file(&lock).expect("it is there");
    fs::hard_link(victim.file(), &lock).expect("a link");
    assert!(matches!(refused(&place), DiskError::Unusable { .. }));
    assert!(victim.is_whole());
}

#[test]
fn a_renewal_writes_to_no_other_name() {
    let place = Place::new();
    let disk = place.open(place.settings(16 * MIB));
    place.put(&disk, "one", b"old", body(1, 2 * MIB as usize));
    let other = place.directory.join("other");
    fs::hard_link(place.path("one"), &other).expect("a link");
    let before = fs::read(&other).expect("a file");
    let renewed = disk.renew(
        id("one"),
        b"old"[..].into(),
        b"new"[..].into(),
        crate::HOUR,
        None,
    );
    assert_eq!(place.runtime.block_on(renewed), Ok(PutOutcome::Superseded));
    assert_eq!(fs::read(&other).expect("a file"), before);
}

#[test]
fn huge_and_endless_files_are_read_within_limits() {
    let place = Place::new();
    let disk = place.open(place.settings(MIB));
    place.put(&disk, "one", b"head", body(1, 100));
    let huge = fs::File::create(place.path("one")).expect("ours");
    huge.set_len(1 << 40).expect("a hole");
    assert!(matches!(
        place.try_get(&disk, "one"),
        Err(TierError::Corrupt(_))
    ));
    let journal = home(&place).join("journal");
    let huge = fs::File::create(&journal).expect("ours");
    huge.set_len(1 << 40).expect("a hole");
    assert_eq!(journal_of(&place, &disk), Ok(0));
    let aside = fs::metadata(home(&place).join("journal.damaged")).expect("set aside");
    assert_eq!(aside.len(), JOURNAL_LIMIT + 1);
    fs::remove_file(&journal).expect("it is there");
    symlink("/dev/zero", &journal).expect("a link");
    assert!(journal_of(&place, &disk).is_err());
    fs::remove_file(&journal).expect("it is there");
    let pipe = rustix::fs::FileType::Fifo;
    let mode = rustix::fs::Mode::RWXU;
    rustix::fs::mknodat(rustix::fs::CWD, &journal, pipe, mode, 0).expect("a pipe");
    assert!(journal_of(&place, &disk).is_err());
    assert!(append(&place, &disk).is_err());
}
