//! Capacity of a shared directory.

use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use microcache_store::{DirectorySettings, PutOutcome, Tier};

use crate::place::{LONG, Place, entry, found, id, open_with};

const MIB: u64 = 1024 * 1024;

/// Total size of all records.
fn taken(place: &Place) -> u64 {
    let is_record = |name: &String| name.len() == 32;
    let records = place.names().into_iter().filter(is_record);
    records
        .map(|name| {
            let file = place.home().join(&name[..2]).join(&name);
            let length = fs::metadata(file).expect("it is there").len();
            length.div_ceil(4096) * 4096
        })
        .sum()
}

fn used_ago(place: &Place, number: usize, minutes: u64) {
    let file = File::options()
        .write(true)
        .open(place.file(id(number)))
        .unwrap();
    let then = SystemTime::now() - Duration::from_secs(60 * minutes);
    file.set_modified(then).unwrap();
}

#[tokio::test]
async fn the_least_recently_used_records_are_evicted() {
    let place = Place::new();
    let settings = || DirectorySettings {
        capacity: 4 * MIB,
        ..place.settings()
    };
    let tier = open_with(settings());
    let body = vec![7; 99_000];
    for number in 0..40 {
        tier.put(id(number), entry(b"head", &body), LONG, None)
            .await
            .unwrap();
        used_ago(&place, number, 100 - number as u64);
    }
    // A read counts as a use.
    assert!(found(tier.get(id(0)).await).is_some());
    for number in 40..200 {
        // Another process has its own handle, but the capacity is that of the directory.
        let tier = open_with(settings());
        let stored = tier
            .put(id(number), entry(b"head", &body), LONG, None)
            .await;
        assert_eq!(stored, Ok(PutOutcome::Stored));
        assert!(taken(&place) <= 4 * MIB);
        if number == 42 {
            assert!(found(tier.get(id(0)).await).is_some(), "it was used");
            assert!(found(tier.get(id(1)).await).is_none(), "it was not");
        }
    }
    assert!(found(tier.get(id(199)).await).is_some());
    assert!(taken(&place) > 3 * MIB);
}

#[tokio::test]
async fn records_that_are_too_large_are_refused() {
    let place = Place::new();
    let tier = open_with(DirectorySettings {
        capacity: MIB,
        max_object: MIB,
        ..place.settings()
    });
    let body = vec![7; 600_000];
    let refused = tier.put(id(1), entry(b"head", &body), LONG, None).await;
    assert_eq!(refused, Ok(PutOutcome::Refused));
    let body = vec![7; 2_000_000];
    let refused = tier.put(id(1), entry(b"head", &body), LONG, None).await;
    assert_eq!(refused, Ok(PutOutcome::Refused));
    assert_eq!(tier.stats().refused, 1);
}

#[tokio::test]
async fn leftover_files_are_removed_for_room_and_foreign_ones_stay() {
    let place = Place::new();
    let tier = place.open();
    tier.put(id(1), entry(b"head", b"body"), LONG, None)
        .await
        .unwrap();
    let folder = place.file(id(1)).parent().unwrap().to_owned();
    let old = SystemTime::now() - Duration::from_hours(1);
    let put = |name: String, time: SystemTime| {
        let file = File::create(folder.join(name)).unwrap();
        file.set_modified(time).unwrap();
    };
    put(format!("{}.0123456789abcdef.new", id(1)), old);
    put(format!("{}.claim", id(1)), old);
    put(format!("{}.fedcba9876543210.new", id(1)), SystemTime::now());
    put("notes".to_owned(), old);
    // The total is lost and must be recounted.
    fs::remove_file(place.home().join("size")).unwrap();
    tier.put(id(2), entry(b"head", b"body"), LONG, None)
        .await
        .unwrap();
    let mut left: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.starts_with(&id(2).to_string()))
        .collect();
    left.sort();
    let mut expected = vec![
        id(1).to_string(),
        format!("{}.fedcba9876543210.new", id(1)),
        "lock".to_owned(),
        "notes".to_owned(),
    ];
    expected.sort();
    assert_eq!(left, expected);
    assert!(found(tier.get(id(1)).await).is_some());
}
