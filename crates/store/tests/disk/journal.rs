//! Journal: durability across restarts and kills, and reports of damage.

use bytes::Bytes;
use microcache_store::disk::JOURNAL_LIMIT;
use microcache_store::{JournalRecords, LocalTier, TierError};

use super::*;

impl Place {
    fn append(&self, disk: &Disk, record: &[u8]) -> Result<(), TierError> {
        let record = Bytes::copy_from_slice(record);
        self.runtime.block_on(disk.append_to_journal(vec![record]))
    }

    fn replace(&self, disk: &Disk, records: &[&'static [u8]]) -> Result<(), TierError> {
        let records = records.iter().copied().map(Bytes::from_static).collect();
        self.runtime.block_on(disk.replace_journal(records))
    }

    fn load(&self, disk: &Disk) -> JournalRecords {
        let loaded = self.runtime.block_on(disk.load_journal());
        loaded.expect("a working disk")
    }

    fn journal(&self) -> PathBuf {
        self.directory.join("microcache-v1/journal")
    }
}

#[test]
fn records_outlive_the_process_in_their_order() {
    let mut place = Place::new();
    let settings = place.settings(MIB);
    let mut disk = place.open(settings.clone());
    assert!(place.load(&disk).records.is_empty());
    place.append(&disk, b"one").expect("it is written");
    place.append(&disk, b"").expect("it is written");
    disk = place.reopen(disk, &settings);
    // Without a preceding load.
    place.append(&disk, b"three").expect("it is written");
    let loaded = place.load(&disk);
    assert_eq!(loaded.records, [&b"one"[..], b"", b"three"]);
    assert!(!loaded.is_damaged);
    place.replace(&disk, &[b"only"]).expect("it is written");
    place.append(&disk, b"next").expect("it is written");
    disk = place.reopen(disk, &settings);
    assert_eq!(place.load(&disk).records, [&b"only"[..], b"next"]);
    place.runtime.block_on(disk.counted());
    assert_eq!(place.load(&disk).records.len(), 2, "nobody cleared it away");
}

#[test]
fn a_torn_record_is_written_over() {
    let mut place = Place::new();
    let settings = place.settings(MIB);
    let mut disk = place.open(settings.clone());
    place.append(&disk, b"one").expect("it is written");
    place.append(&disk, b"a longer one").expect("it is written");
    let whole = fs::read(place.journal()).unwrap();
    fs::write(place.journal(), &whole[..whole.len() - 3]).unwrap();
    disk = place.reopen(disk, &settings);
    place.append(&disk, b"two").expect("it is written");
    disk = place.reopen(disk, &settings);
    let loaded = place.load(&disk);
    assert_eq!(loaded.records, [&b"one"[..], b"two"]);
    assert!(!loaded.is_damaged);
    assert!(disk.stats().degraded.is_empty());
}

#[test]
fn a_damaged_journal_is_set_aside_and_reported() {
    let mut place = Place::new();
    let settings = place.settings(MIB);
    let mut disk = place.open(settings.clone());
    for record in [&b"one"[..], b"two", b"three"] {
        place.append(&disk, record).expect("it is written");
    }
    let mut bytes = fs::read(place.journal()).unwrap();
    let at = bytes.windows(3).position(|part| part == b"two").unwrap();
    bytes[at] ^= 1;
    fs::write(place.journal(), &bytes).unwrap();
    disk = place.reopen(disk, &settings);
    let loaded = place.load(&disk);
    assert_eq!(loaded.records, [&b"one"[..]]);
    assert!(loaded.is_damaged);
    let aside = place.directory.join("microcache-v1/journal.damaged");
    assert_eq!(fs::read(aside).unwrap(), bytes);
    assert!(disk.stats().degraded[0].contains("journal"));
    place.append(&disk, b"four").expect("it is written");
    let again = place.load(&disk);
    assert_eq!(again.records, [&b"one"[..], b"four"]);
    assert!(!again.is_damaged);
}

#[test]
fn it_does_not_grow_beyond_its_bound() {
    let place = Place::new();
    let disk = place.open(place.settings(MIB));
    let half = vec![7; JOURNAL_LIMIT as usize / 2];
    place.append(&disk, &half).expect("it is written");
    assert!(place.append(&disk, &half).is_err());
    let many = vec![Bytes::from(half.clone()); 2];
    assert!(place.runtime.block_on(disk.replace_journal(many)).is_err());
    assert_eq!(place.load(&disk).records, [half]);
    assert!(fs::metadata(place.journal()).unwrap().len() <= JOURNAL_LIMIT);
}

#[test]
fn a_directory_that_vanishes_takes_it_along() {
    let place = Place::new();
    let disk = place.open(place.settings(MIB));
    place.append(&disk, b"one").expect("it is written");
    fs::remove_dir_all(&place.directory).unwrap();
    place.append(&disk, b"two").expect("it is written");
    assert_eq!(place.load(&disk).records, [&b"two"[..]]);
}

/// A child process appends numbers and prints each that is written; all of them survive its kill.
#[test]
fn written_records_survive_a_kill() {
    const TEST: &str = "journal::written_records_survive_a_kill";
    if let Some(directory) = std::env::var_os(ROLE) {
        let place = Place::at(directory.into());
        let disk = place.open_when_free(&place.settings(MIB));
        for number in 0..u64::MAX {
            let appended = place.append(&disk, &number.to_le_bytes());
            appended.expect("it is written");
            println!("{number}");
        }
    }
    let place = Place::new();
    let settings = place.settings(MIB);
    let mut child = start_child(TEST, &place.directory, "");
    let said = child.ready("some writes", |output| {
        let mut numbers = output.lines().filter_map(|line| line.parse::<u64>().ok());
        numbers.find(|number| *number >= 20)
    });
    child.kill();
    let disk = place.open_when_free(&settings);
    let loaded = place.load(&disk);
    assert!(!loaded.is_damaged);
    let numbers: Vec<_> = (0..loaded.records.len() as u64)
        .map(|number| Bytes::copy_from_slice(&number.to_le_bytes()))
        .collect();
    assert_eq!(loaded.records, numbers);
    assert!(numbers.len() as u64 > said);
}
