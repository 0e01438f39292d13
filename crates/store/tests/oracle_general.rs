//! The benchmark of the eviction policy reads traces of the public format oracleGeneral.

#[path = "../benches/eviction/oracle_general.rs"]
mod oracle_general;
#[path = "../benches/eviction/random.rs"]
mod random;
#[path = "../benches/eviction/trace.rs"]
#[expect(dead_code, reason = "the benchmark makes and summarizes traces, too")]
mod trace;

use std::io;
use std::path::Path;

use microcache_testkit::Folder;
use trace::Trace;

/// The bytes of a record: time, id, size, and the number of the next request.
fn record(seconds: u32, id: u64, size: u32, next: i64) -> Vec<u8> {
    let numbers: [&[u8]; 4] = [
        &seconds.to_le_bytes(),
        &id.to_le_bytes(),
        &size.to_le_bytes(),
        &next.to_le_bytes(),
    ];
    numbers.concat()
}

/// Reads a trace of these bytes, from the file `folder`/trace.
fn read(folder: &Folder, bytes: &[u8]) -> io::Result<Trace> {
    oracle_general::read(Path::new(&folder.write("trace", bytes)))
}

fn refusal(folder: &Folder, bytes: &[u8]) -> String {
    let error = read(folder, bytes).err().expect("it is refused");
    error.to_string()
}

#[test]
fn records_are_requests_for_objects_by_their_ids() {
    let bytes = [
        record(1, u64::MAX, 100, 3),
        record(1, 1 << 32, u32::MAX, -1),
        record(2, u64::MAX, 200, 5),
        record(3, 0, 1, -1),
        record(9, u64::MAX, 100, i64::MAX),
    ];
    let trace = read(&Folder::new(), &bytes.concat()).expect("a trace");
    assert_eq!(trace.requests, [0, 1, 0, 2, 0]);
    assert_eq!(trace.catalogue.sizes, [100, u32::MAX, 1], "the first ones");
    let next = [2, usize::MAX, 4, usize::MAX, usize::MAX];
    assert_eq!(trace.next_requests(), next);
    let costs = &trace.catalogue.costs;
    assert_eq!(costs.len(), 3);
    let is_possible = |cost| (1_000..=2_000_000).contains(cost);
    assert!(costs.iter().all(is_possible), "{costs:?}");
}

#[test]
fn a_trace_that_was_written_is_read_as_it_was() {
    let folder = Folder::new();
    let bytes = [
        record(0, 7, 10, 3),
        record(0, 8, 20, -1),
        record(0, 7, 10, -1),
    ];
    let trace = read(&folder, &bytes.concat()).expect("a trace");
    let copy = folder.file("copy");
    oracle_general::write(Path::new(&copy), &trace).expect("a writable folder");
    // Its objects are numbered from zero.
    let written = [
        record(0, 0, 10, 3),
        record(0, 1, 20, -1),
        record(0, 0, 10, -1),
    ];
    assert_eq!(std::fs::read(&copy).expect("a file"), written.concat());
    let again = oracle_general::read(Path::new(&copy)).expect("a trace");
    assert_eq!(again.requests, trace.requests);
    assert_eq!(again.catalogue.sizes, trace.catalogue.sizes);
}

#[test]
fn a_truncated_file_is_refused_with_the_place_and_the_remedy() {
    let folder = Folder::new();
    let bytes = [record(1, 1, 100, -1), record(2, 2, 100, -1)].concat();
    let file = folder.file("trace");
    for length in [1, 23, 25, 47] {
        let (offset, left) = (length / 24 * 24, length % 24);
        assert_eq!(
            refusal(&folder, &bytes[..length]),
            format!(
                "{file}: the record at byte {offset} ends after {left} of 24 bytes: fetch the file again, and unpack it \
                 (zstd -d) if it is compressed"
            )
        );
    }
}

#[test]
fn a_file_that_is_empty_or_missing_is_refused() {
    let folder = Folder::new();
    let file = folder.file("trace");
    let missing = oracle_general::read(Path::new(&file));
    let missing = missing.err().expect("there is no file").to_string();
    assert!(missing.starts_with(&format!("{file}: ")), "{missing}");
    let without_size = [record(1, 1, 0, 2), record(2, 1, 0, -1)].concat();
    for bytes in [&[][..], &without_size] {
        let empty = refusal(&folder, bytes);
        assert!(
            empty.starts_with(&format!("{file}: no record has a size: ")),
            "{empty}"
        );
    }
}

#[test]
fn requests_of_size_zero_are_left_out() {
    let bytes = [
        record(1, 1, 0, 3),
        record(1, 2, 100, 4),
        record(2, 1, 50, -1),
        record(3, 2, 0, -1),
        record(4, 2, 100, -1),
    ];
    let trace = read(&Folder::new(), &bytes.concat()).expect("a trace");
    assert_eq!(trace.requests, [0, 1, 0]);
    assert_eq!(trace.catalogue.sizes, [100, 50]);
}
