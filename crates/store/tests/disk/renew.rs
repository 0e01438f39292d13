//! In-place renewal of heads.

use super::*;

/// Size of a body whose head is renewed in place.
const LARGE: usize = 1_500_000;

impl Place {
    fn renew(&self, disk: &Disk, key: &str, from: &Entry, head: &str) -> PutOutcome {
        let head = Bytes::copy_from_slice(head.as_bytes());
        let renewed = disk.renew(id(key), from.head.clone(), head, HOUR, None);
        self.runtime.block_on(renewed).expect("a working disk")
    }

    /// Head of the entry, which must have this body.
    fn head_of(&self, disk: &Disk, key: &str, body: &Bytes) -> Bytes {
        let entry = self.get(disk, key).expect("it is there");
        assert!(read_all(&entry.body) == *body);
        entry.head
    }
}

#[test]
fn a_large_body_stays_and_gets_another_head() {
    let mut place = Place::new();
    let settings = place.settings(64 * MIB);
    let mut disk = place.open(settings.clone());
    let body = body(1, LARGE);
    place.put(&disk, "key", b"head 0", body.clone());
    let before = fs::metadata(place.path("key")).unwrap();
    for number in 1..6 {
        let from = place.get(&disk, "key").expect("it is there");
        // Longer and shorter heads in turn.
        let head = format!("head {number}{}", "x".repeat(number % 2 * 5000));
        assert_eq!(place.renew(&disk, "key", &from, &head), PutOutcome::Stored);
        assert_eq!(place.head_of(&disk, "key", &body), head);
        disk = place.reopen(disk, &settings);
        assert_eq!(place.head_of(&disk, "key", &body), head);
        assert_eq!(
            place.renew(&disk, "key", &from, "an old one"),
            PutOutcome::Superseded
        );
    }
    let after = fs::metadata(place.path("key")).unwrap();
    assert_eq!((before.ino(), before.len()), (after.ino(), after.len()));
    place.runtime.block_on(disk.counted());
    assert_eq!(disk.stats().bytes, Some(place.used().0));
    assert_eq!(disk.stats().corrupt, 0);
}

#[test]
fn a_body_that_was_spooled_has_another_head() {
    let place = Place::new();
    let disk = place.open(place.settings(64 * MIB));
    let body = body(3, 100_000);
    let mut spool = disk.spool().expect("room for one");
    let written = place.runtime.block_on(spool.write(body.clone()));
    written.expect("a write");
    let head = Bytes::from_static(b"old");
    let kept = place.runtime.block_on(spool.finish(id("key"), head, HOUR));
    kept.expect("it is kept");
    let inode = fs::metadata(place.path("key")).unwrap().ino();
    let from = place.get(&disk, "key").expect("it is there");
    assert_eq!(place.renew(&disk, "key", &from, "new"), PutOutcome::Stored);
    assert_eq!(place.head_of(&disk, "key", &body), "new");
    assert_eq!(fs::metadata(place.path("key")).unwrap().ino(), inode);
}

#[test]
fn where_there_is_no_room_before_the_body_the_file_is_written_anew() {
    let mut place = Place::new();
    let settings = place.settings(64 * MIB);
    let mut disk = place.open(settings.clone());
    let (small, large) = (body(1, 100_000), body(2, LARGE));
    place.put(&disk, "small", b"old", small.clone());
    place.put(&disk, "large", b"old", large.clone());
    let long = "x".repeat(40_000);
    for (key, body, head) in [("small", &small, "new"), ("large", &large, &long)] {
        let from = place.get(&disk, key).expect("it is there");
        assert_eq!(place.renew(&disk, key, &from, head), PutOutcome::Stored);
        assert_eq!(place.head_of(&disk, key, body), head);
    }
    disk = place.reopen(disk, &settings);
    assert_eq!(place.head_of(&disk, "small", &small), "new");
    assert_eq!(place.head_of(&disk, "large", &large), long);
}

#[test]
fn a_removed_record_is_not_renewed() {
    let place = Place::new();
    let disk = place.open(place.settings(64 * MIB));
    for length in [100_000, LARGE] {
        place.put(&disk, "key", b"old", body(1, length));
        let from = place.get(&disk, "key").expect("it is there");
        place
            .runtime
            .block_on(disk.remove(id("key")))
            .expect("it is removed");
        assert_eq!(
            place.renew(&disk, "key", &from, "new"),
            PutOutcome::Superseded
        );
        assert!(place.get(&disk, "key").is_none());
        // A store that began before the renewal.
        place.put(&disk, "key", b"old", body(1, length));
        let from = place.get(&disk, "key").expect("it is there");
        let renewal = disk.renew(id("key"), from.head, Bytes::from_static(b"new"), HOUR, None);
        place
            .runtime
            .block_on(disk.remove(id("key")))
            .expect("it is removed");
        let renewed = place.runtime.block_on(renewal);
        assert_eq!(renewed, Ok(PutOutcome::Superseded));
        assert!(place.get(&disk, "key").is_none());
        assert!(!place.path("key").exists());
    }
}

/// A killed process leaves a partial write.
#[test]
fn an_interrupted_renewal_leaves_the_old_head_or_the_new_one() {
    let mut place = Place::new();
    let settings = place.settings(64 * MIB);
    let mut disk = place.open(settings.clone());
    let body = body(4, LARGE);
    place.put(&disk, "key", b"head 0", body.clone());
    for number in 1..4 {
        let before = fs::read(place.path("key")).unwrap();
        let from = place.get(&disk, "key").expect("it is there");
        let head = format!("head {number}");
        assert_eq!(place.renew(&disk, "key", &from, &head), PutOutcome::Stored);
        let after = fs::read(place.path("key")).unwrap();
        let modified = fs::metadata(place.path("key")).unwrap().modified().unwrap();
        let changed: Vec<_> = (0..before.len())
            .filter(|&at| before[at] != after[at])
            .collect();
        let mut torn = before;
        // The second position is erased after the first one has been written.
        for at in changed {
            torn[at] = after[at];
            fs::write(place.path("key"), &torn).unwrap();
            let file = File::options().write(true).open(place.path("key"));
            file.unwrap().set_modified(modified).unwrap();
            disk = place.reopen(disk, &settings);
            let found = place.head_of(&disk, "key", &body);
            assert!(found == head || found == from.head, "{at}: {found:?}");
        }
        assert_eq!(place.head_of(&disk, "key", &body), head);
    }
}

#[test]
fn killed_at_any_moment_a_renewal_leaves_one_of_the_heads() {
    const TEST: &str = "renew::killed_at_any_moment_a_renewal_leaves_one_of_the_heads";
    let contents = body(5, LARGE);
    if let Some(directory) = std::env::var_os(ROLE) {
        let place = Place::at(directory.into());
        let disk = place.open_when_free(&place.settings(64 * MIB));
        for number in 0..u64::MAX {
            let from = place.get(&disk, "key").expect("it is there");
            let head = format!("{number} {}", "x".repeat(number as usize % 7 * 3000));
            assert_eq!(place.renew(&disk, "key", &from, &head), PutOutcome::Stored);
            println!("{number}");
        }
    }
    let mut place = Place::new();
    let settings = place.settings(64 * MIB);
    let disk = place.open(settings.clone());
    place.put(&disk, "key", b"first", contents.clone());
    drop(disk);
    place.start_runtime_anew();
    for round in 0..10 {
        let mut child = start_child(TEST, &place.directory, "");
        let said = child.ready("some writes", |output| {
            let mut numbers = output.lines().filter_map(|line| line.parse::<u64>().ok());
            numbers.find(|number| *number >= 3 + round)
        });
        child.kill();
        let disk = place.open_when_free(&settings);
        let head = place.head_of(&disk, "key", &contents);
        let head = std::str::from_utf8(&head).unwrap();
        let (number, padding) = head.split_once(' ').expect("a number");
        let number: u64 = number.parse().unwrap();
        assert_eq!(padding.len(), number as usize % 7 * 3000);
        assert!(number >= said);
        drop(disk);
        place.start_runtime_anew();
    }
}
