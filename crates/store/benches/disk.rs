//! Benchmark of a disk tier with a million small objects: cost of a start, memory, and adherence to the
//! capacity.
//!
//!     cargo bench -p microcache-store --bench disk -- [--cold] [COUNT [DIRECTORY]]
//!
//! Requires 4 KiB of disk per object. With `--cold` (root only), the page cache is dropped before the
//! restart.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use microcache_store::disk::{Disk, DiskSettings};
use microcache_store::{Entry, EntryId, PutOutcome, Tier};
use tokio::runtime::{Builder, Runtime};

const OBJECT: usize = 2048;
const HEAD: usize = 400;
/// Space of an object: a block and a directory entry.
const ON_DISK: u64 = BLOCK + 80;
const BLOCK: u64 = 4096;
const WRITERS: u64 = 4;
const DAY: Duration = Duration::from_hours(24);
/// Argument of the child process that performs the restart.
const RESTART: &str = "--restart";

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut take = |wanted: &str| {
        let before = arguments.len();
        arguments.retain(|argument| argument != wanted);
        arguments.len() < before
    };
    let (_, is_restart, is_cold) = (take("--bench"), take(RESTART), take("--cold"));
    let count = arguments
        .first()
        .map_or(1_000_000, |it| it.parse().expect("a number"));
    let directory = arguments.get(1).map_or_else(
        || std::env::temp_dir().join("microcache-bench-disk"),
        PathBuf::from,
    );
    if is_restart {
        return after_restart(&directory, count);
    }
    fill(&directory, count);
    if is_cold {
        forget_what_was_read();
    }
    let this = std::env::current_exe().expect("a path");
    let status = Command::new(this)
        .args([&count.to_string(), RESTART])
        .arg(&directory)
        .status();
    assert!(status.expect("a process").success());
    fs::remove_dir_all(&directory).expect("what we made");
}

fn fill(directory: &Path, count: u64) {
    let runtime = runtime();
    let disk = open(directory, count * 2, &runtime);
    let (before, began) = (resident(), Instant::now());
    put_all(&runtime, &disk, 0, count);
    let each = began.elapsed() / u32::try_from(count).expect("not that many");
    println!("objects                          {count}");
    println!("write, each                      {each:?}");
    println!(
        "memory while writing, each       {} bytes",
        (resident() - before) / count
    );
}

fn after_restart(directory: &Path, count: u64) {
    let runtime = runtime();
    let (before, began) = (resident(), Instant::now());
    let disk = open(directory, count, &runtime);
    let first = get(&runtime, &disk, count / 2);
    println!("start to first hit               {:?}", began.elapsed());
    assert!(first, "it is there");
    runtime.block_on(disk.counted());
    println!("start to everything counted      {:?}", began.elapsed());
    println!(
        "memory after the count, each     {} bytes",
        (resident() - before) / count
    );
    assert_eq!(disk.stats().entries, Some(count));

    let began = Instant::now();
    let absent = (count..count + 1_000_000).filter(|&number| get(&runtime, &disk, number));
    assert_eq!(absent.count(), 0);
    println!(
        "miss, each                       {:?}",
        began.elapsed() / 1_000_000
    );
    let hits = count.min(100_000);
    for time in ["the first time", "again"] {
        let began = Instant::now();
        let found = (0..hits).filter(|number| get(&runtime, &disk, number * 7919 % count));
        assert_eq!(found.count() as u64, hits);
        let each = began.elapsed() / u32::try_from(hits).expect("not that many");
        println!("hit, one by one, {time:14}  {each:?}");
    }

    let more = count / 5;
    put_all(&runtime, &disk, count, count + more);
    let capacity = count * ON_DISK;
    let used = used(directory);
    println!("room for                         {capacity} bytes");
    println!("taken after {more} more          {used} bytes");
    let reckoned = disk.stats().bytes.expect("the tier knows");
    println!("as the tier reckons              {reckoned} bytes");
    assert!(
        used.abs_diff(capacity) * 100 <= capacity * 2,
        "the bound is kept within 2 %"
    );
}

fn runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime")
}

fn open(directory: &Path, room_for: u64, runtime: &Runtime) -> Arc<Disk> {
    let settings = DiskSettings {
        max_files: room_for,
        read_deadline: Duration::from_mins(1),
        ..DiskSettings::new(directory, room_for * ON_DISK)
    };
    Disk::open(settings, runtime.handle()).expect("an open disk")
}

fn put_all(runtime: &Runtime, disk: &Arc<Disk>, from: u64, to: u64) {
    runtime.block_on(async {
        let writers = (0..WRITERS).map(|writer| {
            let disk = Arc::clone(disk);
            tokio::spawn(async move {
                for number in (from + writer..to).step_by(WRITERS as usize) {
                    let put = disk.put(id(number), entry(number), DAY, None).await;
                    assert_eq!(put, Ok(PutOutcome::Stored));
                }
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.expect("a writer that finished");
        }
    });
}

fn get(runtime: &Runtime, disk: &Disk, number: u64) -> bool {
    let got = runtime.block_on(disk.get(id(number)));
    got.expect("a working disk").is_some()
}

fn id(number: u64) -> EntryId {
    EntryId::of(&number.to_le_bytes())
}

fn entry(number: u64) -> Entry {
    Entry {
        head: vec![number as u8; HEAD].into(),
        body: Bytes::from(vec![number as u8; OBJECT]).into(),
    }
}

/// Memory of this process, in bytes.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.parse::<u64>().ok())
        .expect("a number")
        * 1024
}

/// Drops the page cache, which would make the restart look faster than after a reboot.
fn forget_what_was_read() {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").expect("only root may");
}

/// Space occupied by the directory tree.
fn used(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).expect("a directory");
    let own = fs::metadata(directory).expect("a directory").len();
    let below = entries.map(|entry| {
        let entry = entry.expect("an entry");
        let metadata = entry.metadata().expect("it is still there");
        if metadata.is_dir() {
            used(&entry.path())
        } else {
            metadata.len().div_ceil(BLOCK) * BLOCK
        }
    });
    own + below.sum::<u64>()
}
