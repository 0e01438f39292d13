//! The persistent log of published updates.
//!
//! An update is written as a change of a document would be, to a separate file: its topics are the name and
//! its event is the content. The first publisher starts a writer, which writes everything queued in groups
//! until the queue is empty. Updates are delivered once they are on disk.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use microcache_store::random;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::history::History;
use super::update::Update;
use crate::changes::generations::Generations;
use crate::changes::journal::{ChangeJournal, JournalError, LogHeader, LogKind, SyncPolicy};
use crate::changes::records;
use crate::publishing::upload::UploadReservation;
use crate::stats::Counter;

/// Limit of queued updates.
const MAX_QUEUED: usize = 1024;
/// Limit of updates in one group.
const MAX_GROUP: usize = 256;
/// Growth after which a failed compaction is retried, in bytes.
const PAUSE: u64 = 1 << 20;
/// Target of log messages for the operator.
const TARGET: &str = "microcache";

/// The log, and the updates to be written to it.
pub(crate) struct UpdateJournal {
    queue: Mutex<WriteQueue>,
    /// Locked while writing.
    journal: Mutex<ChangeJournal>,
    /// Length below which compaction is not retried, in bytes.
    tried_until: AtomicU64,
    /// True if the log was handed over to another process.
    is_handed_over: AtomicBool,
}

#[derive(Default)]
struct WriteQueue {
    jobs: VecDeque<PublishJob>,
    /// True if a writer is running, which will write these updates too.
    has_writer: bool,
}

/// An update to be published once it is written.
struct PublishJob {
    update: Update,
    /// Counts the received content until it is written, even if the client has gone.
    _reservation: UploadReservation,
    done: oneshot::Sender<Result<(), PublishError>>,
}

/// Error publishing an update.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum PublishError {
    #[error("too many updates are queued, or another process is taking over")]
    Busy,
    #[error("the update cannot be written to the log: {0}")]
    LogFailure(String),
}

impl UpdateJournal {
    /// Opens the log in a directory; returns the updates in it too.
    pub(super) fn open(
        directory: &Path,
        sync: SyncPolicy,
    ) -> Result<(Self, Vec<Update>), JournalError> {
        let (journal, loaded) = ChangeJournal::open(LogKind::Updates, directory, sync)?;
        if loaded.is_damaged {
            tracing::error!(
                target: TARGET,
                "the log of the Mercure hub in {} is damaged: later updates are lost; the damaged file was saved as mercure.damaged",
                directory.display()
            );
        }
        let changes = loaded.changes.iter();
        let updates = changes.filter_map(|it| Update::from_change(it)).collect();
        let update_journal = Self {
            queue: Mutex::default(),
            journal: Mutex::new(journal),
            tried_until: AtomicU64::new(0),
            is_handed_over: AtomicBool::new(false),
        };
        Ok((update_journal, updates))
    }

    /// Queues an update. Returns its result, and whether a writer has to be started.
    pub(super) fn add(
        &self,
        update: Update,
        reservation: UploadReservation,
    ) -> Result<(oneshot::Receiver<Result<(), PublishError>>, bool), PublishError> {
        let (done, result) = oneshot::channel();
        let mut queue = self.queue.lock();
        if self.is_handed_over() || queue.jobs.len() >= MAX_QUEUED {
            return Err(PublishError::Busy);
        }
        queue.jobs.push_back(PublishJob {
            update,
            _reservation: reservation,
            done,
        });
        let had_writer = std::mem::replace(&mut queue.has_writer, true);
        Ok((result, !had_writer))
    }

    /// Writes queued updates until there are none, and delivers those that are written. The log is rewritten
    /// with the history where that is necessary.
    pub(super) fn write_all(
        &self,
        history: &Mutex<History>,
        unwritten: &Counter,
        deliver: impl Fn(Update),
    ) {
        let _end = PanicGuard(self);
        while let Some(jobs) = self.next() {
            let mut journal = self.journal.lock();
            if self.is_handed_over() {
                // Without a response the client retries, and reaches the other process.
                continue;
            }
            let written = append(&mut journal, history, &jobs);
            if written.is_err() {
                unwritten.add(jobs.len() as u64);
            }
            for PublishJob { update, done, .. } in jobs {
                if written.is_ok() {
                    deliver(update);
                }
                // The client may have gone.
                let _ = done.send(written.clone());
            }
            self.compact(&mut journal, history);
        }
    }

    /// Compacts the log when most of it is no longer in the history.
    fn compact(&self, journal: &mut ChangeJournal, history: &Mutex<History>) {
        let live = history.lock().published.bytes();
        let is_long_enough = journal.length() >= self.tried_until.load(Ordering::Relaxed);
        if !is_long_enough || !journal.is_mostly_outdated(live) {
            return;
        }
        let next = journal.length() + PAUSE;
        let written = rewrite(journal, history);
        let next = if written.is_ok() { 0 } else { next };
        self.tried_until.store(next, Ordering::Relaxed);
        if let Err(error) = written {
            tracing::warn!(target: TARGET, "the log of the Mercure hub cannot be compacted and keeps growing: {error}");
        }
    }

    /// Hands the log over to another process. It waits for a running writer; after it returns, nothing is
    /// written.
    pub(super) fn hand_over(&self) {
        let journal = self.journal.lock();
        self.is_handed_over.store(true, Ordering::Release);
        journal.unlock();
    }

    /// Takes the log back after a failed handover.
    pub(super) fn take_back(&self) {
        let is_ours = self.journal.lock().take_back();
        self.is_handed_over.store(!is_ours, Ordering::Release);
        if !is_ours {
            tracing::error!(target: TARGET, "cannot use push_directory again after the failed upgrade: publications to the Mercure hub fail until a restart");
        }
    }

    /// Takes the next group; `None`, and the writer stops, if the queue is empty.
    fn next(&self) -> Option<Vec<PublishJob>> {
        let mut queue = self.queue.lock();
        let count = queue.jobs.len().min(MAX_GROUP);
        queue.has_writer = count > 0;
        (count > 0).then(|| queue.jobs.drain(..count).collect())
    }

    fn is_handed_over(&self) -> bool {
        self.is_handed_over.load(Ordering::Acquire)
    }
}

fn append(
    journal: &mut ChangeJournal,
    history: &Mutex<History>,
    jobs: &[PublishJob],
) -> Result<(), PublishError> {
    let mut bytes = Vec::new();
    for job in jobs {
        records::write(&[Arc::new(job.update.to_change())], &mut bytes);
    }
    let ready = if journal.needs_rewrite() {
        rewrite(journal, history)
    } else {
        Ok(())
    };
    ready.and_then(|()| journal.append(&bytes)).map_err(|error| {
        tracing::error!(target: TARGET, "publications to the Mercure hub are rejected: cannot write to push_directory: {error}");
        PublishError::LogFailure(error.to_string())
    })
}

/// Rewrites the log with the current history.
fn rewrite(journal: &mut ChangeJournal, history: &Mutex<History>) -> std::io::Result<()> {
    let updates = history.lock().published.all();
    let changes: Vec<_> = updates.iter().map(|it| Arc::new(it.to_change())).collect();
    // Subscribers resume by id, so that numbers and epochs are irrelevant.
    let header = LogHeader {
        generations: Generations::new(random::number()),
        newest: 0,
        forgotten_through: 0,
    };
    journal.rewrite(&header, &changes)
}

/// Empties the queue if the writer panics, so that publishers do not wait for it.
struct PanicGuard<'a>(&'a UpdateJournal);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            *self.0.queue.lock() = WriteQueue::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;
    use std::sync::atomic::AtomicUsize;

    use microcache_testkit::Folder;
    use tokio::runtime::{Builder, Runtime};
    use tokio::task::{JoinSet, yield_now};
    use url::Url;

    use super::super::Hub;
    use super::super::tests::{hub, subscribe, take};
    use super::super::update::EARLIEST;
    use super::*;

    /// Length of the log's header, in bytes.
    const HEADER: usize = 32;

    struct Directory(Folder);

    impl Directory {
        fn new() -> Self {
            Self(Folder::absent())
        }

        fn log(&self) -> PathBuf {
            self.0.path().join("mercure.log")
        }

        /// Creates a hub that persists its updates here.
        fn hub(&self, history: u64) -> Arc<Hub> {
            let hub = hub(history);
            hub.persist_in(self.0.path(), SyncPolicy::Never)
                .expect("it is kept");
            hub
        }
    }

    fn runtime() -> Runtime {
        Builder::new_current_thread().build().expect("a runtime")
    }

    fn update(form: &str) -> Update {
        let url = Url::parse("http://hub.example/.well-known/mercure").expect("a url");
        Update::read(form.as_bytes(), &url, String::new).expect("an update")
    }

    async fn persist(hub: Arc<Hub>, form: String) -> Result<(), PublishError> {
        let update_journal = hub.update_journal.get().expect("it is kept");
        hub.persist(update_journal, update(&form), UploadReservation::default())
            .await
    }

    fn publish(hub: &Arc<Hub>, form: &str) -> Result<(), PublishError> {
        runtime().block_on(persist(Arc::clone(hub), form.to_owned()))
    }

    /// Returns the ids of the whole history that a subscriber with these permissions receives.
    fn ids(hub: &Arc<Hub>, may_read: &[&str]) -> Vec<String> {
        let (mut all, _) = subscribe(hub, &["*"], Some(EARLIEST), may_read).expect("a subscriber");
        take(&mut all).0
    }

    #[test]
    fn published_updates_are_restored_unchanged() {
        let directory = Directory::new();
        let before = directory.hub(1 << 20);
        for number in 0..20 {
            let private = if number % 2 == 0 { "&private" } else { "" };
            let form = format!("topic=/a/{number}&topic=b&id={number}&type=t&data=1%0A2{private}");
            publish(&before, &form).expect("published");
        }
        let events = |hub: &Hub| {
            let all = hub.history.lock().published.all();
            all.iter().map(|it| it.event.clone()).collect::<Vec<_>>()
        };
        let (all, mine, public) = (
            ids(&before, &["*"]),
            ids(&before, &["/a/4"]),
            ids(&before, &[]),
        );
        assert_eq!((all.len(), mine.len(), public.len()), (20, 11, 10));
        let encoded = events(&before);
        drop(before);
        let after = directory.hub(1 << 20);
        assert_eq!(events(&after), encoded);
        assert_eq!(ids(&after, &["*"]), all);
        assert_eq!(ids(&after, &["/a/4"]), mine);
        assert_eq!(ids(&after, &[]), public);
        assert_eq!(&*after.history.lock().last_id(), "19");
        let (mut back, seen) =
            subscribe(&after, &["/a/{x}"], Some("16"), &[]).expect("a subscriber");
        assert_eq!(seen.as_deref(), Some("16"));
        publish(&after, "topic=/a/new&id=new").expect("published");
        assert_eq!(take(&mut back).0, ["17", "19", "new"]);
        // Other users have no access to private updates.
        for file in ["mercure.log", "mercure.lock"] {
            let mode = fs::metadata(directory.0.path().join(file)).expect("a file");
            assert_eq!(mode.permissions().mode() & 0o777, 0o600, "{file}");
        }
    }

    #[test]
    fn the_log_is_bounded_by_the_history() {
        let directory = Directory::new();
        let before = directory.hub(256 * 1024);
        let data = "x".repeat(8 * 1024);
        let mut longest = 0;
        for number in 0..600 {
            publish(&before, &format!("topic=a&id={number}&data={data}")).expect("published");
            longest = longest.max(fs::metadata(directory.log()).expect("a log").len());
        }
        assert!((1 << 19..=1 << 20).contains(&longest), "{longest}");
        let all = ids(&before, &[]);
        assert!((20..40).contains(&all.len()), "{}", all.len());
        drop(before);
        assert_eq!(ids(&directory.hub(256 * 1024), &[]), all);
        // With a smaller history, the newest updates remain.
        let less = ids(&directory.hub(64 * 1024), &[]);
        assert!(!less.is_empty() && all.ends_with(&less), "{less:?}");
    }

    #[test]
    fn a_truncated_or_damaged_record_costs_no_earlier_one() {
        let directory = Directory::new();
        let before = directory.hub(1 << 20);
        let mut ends = vec![HEADER];
        for number in 0..6 {
            publish(
                &before,
                &format!("topic=a&id={number}&data={number}&private"),
            )
            .expect("published");
            ends.push(fs::read(directory.log()).expect("a log").len());
        }
        drop(before);
        let whole = fs::read(directory.log()).expect("a log");
        assert_eq!(ends.last(), Some(&whole.len()));
        let whole_records = |length: usize| ends.iter().filter(|end| **end <= length).count() - 1;
        let check = |bytes: &[u8], records: usize, what: &str| {
            fs::write(directory.log(), bytes).expect("written");
            let again = directory.hub(1 << 20);
            let mut expected: Vec<_> = (0..records).map(|it| it.to_string()).collect();
            assert_eq!(ids(&again, &["*"]), expected, "{what}");
            assert!(ids(&again, &[]).is_empty(), "{what}: it is private");
            publish(&again, "topic=a&id=new&private").expect("published");
            drop(again);
            expected.push("new".to_owned());
            assert_eq!(ids(&directory.hub(1 << 20), &["*"]), expected, "{what}");
        };
        for cut in (HEADER..whole.len()).step_by(3) {
            check(&whole[..cut], whole_records(cut), &format!("cut at {cut}"));
        }
        for place in (HEADER..whole.len()).step_by(5) {
            let mut flipped = whole.clone();
            flipped[place] ^= 1 << (place % 8);
            check(
                &flipped,
                whole_records(place),
                &format!("flipped at {place}"),
            );
        }
        let zeros = [&whole[..], &[0; 100]].concat();
        check(&zeros, 6, "zeros at the end");
        assert!(directory.0.path().join("mercure.damaged").exists());
        fs::write(directory.log(), "something else, and long enough for a log").expect("written");
        let refused = hub(1 << 20).persist_in(directory.0.path(), SyncPolicy::Never);
        let why = refused.expect_err("no log").to_string();
        assert!(
            why.contains("not a log of updates of the Mercure hub"),
            "{why}"
        );
    }

    #[test]
    fn many_are_written_together_in_their_order_and_too_many_are_refused() {
        let directory = Directory::new();
        let before = directory.hub(1 << 20);
        let runtime = runtime();
        let mut all = JoinSet::new();
        let update_journal = before.update_journal.get().expect("it is kept");
        let no_writer = update_journal.journal.lock();
        let come = Arc::new(AtomicUsize::new(0));
        runtime.block_on(async {
            for number in 0..2 * MAX_QUEUED {
                let (hub, come) = (Arc::clone(&before), Arc::clone(&come));
                all.spawn(async move {
                    come.fetch_add(1, Ordering::Relaxed);
                    persist(hub, format!("topic=a&id={number}")).await
                });
            }
            while come.load(Ordering::Relaxed) < 2 * MAX_QUEUED {
                yield_now().await;
            }
        });
        drop(no_writer);
        let results = runtime.block_on(all.join_all());
        let written = results.iter().filter(|it| it.is_ok()).count();
        assert!(
            (MAX_QUEUED..=MAX_QUEUED + MAX_GROUP).contains(&written),
            "{written}"
        );
        let there = ids(&before, &[]);
        assert_eq!(there.len(), written);
        drop(before);
        assert_eq!(ids(&directory.hub(1 << 20), &[]), there);
    }

    #[test]
    fn an_update_that_cannot_be_written_is_not_published() {
        let directory = Directory::new();
        let hub = directory.hub(1 << 20);
        publish(&hub, "topic=a&id=1").expect("published");
        // A log taken back is rewritten, which fails without its directory.
        runtime().block_on(hub.take_back());
        fs::remove_dir_all(directory.0.path()).expect("removed");
        let (mut waiting, _) = subscribe(&hub, &["a"], None, &[]).expect("a subscriber");
        let refused = publish(&hub, "topic=a&id=lost");
        assert!(matches!(refused, Err(PublishError::LogFailure(_))));
        assert_eq!(hub.stats().unwritten, 1);
        assert_eq!(
            (ids(&hub, &[]), take(&mut waiting).0),
            (vec!["1".to_owned()], vec![])
        );
        fs::create_dir(directory.0.path()).expect("a directory");
        publish(&hub, "topic=a&id=2").expect("published");
        assert_eq!(take(&mut waiting).0, ["2"]);
        drop((hub, waiting));
        assert_eq!(ids(&directory.hub(1 << 20), &[]), ["1", "2"]);
    }

    #[test]
    fn one_process_at_a_time_has_it() {
        let directory = Directory::new();
        let runtime = runtime();
        let first = directory.hub(1 << 20);
        publish(&first, "topic=a&id=1").expect("published");
        let second = hub(1 << 20);
        let refused = second.persist_in(directory.0.path(), SyncPolicy::Never);
        let why = refused.expect_err("it is taken").to_string();
        assert!(
            why.starts_with("another process stores its updates"),
            "{why}"
        );
        runtime.block_on(first.hand_over());
        let second = directory.hub(1 << 20);
        assert!(matches!(
            publish(&first, "topic=a&id=lost"),
            Err(PublishError::Busy)
        ));
        publish(&second, "topic=a&id=2").expect("published");
        runtime.block_on(first.take_back());
        assert!(matches!(
            publish(&first, "topic=a&id=lost"),
            Err(PublishError::Busy)
        ));
        drop(second);
        runtime.block_on(first.take_back());
        publish(&first, "topic=a&id=3").expect("published");
        assert_eq!(ids(&first, &[]), ["1", "3"]);
        drop(first);
        assert_eq!(ids(&directory.hub(1 << 20), &[]), ["1", "3"]);
    }
}
