//! What is done beside the requests: counting what is there after a start, and removing what is
//! over.

use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::crew::Crew;
use super::expiry::is_over;
use super::files::Files;
use super::format::Prefix;
use super::index::Known;
use super::layout::Layout;
use crate::beneath::{self, Folder};
use crate::tier::EntryId;

/// The scan works for so long, and then rests for as long: it may take its time, since what is
/// asked for meanwhile is found without it.
const SCAN_AT_ONCE: Duration = Duration::from_millis(10);
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// So many slots of the index are looked at in one go: some ten microseconds.
const SWEEP_AT_ONCE: u32 = 4096;
/// Within so many sweeps every slot is looked at.
const SWEEPS: u64 = 60;

/// Runs for as long as the disk is in use.
pub(super) async fn run(files: Weak<Files>, reading: Arc<Crew>) {
    let mut hand = 0;
    while let Some(files) = files.upgrade() {
        if !files.is_complete() {
            scan(&files, &reading).await;
        }
        hand = sweep(files, hand).await;
        tokio::time::sleep(SWEEP_EVERY).await;
    }
}

/// Counts all files. Errors are reported, and the rest is counted.
async fn scan(files: &Arc<Files>, reading: &Crew) {
    let mut folder = 0;
    while folder < Layout::FOLDERS {
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

fn scan_for_a_while(files: &Files, first: u32) -> (u32, io::Result<()>) {
    let began = Instant::now();
    let mut result = Ok(());
    if first == 0 {
        result = files.layout.clear_foreign();
    }
    for folder in first..Layout::FOLDERS {
        result = result.and(scan_folder(files, folder));
        if began.elapsed() > SCAN_AT_ONCE {
            return (folder + 1, result);
        }
    }
    (Layout::FOLDERS, result)
}

fn scan_folder(files: &Files, folder: u32) -> io::Result<()> {
    let Some(open) = files.layout.folder(folder)? else {
        return Ok(());
    };
    for id in files.layout.ids(folder, &open)? {
        files.count(id, || look(&open, id))?;
    }
    Ok(())
}

/// What a file says from outside. Its contents are checked when it is asked for.
fn look(folder: &Folder, id: EntryId) -> io::Result<Option<Known>> {
    let stat = match folder.stat(&id.to_string()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        stat => stat?,
    };
    let expires = u64::try_from(stat.st_mtime).unwrap_or(0);
    let len = stat.st_size.cast_unsigned();
    let is_usable = beneath::is_file(&stat) && len >= Prefix::LEN as u64 && !is_over(expires);
    Ok(is_usable.then(|| Known::new(id, len, expires)).flatten())
}

/// Removes what is over in the next part of the index, and what could not be removed before.
async fn sweep(files: Arc<Files>, hand: u32) -> u32 {
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
        // At the first failure it stops: the next sweep is in a second.
        let mut condemned = files.condemned().into_iter();
        let _ = condemned.try_for_each(|id| files.finish_removal(id, None));
        hand
    };
    tokio::task::spawn_blocking(job).await.unwrap_or(0)
}
