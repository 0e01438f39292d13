//! What is done beside the requests: counting what is there after a start, and removing what is
//! over.

use std::fs::{self, DirEntry};
use std::io::{self, ErrorKind};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, UNIX_EPOCH};

use super::crew::Crew;
use super::expiry::is_over;
use super::files::Files;
use super::format::Prefix;
use super::index::Known;
use super::layout::{self, Layout};
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
    let entries = match fs::read_dir(files.layout.folder(folder)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        match name.to_str().and_then(|name| Layout::id_of(folder, name)) {
            Some(id) => files.count(id, || look(&entry, id))?,
            None => layout::remove(&entry.path())?,
        }
    }
    Ok(())
}

/// What a file says from outside. Its contents are checked when it is asked for.
fn look(entry: &DirEntry, id: EntryId) -> io::Result<Option<Known>> {
    let metadata = entry.metadata()?;
    let modified = metadata.modified()?.duration_since(UNIX_EPOCH);
    let expires = modified.map_or(0, |since| since.as_secs());
    let is_usable = metadata.is_file() && metadata.len() >= Prefix::LEN as u64 && !is_over(expires);
    Ok(is_usable
        .then(|| Known::new(id, metadata.len(), expires))
        .flatten())
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
