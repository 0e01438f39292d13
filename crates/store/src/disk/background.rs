//! Background task: scan of the directory after a start, and removal of expired entries.

use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::expiry::is_over;
use super::files::EntryFiles;
use super::format::FilePrefix;
use super::index::IndexEntry;
use super::io_pool::IoPool;
use super::layout::DiskLayout;
use crate::dir_handle::{self, DirHandle};
use crate::eviction::FetchCost;
use crate::tier::EntryId;

/// Duty cycle of the scan: it works for this long and then sleeps as long. It need not hurry, since lookups
/// find entries that are not yet indexed.
const SCAN_AT_ONCE: Duration = Duration::from_millis(10);
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// Number of index slots visited per lock acquisition, about ten microseconds.
const SWEEP_AT_ONCE: u32 = 4096;
/// Number of sweeps in which every slot is visited once.
const SWEEPS: u64 = 60;

/// Runs until the tier is dropped.
pub(super) async fn run(files: Weak<EntryFiles>, reading: Arc<IoPool>) {
    let mut hand = 0;
    while let Some(files) = files.upgrade() {
        if !files.is_complete() {
            scan(&files, &reading).await;
        }
        hand = sweep(files, hand).await;
        tokio::time::sleep(SWEEP_EVERY).await;
    }
}

/// Indexes all files. Errors are reported to the health state, and the scan continues.
async fn scan(files: &Arc<EntryFiles>, reading: &IoPool) {
    let mut folder = 0;
    while folder < DiskLayout::FOLDERS {
        let began = Instant::now();
        let files = Arc::clone(files);
        let job = move || scan_for_a_while(&files, folder);
        match tokio::task::spawn_blocking(job).await {
            Ok((next, result)) => {
                folder = next;
                if let Err(error) = result {
                    reading.health.failed(&error);
                }
            }
            Err(_) => return,
        }
        tokio::time::sleep(began.elapsed()).await;
    }
    files.set_complete();
}

fn scan_for_a_while(files: &EntryFiles, first: u32) -> (u32, io::Result<()>) {
    let began = Instant::now();
    let mut result = Ok(());
    if first == 0 {
        result = files.layout.clear_foreign();
    }
    for folder in first..DiskLayout::FOLDERS {
        result = result.and(scan_folder(files, folder));
        if began.elapsed() > SCAN_AT_ONCE {
            return (folder + 1, result);
        }
    }
    (DiskLayout::FOLDERS, result)
}

fn scan_folder(files: &EntryFiles, folder: u32) -> io::Result<()> {
    let Some(open) = files.layout.folder(folder)? else {
        return Ok(());
    };
    for id in files.layout.ids(folder, &open)? {
        files.count(id, || look(&open, id))?;
    }
    Ok(())
}

/// Returns the index entry of a file by its status alone. Its contents are verified on lookup, and its
/// cost stays unknown.
fn look(folder: &DirHandle, id: EntryId) -> io::Result<Option<IndexEntry>> {
    let stat = match folder.stat(&id.to_string()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        stat => stat?,
    };
    let expires = u64::try_from(stat.st_mtime).unwrap_or(0);
    let len = stat.st_size.cast_unsigned();
    let is_usable =
        dir_handle::is_file(&stat) && len >= FilePrefix::LEN as u64 && !is_over(expires);
    Ok(is_usable
        .then(|| IndexEntry::new(id, len, expires, FetchCost::default()))
        .flatten())
}

/// Removes expired entries in the next section of the index, and retries failed removals.
async fn sweep(files: Arc<EntryFiles>, hand: u32) -> u32 {
    let job = move || {
        let slots = files.totals().entries / SWEEPS;
        let (mut hand, mut looked_at) = (hand, 0);
        while looked_at <= slots {
            let (over, next) = files.expired(hand, SWEEP_AT_ONCE);
            for id in over {
                drop(files.forget_expired(id));
            }
            hand = next;
            looked_at += u64::from(SWEEP_AT_ONCE);
        }
        // Stops at the first failure; the next sweep retries.
        let mut condemned = files.condemned().into_iter();
        let _ = condemned.try_for_each(|id| files.finish_removal(id, None));
        hand
    };
    tokio::task::spawn_blocking(job).await.unwrap_or(0)
}
