//! Disk tier, black box: real files, restarts and kills.

mod hostile;
mod journal;
mod list;
mod renew;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use microcache_store::disk::{Disk, DiskError, DiskSettings};
use microcache_store::{Content, Entry, EntryId, LocalTier, PutOutcome, Tier, TierError};
use microcache_testkit::{Folder, Process, eventually, noise};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};

const HOUR: Duration = Duration::from_hours(1);
/// Space that the tier accounts for a file name.
const NAME: u64 = 80;
const MIB: u64 = 1024 * 1024;
/// Guard against hangs.
const LONG: Duration = Duration::from_mins(1);
/// Environment variable of child processes: the directory to work in.
const ROLE: &str = "MICROCACHE_TEST_DISK";

/// Directory of a test, with a runtime for background work.
struct Place {
    directory: PathBuf,
    runtime: Runtime,
    _folder: Option<Folder>,
}

impl Place {
    fn new() -> Self {
        Self::of(Folder::absent())
    }

    fn of(folder: Folder) -> Self {
        let directory = folder.path().to_owned();
        Self {
            _folder: Some(folder),
            ..Self::at(directory)
        }
    }

    /// Uses the directory of another test process.
    fn at(directory: PathBuf) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build();
        Self {
            directory,
            runtime: runtime.expect("a runtime"),
            _folder: None,
        }
    }

    fn settings(&self, capacity: u64) -> DiskSettings {
        DiskSettings {
            pause: Duration::ZERO,
            read_deadline: LONG,
            write_deadline: LONG,
            ..DiskSettings::new(&self.directory, capacity)
        }
    }

    fn open(&self, settings: DiskSettings) -> Arc<Disk> {
        let disk = Disk::open(settings, self.runtime.handle()).expect("an open disk");
        self.runtime.block_on(disk.counted());
        disk
    }

    /// Opens the directory again, as after a restart.
    fn reopen(&mut self, disk: Arc<Disk>, settings: &DiskSettings) -> Arc<Disk> {
        drop(disk);
        self.start_runtime_anew();
        self.open_when_free(settings)
    }

    /// Dropping the runtime waits for operations in progress.
    fn start_runtime_anew(&mut self) {
        let runtime = Builder::new_current_thread().enable_all().build();
        self.runtime = runtime.expect("a runtime");
    }

    /// A child process of another test holds a copy of our lock until it calls exec.
    fn open_when_free(&self, settings: &DiskSettings) -> Arc<Disk> {
        let mut opened = None;
        self.wait_until("free", || {
            opened = match Disk::open(settings.clone(), self.runtime.handle()) {
                Err(DiskError::Taken { .. }) => None,
                other => Some(other.expect("an open disk")),
            };
            opened.is_some()
        });
        opened.expect("it came true")
    }

    fn put(&self, disk: &Disk, key: &str, head: &[u8], body: impl Into<Content>) -> PutOutcome {
        self.try_put(disk, key, head, body).expect("a working disk")
    }

    fn try_put(
        &self,
        disk: &Disk,
        key: &str,
        head: &[u8],
        body: impl Into<Content>,
    ) -> Result<PutOutcome, TierError> {
        let entry = Entry {
            head: Bytes::copy_from_slice(head),
            body: body.into(),
        };
        self.runtime.block_on(disk.put(id(key), entry, HOUR, None))
    }

    fn get(&self, disk: &Disk, key: &str) -> Option<Entry> {
        self.try_get(disk, key).expect("a working disk")
    }

    fn try_get(&self, disk: &Disk, key: &str) -> Result<Option<Entry>, TierError> {
        self.runtime.block_on(disk.get(id(key)))
    }

    fn path(&self, key: &str) -> PathBuf {
        let name = id(key).to_string();
        let home = self.directory.join("microcache-v1");
        home.join(&name[..2]).join(name)
    }

    /// Space occupied by the entries according to the file system, and their number.
    fn used(&self) -> (u64, u64) {
        let mut used = (0, 0);
        walk(&self.directory, &mut |path, file| {
            if file.is_file() && path.file_name().is_some_and(|name| name.len() == 32) {
                used.0 += file.len().div_ceil(4096) * 4096 + NAME;
                used.1 += 1;
            }
        });
        used
    }

    fn temporaries(&self) -> usize {
        let directory = fs::read_dir(self.directory.join("microcache-v1/tmp"));
        directory.expect("a directory").count()
    }

    /// Polls for a condition that is not signalled. Work in the background goes on meanwhile.
    fn wait_until(&self, what: &str, mut is_true: impl FnMut() -> bool) {
        eventually(what, || {
            self.runtime
                .block_on(async { tokio::time::sleep(Duration::from_millis(1)).await });
            is_true().then_some(())
        });
    }
}

fn id(key: &str) -> EntryId {
    EntryId::of(key.as_bytes())
}

fn body(seed: u64, len: usize) -> Bytes {
    noise(len, seed).into()
}

fn read_all(content: &Content) -> Bytes {
    match content {
        Content::Bytes(bytes) => bytes.clone(),
        Content::File(file) => (0..file.blocks())
            .flat_map(|number| file.read_block(number).expect("a good block"))
            .collect(),
        Content::Weak(_) => panic!("a tier gives the file itself"),
    }
}

fn walk(directory: &Path, see: &mut impl FnMut(&Path, &fs::Metadata)) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let (path, Ok(metadata)) = (entry.path(), entry.metadata()) else {
            continue;
        };
        see(&path, &metadata);
        if metadata.is_dir() {
            walk(&path, see);
        }
    }
}

/// Runs this test in a child process.
fn start_child(test: &str, directory: &Path, before: &str) -> Process {
    let this = std::env::current_exe().expect("a path");
    let script = format!("{before} exec \"$0\" --exact \"$1\" --nocapture");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).arg(this).arg(test);
    Process::start(command.env(ROLE, directory)).expect("a shell")
}

#[test]
fn records_of_any_size_are_found_also_after_a_restart() {
    let mut place = Place::new();
    let disk = place.open(place.settings(64 * MIB));
    let sizes = [
        0, 1, 4000, 16_384, 16_385, 131_072, 131_073, 1_000_000, 3_000_000,
    ];
    for (size, head_len) in sizes
        .into_iter()
        .zip([0, 1, 300, 20_000].into_iter().cycle())
    {
        let head = body(1, head_len);
        assert_eq!(
            place.put(&disk, &size.to_string(), &head, body(2, size)),
            PutOutcome::Stored
        );
    }
    let check = |place: &Place, disk: &Disk| {
        for (size, head_len) in sizes
            .into_iter()
            .zip([0, 1, 300, 20_000].into_iter().cycle())
        {
            let entry = place.get(disk, &size.to_string()).expect("there");
            assert_eq!(entry.head, body(1, head_len));
            assert_eq!(read_all(&entry.body), body(2, size));
            assert_eq!(
                matches!(entry.body, Content::File(_)),
                size > 16_384,
                "{size}"
            );
        }
    };
    check(&place, &disk);
    let disk = place.reopen(disk, &place.settings(64 * MIB));
    check(&place, &disk);
}

#[test]
fn the_first_hit_after_a_restart_needs_no_scan_and_the_scan_counts_everything() {
    let mut place = Place::new();
    let disk = place.open(place.settings(64 * MIB));
    for number in 0..200 {
        place.put(&disk, &number.to_string(), b"head", body(number, 2000));
    }
    let before = disk.stats();
    let disk = place.reopen(disk, &place.settings(64 * MIB));
    // The scan has not run: the runtime is driven by this very call.
    assert_eq!(disk.stats().entries, Some(0));
    assert!(place.get(&disk, "7").is_some());
    assert!(place.get(&disk, "absent").is_none());
    place.runtime.block_on(disk.counted());
    assert_eq!(disk.stats(), before);
    assert_eq!(before.entries, Some(200));
    assert_eq!(before.bytes, Some(place.used().0));
}

#[test]
fn a_removal_holds_and_so_it_does_after_a_restart() {
    let mut place = Place::new();
    let disk = place.open(place.settings(MIB));
    place.put(&disk, "one", b"head", body(1, 100));
    place.put(&disk, "large", b"head", body(1, 100_000));
    let large = place.get(&disk, "large").expect("there");
    for key in ["one", "large"] {
        place
            .runtime
            .block_on(disk.remove(id(key)))
            .expect("a removal");
        assert!(place.get(&disk, key).is_none());
        assert!(!place.path(key).exists());
    }
    assert_eq!(
        read_all(&large.body),
        body(1, 100_000),
        "it is readable while it is held"
    );
    let disk = place.reopen(disk, &place.settings(MIB));
    assert!(place.get(&disk, "one").is_none());
    // Removed before the scan has found it.
    place.put(&disk, "two", b"head", body(1, 100));
    let disk = place.reopen(disk, &place.settings(MIB));
    place
        .runtime
        .block_on(disk.remove(id("two")))
        .expect("a removal");
    place.runtime.block_on(disk.counted());
    assert!(place.get(&disk, "two").is_none());
    assert_eq!((disk.stats().bytes, place.used()), (Some(0), (0, 0)));
}

#[test]
fn a_write_begun_before_a_removal_is_not_stored_after_it() {
    let place = Place::new();
    let disk = place.open(place.settings(8 * MIB));
    let empty = || Entry {
        head: Bytes::new(),
        body: Content::default(),
    };
    // Started now, completed later.
    let one = disk.put(id("one"), empty(), HOUR, None);
    let other = disk.put(id("other"), empty(), HOUR, None);
    let mut spool = disk.spool().expect("room for one");
    place
        .runtime
        .block_on(spool.write(body(1, 1_000_000)))
        .expect("a write");
    place
        .runtime
        .block_on(disk.remove(id("one")))
        .expect("a removal");
    let put = |put| place.runtime.block_on(put);
    assert_eq!(put(one), Ok(PutOutcome::Superseded));
    assert_eq!(put(other), Ok(PutOutcome::Stored));
    let spooled = place
        .runtime
        .block_on(spool.finish(id("one"), Bytes::new(), HOUR));
    assert!(matches!(spooled, Err(TierError::Failed(_))), "{spooled:?}");
    assert!(place.get(&disk, "one").is_none());
    assert_eq!(
        put(disk.put(id("one"), empty(), HOUR, None)),
        Ok(PutOutcome::Stored)
    );
    assert_eq!(place.temporaries(), 0);
}

#[test]
fn a_body_larger_than_memory_is_spooled() {
    let mut place = Place::new();
    let disk = place.open(place.settings(64 * MIB));
    let whole = body(3, 9_999_999);
    let mut spool = disk.spool().expect("room for one");
    for chunk in whole.chunks(70_001) {
        let chunk = Bytes::copy_from_slice(chunk);
        place.runtime.block_on(spool.write(chunk)).expect("a write");
    }
    let head = Bytes::from_static(b"head");
    let kept = place
        .runtime
        .block_on(spool.finish(id("one"), head, HOUR))
        .expect("a body");
    assert_eq!(read_all(&kept), whole);
    assert!(matches!(&kept, Content::File(file) if file.verified().is_some()));
    let entry = place.get(&disk, "one").expect("there");
    assert_eq!(
        (&entry.head[..], read_all(&entry.body)),
        (&b"head"[..], whole.clone())
    );
    // With a new head, as after a revalidation, and under another name.
    for key in ["one", "two"] {
        assert_eq!(
            place.put(&disk, key, b"new head", entry.body.clone()),
            PutOutcome::Stored
        );
    }
    let disk = place.reopen(disk, &place.settings(64 * MIB));
    for key in ["one", "two"] {
        let entry = place.get(&disk, key).expect("there");
        assert_eq!(
            (&entry.head[..], read_all(&entry.body)),
            (&b"new head"[..], whole.clone())
        );
    }
}

#[test]
fn a_spool_that_is_given_up_leaves_nothing_behind() {
    let place = Place::new();
    let disk = place.open(DiskSettings {
        spools: 1,
        ..place.settings(8 * MIB)
    });
    let mut spool = disk.spool().expect("room for one");
    assert!(disk.spool().is_none(), "one at a time");
    place
        .runtime
        .block_on(spool.write(body(1, 1_000_000)))
        .expect("a write");
    assert_eq!(place.temporaries(), 1);
    drop(spool);
    place.wait_until("an empty directory", || place.temporaries() == 0);
    place.wait_until("given back", || disk.stats().bytes == Some(0));
    let mut spool = disk.spool().expect("room for one again");
    let too_much = (0..3).try_for_each(|_| place.runtime.block_on(spool.write(body(1, 1_000_000))));
    assert!(
        matches!(too_much, Err(TierError::Failed(_))),
        "{too_much:?}"
    );
}

#[test]
fn the_bounds_hold_and_are_used() {
    for (max_files, size, expected_files) in [(100_000, 20_000, None), (200, 2000, Some(200))] {
        let place = Place::new();
        let capacity = 8 * MIB;
        let disk = place.open(DiskSettings {
            max_files,
            ..place.settings(capacity)
        });
        for number in 0..1200 {
            assert_eq!(
                place.put(&disk, &number.to_string(), b"head", body(number, size)),
                PutOutcome::Stored
            );
            assert!(disk.stats().bytes <= Some(capacity));
        }
        let (bytes, files) = place.used();
        assert_eq!(
            (disk.stats().bytes, disk.stats().entries),
            (Some(bytes), Some(files))
        );
        assert_eq!(disk.stats().evicted, 1200 - files);
        match expected_files {
            Some(expected) => assert_eq!(files, expected),
            None => assert!(bytes <= capacity && bytes > capacity / 100 * 98, "{bytes}"),
        }
    }
}

#[test]
fn large_ones_make_room_and_too_large_ones_are_refused() {
    let place = Place::new();
    let disk = place.open(place.settings(8 * MIB));
    for number in 0..500 {
        place.put(&disk, &number.to_string(), b"head", body(number, 16_000));
    }
    assert_eq!(
        place.put(&disk, "large", b"head", body(1, 2_000_000)),
        PutOutcome::Stored
    );
    assert_eq!(
        place.put(&disk, "too large", b"head", body(1, 2_200_000)),
        PutOutcome::Refused
    );
    assert_eq!(disk.stats().refused, 1);
    assert!(place.get(&disk, "large").is_some());
    assert!(place.used().0 <= 8 * MIB);
}

#[test]
fn used_records_stay() {
    let place = Place::new();
    let disk = place.open(place.settings(4 * MIB));
    place.put(&disk, "small", b"head", body(1, 1000));
    place.put(&disk, "large", b"head", body(1, 200_000));
    let large = place.get(&disk, "large").expect("there");
    for number in 0..3000 {
        place.put(&disk, &number.to_string(), b"head", body(number, 4000));
        if number % 20 == 0 {
            assert!(place.get(&disk, "small").is_some(), "gone after {number}");
            // Served by memory without a lookup on disk.
            if let Content::File(file) = &large.body {
                file.touch();
            }
        }
    }
    assert!(place.get(&disk, "large").is_some());
    assert!(place.get(&disk, "1").is_none());
}

#[test]
fn with_less_room_after_a_restart_the_rest_is_removed() {
    let mut place = Place::new();
    let disk = place.open(place.settings(8 * MIB));
    for number in 0..500 {
        place.put(&disk, &number.to_string(), b"head", body(number, 10_000));
    }
    let disk = place.reopen(disk, &place.settings(2 * MIB));
    place.runtime.block_on(disk.counted());
    let (bytes, _) = place.used();
    assert!(bytes <= 2 * MIB && bytes > 2 * MIB - 16_384, "{bytes}");
    assert_eq!(disk.stats().bytes, Some(bytes));
}

#[test]
fn many_at_once_leave_the_books_in_order() {
    const KEYS: u64 = 12;
    let place = Place::new();
    let capacity = MIB;
    let disk = place.open(DiskSettings {
        open_files: 3,
        max_files: 9,
        ..place.settings(capacity)
    });
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (disk, place) = (&disk, Place::at(place.directory.clone()));
            scope.spawn(move || {
                for step in 0..400 {
                    one_of_many(&place, disk, (thread * 1000 + step) * 7919, KEYS);
                }
            });
        }
    });
    place.wait_until("all files removed that left", || {
        disk.stats().entries == Some(place.used().1)
    });
    assert_eq!(disk.stats().bytes, Some(place.used().0));
    assert_eq!((disk.stats().corrupt, disk.stats().degraded), (0, vec![]));
    for key in 0..KEYS {
        let removed = place.runtime.block_on(disk.remove(id(&key.to_string())));
        assert_eq!(removed, Ok(()));
        assert!(place.get(&disk, &key.to_string()).is_none());
    }
    assert_eq!(
        (disk.stats().bytes, place.used(), place.temporaries()),
        (Some(0), (0, 0), 0)
    );
}

fn one_of_many(place: &Place, disk: &Disk, seed: u64, keys: u64) {
    let key = (seed % keys).to_string();
    let len = (seed % 150_001) as usize;
    let head = format!("{key} {seed} {len}");
    match seed % 4 {
        0 => drop(place.try_get(disk, &key)),
        1 => {
            place
                .runtime
                .block_on(disk.remove(id(&key)))
                .expect("a removal");
        }
        _ => drop(place.put(disk, &key, head.as_bytes(), body(seed, len))),
    }
    assert!(disk.stats().bytes <= Some(MIB));
    let Some(entry) = place.get(disk, &key) else {
        return;
    };
    let head = String::from_utf8(entry.head.to_vec()).expect("as it was written");
    let mut words = head.split(' ');
    assert_eq!(words.next(), Some(&key[..]));
    let [seed, len] = [(); 2].map(|()| {
        words
            .next()
            .and_then(|word| word.parse().ok())
            .expect("a number")
    });
    assert_eq!(read_all(&entry.body), body(seed, len as usize));
}

#[test]
fn a_directory_has_one_process() {
    let place = Place::new();
    let disk = place.open(place.settings(MIB));
    let second = Disk::open(place.settings(MIB), place.runtime.handle());
    let error = second.expect_err("taken").to_string();
    let (directory, pid) = (place.directory.display(), std::process::id());
    assert_eq!(
        error,
        format!("{directory} is in use by process {pid}; each process needs its own directory"),
    );
    drop(disk);
}

#[test]
fn a_directory_that_cannot_be_used_is_named() {
    let place = Place::new();
    fs::write(&place.directory, b"a file").expect("a file");
    let error = Disk::open(place.settings(MIB), place.runtime.handle()).expect_err("a file");
    assert!(matches!(error, DiskError::Unusable { .. }));
    let expected = format!("{} cannot be used: ", place.directory.display());
    assert!(error.to_string().starts_with(&expected), "{error}");
    fs::remove_file(&place.directory).expect("it is there");
}

#[test]
fn only_the_owner_may_look() {
    let place = Place::new();
    let disk = place.open(place.settings(MIB));
    place.put(&disk, "one", b"head", body(1, 100));
    let mut seen = 0;
    walk(&place.directory, &mut |path, metadata| {
        let expected = if metadata.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(
            metadata.permissions().mode() & 0o777,
            expected,
            "{}",
            path.display()
        );
        seen += 1;
    });
    assert_eq!(seen, 5, "lock, home, tmp, a folder, the entry");
}

#[test]
fn files_of_other_versions_are_removed_and_foreign_ones_reported() {
    let mut place = Place::new();
    let disk = place.open(place.settings(MIB));
    place.put(&disk, "one", b"head", body(1, 100));
    let folder = place.path("one").parent().expect("a folder").to_path_buf();
    let home = place.directory.join("microcache-v1");
    let old = place.directory.join("microcache-v9");
    fs::create_dir_all(old.join("bc")).expect("a directory");
    fs::create_dir(old.join("tmp")).expect("a directory");
    for name in [&format!("bc/{}", id("old")), "tmp/3", "journal"] {
        fs::write(old.join(name), b"old").expect("a file");
    }
    fs::create_dir_all(place.directory.join("microcache-v8/a")).expect("a directory");
    fs::write(place.directory.join("microcache-v8/a/theirs"), b"what").expect("a file");
    fs::write(home.join("foreign"), b"what").expect("a file");
    fs::write(home.join("tmp/7"), b"half").expect("a file");
    fs::write(folder.join("foreign"), b"what").expect("a file");
    fs::write(folder.join(id("misplaced").to_string()), b"what").expect("a file");
    fs::write(place.directory.join("notes"), b"somebody's").expect("a file");
    let disk = place.reopen(disk, &place.settings(MIB));
    place.runtime.block_on(disk.counted());
    let mut names = Vec::new();
    walk(&place.directory, &mut |path, metadata| {
        if metadata.is_file() {
            let name = path.file_name().expect("a name").to_string_lossy();
            names.push(name.into_owned());
        }
    });
    names.sort();
    let misplaced = id("misplaced").to_string();
    let mut expected = [
        id("one").to_string(),
        misplaced.clone(),
        "foreign".into(),
        "foreign".into(),
        "theirs".into(),
        "microcache.lock".into(),
        "notes".into(),
    ];
    expected.sort();
    assert_eq!(names, expected);
    assert!(!old.exists());
    let line = disk.stats().foreign.expect("some are not ours");
    for name in ["microcache-v8", "microcache-v1/foreign", &misplaced] {
        assert!(line.contains(name), "{name}: {line}");
    }
    assert!(
        !line.contains("notes") && !line.contains("microcache-v9"),
        "{line}"
    );
}

#[test]
fn expired_records_are_removed() {
    let place = Place::new();
    let disk = place.open(place.settings(MIB));
    let entry = Entry {
        head: Bytes::new(),
        body: Content::default(),
    };
    let put = disk.put(id("one"), entry, Duration::ZERO, None);
    assert_eq!(place.runtime.block_on(put), Ok(PutOutcome::Stored));
    place.put(&disk, "two", b"", body(1, 10));
    place.wait_until("the end of it", || disk.stats().entries == Some(1));
    assert!(place.get(&disk, "one").is_none());
    assert!(place.get(&disk, "two").is_some());
    place.wait_until("its removal", || !place.path("one").exists());
    assert_eq!(disk.stats().evicted, 0);
}

#[test]
fn forever_is_long_enough() {
    let place = Place::new();
    let disk = place.open(place.settings(MIB));
    let entry = Entry {
        head: Bytes::new(),
        body: Content::default(),
    };
    let put = disk.put(id("one"), entry, Duration::MAX, None);
    assert_eq!(place.runtime.block_on(put), Ok(PutOutcome::Stored));
    assert!(place.get(&disk, "one").is_some());
}

#[test]
fn a_changed_byte_is_detected_at_any_position() {
    let place = Place::new();
    let disk = place.open(place.settings(MIB));
    place.put(&disk, "one", b"the head", body(1, 50));
    let good = fs::read(place.path("one")).expect("a file");
    let truncated = (0..good.len()).map(|len| good[..len].to_vec());
    let flipped = (0..good.len() * 8).map(|bit| {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        bad
    });
    let longer = [[&good[..], b"x"].concat()];
    let mut corrupt = 0;
    for bad in truncated.chain(flipped).chain(longer) {
        place.put(&disk, "one", b"the head", body(1, 50));
        fs::write(place.path("one"), &bad).expect("a file");
        let got = place.try_get(&disk, "one");
        assert!(
            matches!(got, Err(TierError::Corrupt(_))),
            "{got:?} from {bad:?}"
        );
        assert!(!place.path("one").exists(), "it is removed");
        assert!(place.get(&disk, "one").is_none());
        corrupt += 1;
        assert_eq!(disk.stats().corrupt, corrupt);
    }
    assert_eq!(disk.stats().bytes, Some(0));
    fs::write(place.path("one"), &good).expect("a file");
    assert!(place.get(&disk, "one").is_none(), "nobody put it there");
}

#[test]
fn a_changed_block_of_a_large_body_spoils_no_other() {
    let mut place = Place::new();
    let disk = place.open(place.settings(8 * MIB));
    place.put(&disk, "one", b"head", body(1, 1_000_000));
    let disk = place.reopen(disk, &place.settings(8 * MIB));
    let file = File::options()
        .write(true)
        .open(place.path("one"))
        .expect("a file");
    file.write_all_at(&[0; 8], 300_000).expect("a write");
    // A failing disk does not update the time of the first failure.
    file.set_modified(SystemTime::now() + HOUR)
        .expect("our own file");
    let entry = place.get(&disk, "one").expect("its head is good");
    let Content::File(file) = entry.body else {
        panic!("in memory");
    };
    let good: Vec<u64> = (0..file.blocks())
        .filter(|&block| file.read_block(block).is_ok())
        .collect();
    assert_eq!(good, [0, 1, 3, 4, 5, 6, 7]);
    assert!(file.verified().is_none());
}

#[test]
fn special_and_foreign_files_are_not_read() {
    let place = Place::new();
    let disk = place.open(place.settings(MIB));
    let make = |kind: &str, path: &Path| match kind {
        "link" => std::os::unix::fs::symlink(place.path("two"), path),
        "directory" => fs::create_dir_all(path.join("x")),
        "pipe" => {
            let kind = rustix::fs::FileType::Fifo;
            let mode = rustix::fs::Mode::RWXU;
            rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).map_err(Into::into)
        }
        _ => fs::copy(place.path("two"), path).map(|_| ()),
    };
    for kind in ["link", "pipe", "another's file", "directory"] {
        place.put(&disk, "one", b"head", body(1, 10));
        place.put(&disk, "two", b"head", body(2, 10));
        fs::remove_file(place.path("one")).expect("it is there");
        make(kind, &place.path("one")).expect("made");
        let got = place.try_get(&disk, "one");
        assert!(matches!(got, Err(TierError::Corrupt(_))), "{kind}: {got:?}");
        let is_there = place.path("one").symlink_metadata().is_ok();
        assert_eq!(is_there, kind == "directory", "{kind}");
    }
    assert!(place.path("one").join("x").exists(), "it is not ours");
    let line = disk.stats().foreign.expect("it is not ours");
    assert!(line.contains(&id("one").to_string()), "{line}");
}

#[test]
fn open_files_have_a_bound_and_make_room_for_each_other() {
    let place = Place::new();
    let settings = DiskSettings {
        inline: 0,
        open_files: 3,
        ..place.settings(64 * MIB)
    };
    let disk = place.open(settings);
    let keys = ["a", "b", "c", "d", "e"];
    for key in keys {
        place.put(&disk, key, b"head", body(1, 200_000));
    }
    place.put(&disk, "huge", b"head", body(1, 9_000_000));
    let mut held: Vec<_> = keys.map(|key| place.get(&disk, key).expect("there")).into();
    let in_files = |held: &[Entry]| {
        let in_file = |entry: &&Entry| matches!(entry.body, Content::File(_));
        held.iter().filter(in_file).count()
    };
    assert_eq!((in_files(&held), held.len()), (3, 5));
    assert!(
        held.iter()
            .all(|entry| read_all(&entry.body) == body(1, 200_000))
    );
    assert!(
        place.get(&disk, "huge").is_none(),
        "too large for memory, and no file may be opened"
    );
    // Replaced while referenced, they still count.
    for key in keys {
        place.put(&disk, key, b"head", body(2, 200_000));
    }
    assert!(
        place
            .get(&disk, "a")
            .is_some_and(|entry| in_files(&[entry]) == 0)
    );
    held.clear();
    assert!(
        place
            .get(&disk, "a")
            .is_some_and(|entry| in_files(&[entry]) == 1)
    );
    assert!(place.get(&disk, "huge").is_some());
}

#[test]
fn a_vanished_directory_is_created_again() {
    let place = Place::new();
    let disk = place.open(place.settings(8 * MIB));
    place.put(&disk, "one", b"head", body(1, 100));
    place.put(&disk, "two", b"head", body(1, 100));
    fs::remove_dir_all(&place.directory).expect("it is there");
    assert!(place.get(&disk, "one").is_none());
    assert_eq!(
        place.put(&disk, "three", b"head", body(3, 100)),
        PutOutcome::Stored
    );
    place.runtime.block_on(disk.counted());
    assert!(place.get(&disk, "two").is_none());
    let entry = place.get(&disk, "three").expect("there");
    assert_eq!(read_all(&entry.body), body(3, 100));
    assert_eq!(
        (disk.stats().entries, disk.stats().bytes),
        (Some(1), Some(4096 + NAME))
    );
    let second = Disk::open(place.settings(MIB), place.runtime.handle());
    assert!(
        matches!(second, Err(DiskError::Taken { .. })),
        "the lock came back too"
    );
}

#[test]
fn a_directory_that_fails_is_reported_and_used_again_when_it_works() {
    let place = Place::new();
    let disk = place.open(place.settings(8 * MIB));
    place.put(&disk, "one", b"head", body(1, 100));
    let temporary = place.directory.join("microcache-v1/tmp");
    fs::remove_dir(&temporary).expect("it is empty");
    fs::write(&temporary, b"in the way").expect("a file");
    for _ in 0..9 {
        let put = place.try_put(&disk, "two", b"head", body(1, 100));
        assert!(matches!(put, Err(TierError::Failed(_))), "{put:?}");
    }
    let report = disk.stats().degraded;
    assert!(
        matches!(&report[..], [line] if line.starts_with("writing: Not a directory")),
        "{report:?}"
    );
    assert!(place.get(&disk, "one").is_some(), "reading works");
    fs::remove_file(&temporary).expect("it is there");
    assert_eq!(
        place.put(&disk, "two", b"head", body(1, 100)),
        PutOutcome::Stored
    );
    assert_eq!(disk.stats().degraded, [""; 0]);
    assert_eq!(disk.stats().bytes, Some(2 * (4096 + NAME)));
}

#[test]
fn while_nothing_works_it_is_not_tried_for_every_request() {
    let place = Place::new();
    let disk = place.open(DiskSettings {
        pause: HOUR,
        ..place.settings(8 * MIB)
    });
    let temporary = place.directory.join("microcache-v1/tmp");
    fs::remove_dir(&temporary).expect("it is empty");
    fs::write(&temporary, b"in the way").expect("a file");
    let errors = [(); 5].map(|()| place.try_put(&disk, "one", b"head", body(1, 1)).err());
    assert!(matches!(&errors[..3], [Some(TierError::Failed(_)), ..]));
    assert_eq!(errors[3..], [Some(TierError::Down), Some(TierError::Down)]);
}

#[test]
fn a_full_disk_is_reported_and_used_again_when_there_is_room() {
    if let Some(directory) = std::env::var_os(ROLE) {
        return meet_a_full_disk(&Place::at(directory.into()));
    }
    let place = Place::new();
    let test = "a_full_disk_is_reported_and_used_again_when_there_is_room";
    // In blocks of 512 or 1,024 bytes, less than is written.
    let mut child = start_child(test, &place.directory, "trap '' XFSZ; ulimit -S -f 256;");
    assert!(child.wait().success());
    child.output_with("it works again");
}

fn meet_a_full_disk(place: &Place) {
    let disk = place.open(place.settings(64 * MIB));
    assert_eq!(
        place.put(&disk, "small", b"head", body(1, 10_000)),
        PutOutcome::Stored
    );
    let put = place.try_put(&disk, "large", b"head", body(1, 5_000_000));
    assert!(matches!(put, Err(TierError::Failed(_))), "{put:?}");
    let report = disk.stats().degraded;
    assert!(
        matches!(&report[..], [line] if line.starts_with("writing: File too large")),
        "{report:?}"
    );
    assert!(place.get(&disk, "small").is_some());
    assert!(place.get(&disk, "large").is_none());
    assert_eq!(
        (place.temporaries(), disk.stats().bytes),
        (0, Some(12_288 + NAME))
    );
    let limit = getrlimit(Resource::Fsize);
    setrlimit(
        Resource::Fsize,
        Rlimit {
            current: limit.maximum,
            ..limit
        },
    )
    .expect("our own limit");
    assert_eq!(
        place.put(&disk, "large", b"head", body(1, 5_000_000)),
        PutOutcome::Stored
    );
    assert_eq!(disk.stats().degraded, [""; 0]);
    println!("it works again");
}

#[test]
fn killed_at_any_moment_it_never_has_a_torn_entry() {
    const ROUNDS: u64 = 25;
    if let Some(directory) = std::env::var_os(ROLE) {
        write_until_killed(&Place::at(directory.into()));
    }
    let mut place = Place::new();
    let mut found = 0;
    for round in 0..ROUNDS {
        let test = "killed_at_any_moment_it_never_has_a_torn_entry";
        let mut child = start_child(test, &place.directory, "");
        child.ready("its writes", |output| {
            let writes = output.matches("written").count() as u64;
            (writes > round * 7 % 90).then_some(())
        });
        child.kill();
        found += check_after_a_kill(&mut place);
    }
    assert!(
        found > ROUNDS * 5,
        "there was next to nothing to check: {found}"
    );
}

const KEYS: u64 = 60;
const KILLED_CAPACITY: u64 = 4 * MIB;

fn write_until_killed(place: &Place) -> ! {
    let disk = place.open(place.settings(KILLED_CAPACITY));
    let start = u64::from(std::process::id()) << 32;
    for version in start.. {
        // The process id can be large enough for the products to wrap.
        let key = (version.wrapping_mul(7919) % KEYS).to_string();
        let len = (version.wrapping_mul(104_729) % 300_000) as usize;
        let contents = body(version, len);
        let head = Bytes::from(format!("{key} {version} {len}"));
        place.runtime.block_on(async {
            let entry = Entry {
                head: head.clone(),
                body: contents.clone().into(),
            };
            match version % 5 {
                0 => drop(disk.remove(id(&key)).await),
                1 => {
                    let mut spool = disk.spool().expect("one at a time");
                    let _ = spool.write(contents).await;
                    drop(spool.finish(id(&key), head, HOUR).await);
                }
                _ => drop(disk.put(id(&key), entry, HOUR, None).await),
            }
        });
        println!("written");
    }
    unreachable!("nobody writes for so long")
}

/// Number of entries, all of them verified.
fn check_after_a_kill(place: &mut Place) -> u64 {
    let disk = place.open_when_free(&place.settings(KILLED_CAPACITY));
    assert_eq!(place.temporaries(), 0);
    let mut found = 0;
    for key in 0..KEYS {
        let Some(entry) = place.get(&disk, &key.to_string()) else {
            continue;
        };
        let head = String::from_utf8(entry.head.to_vec()).expect("as it was written");
        let numbers: Vec<u64> = head
            .split(' ')
            .map(|word| word.parse().expect("a number"))
            .collect();
        assert_eq!((numbers[0], numbers.len()), (key, 3));
        assert_eq!(read_all(&entry.body), body(numbers[1], numbers[2] as usize));
        found += 1;
    }
    place.runtime.block_on(disk.counted());
    assert_eq!(
        (disk.stats().corrupt, disk.stats().entries),
        (0, Some(found))
    );
    assert!(place.used().0 <= KILLED_CAPACITY);
    drop(disk);
    place.start_runtime_anew();
    found
}

/// A file system without blocking reads, and the one used by most tests.
fn places() -> [Place; 2] {
    [Place::of(Folder::absent_in("/dev/shm")), Place::new()]
}

/// Returns whether files there are read without blocking; not on network file systems and FUSE.
fn is_at_hand_in(place: &Place) -> bool {
    let found = rustix::fs::statfs(&place.directory).expect("a file system");
    [0x0102_1994, 0xEF53, 0x5846_5342, 0x9123_683E, 0xF2F5_2010].contains(&found.f_type)
}

#[test]
fn records_in_the_page_cache_are_read_at_once() {
    let sizes = [0, 1, 4000, 16_384, 16_385, 57_000, 131_072, 131_073];
    for mut place in places() {
        let settings = place.settings(64 * MIB);
        let disk = place.open(settings.clone());
        for size in sizes {
            place.put(&disk, &size.to_string(), &body(1, size / 9), body(2, size));
        }
        // A file just written is open; after a restart none is.
        let disk = place.reopen(disk, &settings);
        place.runtime.block_on(disk.counted());
        for size in sizes {
            let found = disk.try_get(id(&size.to_string()));
            let wanted = is_at_hand_in(&place) && size <= 131_072;
            assert_eq!(found.is_some(), wanted, "{size} in {:?}", place.directory);
            let Some(entry) = found else { continue };
            assert_eq!(entry.head, body(1, size / 9));
            assert_eq!(read_all(&entry.body), body(2, size));
            let in_file = matches!(&entry.body, Content::File(file) if file.verified().is_some());
            assert_eq!(in_file, size > 16_384, "{size}");
        }
        assert!(disk.try_get(id("missing")).is_none());
        // Once open, a large entry is available without blocking everywhere.
        place.get(&disk, "131073").expect("there");
        let open = disk.try_get(id("131073")).expect("open");
        assert_eq!(read_all(&open.body), body(2, 131_073));
    }
}

#[test]
fn removed_and_replaced_records_are_not_read_at_once() {
    for place in places() {
        let disk = place.open(place.settings(MIB));
        for size in [2000, 40_000] {
            place.put(&disk, "key", b"old", body(1, size));
            let _ = disk.try_get(id("key"));
            place.put(&disk, "key", b"new", body(2, size));
            if let Some(entry) = disk.try_get(id("key")) {
                assert_eq!(entry.head, &b"new"[..]);
                assert_eq!(read_all(&entry.body), body(2, size));
            }
            place
                .runtime
                .block_on(disk.remove(id("key")))
                .expect("removed");
            assert!(disk.try_get(id("key")).is_none());
        }
        assert_eq!(place.used().1, 0);
    }
}

#[test]
fn damaged_records_are_not_read_at_once() {
    for mut place in places() {
        let settings = place.settings(MIB);
        let disk = place.open(settings.clone());
        let damages = [2000, 40_000].map(|size| [0, 30, 62, 100, size].map(|at| (size, at)));
        let key = |(size, at)| format!("{size} {at}");
        for (size, at) in damages.into_iter().flatten() {
            place.put(&disk, &key((size, at)), &body(3, 50), body(1, size));
            let path = place.path(&key((size, at)));
            let mut bytes = fs::read(&path).expect("a file");
            bytes[at] ^= 1;
            let file = fs::File::options().write(true).open(&path).expect("a file");
            let expires = file.metadata().and_then(|metadata| metadata.modified());
            std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).expect("written");
            file.set_modified(expires.expect("a time"))
                .expect("as before");
        }
        let disk = place.reopen(disk, &settings);
        place.runtime.block_on(disk.counted());
        // Non-blocking lookups skip the damaged entry; a blocking one removes it.
        for damaged in damages.into_iter().flatten() {
            let key = key(damaged);
            assert!(disk.try_get(id(&key)).is_none(), "{key}");
            let found = place.try_get(&disk, &key);
            assert!(
                matches!(found, Err(TierError::Corrupt(_))),
                "{key}: {found:?}"
            );
        }
        assert_eq!(disk.stats().corrupt, 10);
    }
}

#[test]
fn nothing_else_in_place_of_a_file_is_at_hand() {
    for place in places() {
        let disk = place.open(place.settings(MIB));
        place.put(&disk, "other", b"head", body(1, 2000));
        let other = place.path("other");
        let planted: [&dyn Fn(&Path); 4] = [
            &|path| std::os::unix::fs::symlink(&other, path).expect("a link"),
            &|path| {
                let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
                rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0)
                    .expect("a pipe");
            },
            &|path| fs::write(path, b"").expect("a file"),
            &|path| fs::create_dir(path).expect("a directory"),
        ];
        for plant in planted {
            place.put(&disk, "key", b"head", body(2, 2000));
            fs::remove_file(place.path("key")).expect("a file");
            plant(&place.path("key"));
            assert!(disk.try_get(id("key")).is_none());
            let found = place.try_get(&disk, "key");
            assert!(
                matches!(found, Ok(None) | Err(TierError::Corrupt(_))),
                "{found:?}"
            );
        }
        fs::remove_dir_all(&place.directory).expect("removed");
        assert!(disk.try_get(id("other")).is_none());
    }
}

#[test]
fn records_outside_the_page_cache_are_not_read_at_once() {
    for place in places() {
        let disk = place.open(place.settings(MIB));
        place.runtime.block_on(disk.counted());
        place.put(&disk, "key", b"head", body(1, 9000));
        let file = fs::File::open(place.path("key")).expect("a file");
        file.sync_all().expect("written");
        let lies_in_memory =
            rustix::fs::statfs(&place.directory).is_ok_and(|found| found.f_type == 0x0102_1994);
        let is_at_hand = || {
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("advised");
            disk.try_get(id("key")).is_some()
        };
        if lies_in_memory {
            assert!(is_at_hand());
        } else {
            // The non-blocking read starts read-ahead, which a fast disk may complete before it returns.
            eventually("a read that would block", || (!is_at_hand()).then_some(()));
        }
        let entry = place.get(&disk, "key").expect("there");
        assert_eq!(read_all(&entry.body), body(1, 9000));
        assert_eq!(disk.try_get(id("key")).is_some(), is_at_hand_in(&place));
    }
}

#[test]
fn to_look_at_an_entry_leaves_its_file_as_it_was() {
    let place = Place::new();
    let disk = place.open(place.settings(MIB));
    place.put(&disk, "key", b"head", body(1, 9000));
    let accessed = || {
        fs::metadata(place.path("key"))
            .expect("a file")
            .accessed()
            .expect("a time")
    };
    let before = accessed();
    place.get(&disk, "key").expect("there");
    let _ = disk.try_get(id("key"));
    assert_eq!(accessed(), before);
}
