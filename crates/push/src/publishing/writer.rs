//! The writer thread, which commits in groups: it appends all pending requests to the log together and then
//! applies them in order. Each request sees the effect of those before it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::changes::change::{Change, Delta};
use crate::changes::generations::Generations;
use crate::changes::journal::{Header, Journal};
use crate::changes::records;
use crate::documents::Documents;
use crate::documents::books::Books;
use crate::name::Name;
use crate::publishing::coming::Coming;
use crate::publishing::patch::patched;
use crate::publishing::wish::{Deed, Done, Refused, Wish};

/// Limit of queued jobs.
const MAX_WAITING: usize = 1024;
/// Limit of jobs in one group.
const MAX_TOGETHER: usize = 256;
/// Bounds of the interval between two searches for expired documents.
const SHORTEST_WAIT: Duration = Duration::from_millis(10);
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// Write requests that apply together or not at all.
struct Job {
    wishes: Vec<Wish>,
    /// Counts the received content until it is written, even if the client has gone.
    _coming: Coming,
    done: oneshot::Sender<Result<Vec<Done>, Refused>>,
}

/// A command to the writer thread.
enum Asked {
    Change(Job),
    /// Hands the documents over to another process: no changes are made any more.
    GiveUp(oneshot::Sender<()>),
    /// Takes them back after a failed handover.
    TakeBack,
}

/// The handle of the writer thread.
#[derive(Clone)]
pub(crate) struct Writer(SyncSender<Asked>);

impl Writer {
    /// Starts the thread, which ends when all handles are dropped.
    pub(crate) fn start(
        documents: Arc<Documents>,
        journal: Option<Journal>,
    ) -> std::io::Result<Self> {
        let (sender, jobs) = sync_channel(MAX_WAITING);
        let thread = std::thread::Builder::new().name("push".to_owned());
        thread.spawn(move || {
            let mut writing = Writing {
                documents,
                journal,
                is_given_up: false,
            };
            writing.run(&jobs);
        })?;
        Ok(Self(sender))
    }

    /// Executes all of these write requests, or none of them.
    pub(crate) async fn ask(
        &self,
        wishes: Vec<Wish>,
        coming: Coming,
    ) -> Result<Vec<Done>, Refused> {
        let (done, result) = oneshot::channel();
        let job = Job {
            wishes,
            _coming: coming,
            done,
        };
        match self.0.try_send(Asked::Change(job)) {
            Ok(()) => result.await.unwrap_or(Err(Refused::Busy)),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => Err(Refused::Busy),
        }
    }

    /// Hands the documents over to another process. After it returns, no changes are made.
    pub(crate) async fn give_up(&self) {
        let (done, given_up) = oneshot::channel();
        if self.say(Asked::GiveUp(done)).await {
            let _ = given_up.await;
        }
    }

    /// Takes the documents back after a failed handover.
    pub(crate) async fn take_back(&self) {
        self.say(Asked::TakeBack).await;
    }

    /// Sends a command as soon as the queue has room; false if the thread has ended.
    async fn say(&self, mut what: Asked) -> bool {
        loop {
            match self.0.try_send(what) {
                Ok(()) => return true,
                Err(TrySendError::Disconnected(_)) => return false,
                Err(TrySendError::Full(again)) => what = again,
            }
            sleep(SHORTEST_WAIT).await;
        }
    }
}

struct Writing {
    documents: Arc<Documents>,
    journal: Option<Journal>,
    is_given_up: bool,
}

/// Changes that are not committed yet.
struct Draft {
    generations: Generations,
    /// The changes of each job.
    records: Vec<Vec<Arc<Change>>>,
    /// The newest change of each document.
    now: HashMap<Name, Arc<Change>>,
    /// The number of the newest change.
    newest: u64,
    /// Memory used by documents including these changes, in bytes.
    size: u64,
}

/// The changes of one job, and the earlier uncommitted changes they replace.
#[derive(Default)]
struct Drafting {
    record: Vec<Arc<Change>>,
    before: Vec<Option<Arc<Change>>>,
}

impl Draft {
    /// Starts after the newest committed change; only this thread commits.
    fn after(books: &Books) -> Self {
        Self {
            generations: books.generations.clone(),
            records: Vec::new(),
            now: HashMap::new(),
            newest: books.newest,
            size: books.size(),
        }
    }

    /// Reverts the changes of a job to the given newest number and size.
    fn undo(&mut self, drafting: Drafting, newest: u64, size: u64) {
        (self.newest, self.size) = (newest, size);
        let changes = drafting.record.into_iter().zip(drafting.before);
        for (change, before) in changes.rev() {
            match before {
                Some(before) => self.now.insert(Arc::clone(&change.name), before),
                None => self.now.remove(&change.name),
            };
        }
    }
}

impl Writing {
    fn run(&mut self, asked: &Receiver<Asked>) {
        loop {
            let mut next = match asked.recv_timeout(self.until_next_expiry()) {
                Ok(first) => Some(first),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let mut jobs = Vec::new();
            while let Some(Asked::Change(job)) = next {
                jobs.push(job);
                let may_take_more = jobs.len() < MAX_TOGETHER;
                next = may_take_more.then(|| asked.try_recv().ok()).flatten();
            }
            self.write(jobs);
            match next {
                Some(Asked::GiveUp(done)) => {
                    self.give_up();
                    let _ = done.send(());
                }
                Some(Asked::TakeBack) => self.take_back(),
                Some(Asked::Change(_)) | None => {}
            }
            if !self.is_given_up {
                self.expire();
            }
        }
    }

    fn give_up(&mut self) {
        self.is_given_up = true;
        if let Some(journal) = &self.journal {
            journal.let_go();
        }
    }

    fn take_back(&mut self) {
        let taken = self.journal.as_mut().is_none_or(Journal::take_back);
        self.is_given_up = !taken;
        if !taken {
            tracing::error!(target: TARGET, "push_directory cannot be taken back: no document is changed until a restart");
        }
    }

    fn until_next_expiry(&self) -> Duration {
        let next = self.documents.books.lock().next_expiry();
        let now = self.documents.clock.now();
        let wait = next.map_or(LONGEST_WAIT, |at| Duration::from_millis(at.since(now)));
        wait.clamp(SHORTEST_WAIT, LONGEST_WAIT)
    }

    /// Executes a group of jobs.
    fn write(&mut self, jobs: Vec<Job>) {
        if self.is_given_up {
            // Without a response the client retries, and reaches the other process.
            return;
        }
        let mut draft = Draft::after(&self.documents.books.lock());
        let mut results = Vec::with_capacity(jobs.len());
        for job in jobs {
            let result = self.draft(&mut draft, &job.wishes);
            if result.is_err() {
                self.documents.counters.refused.add_one();
            }
            results.push((job, result));
        }
        let written = self.bring_into_force(&draft);
        for (job, result) in results {
            // The client may have gone.
            let _ = job.done.send(match &written {
                Ok(()) => result,
                Err(error) => result.and(Err(Refused::Unwritten(error.clone()))),
            });
        }
    }

    /// Deletes expired documents.
    fn expire(&mut self) {
        let now = self.documents.clock.now();
        let books = self.documents.books.lock();
        let expired = books.expired(now);
        if expired.is_empty() {
            return;
        }
        let mut draft = Draft::after(&books);
        drop(books);
        for name in expired {
            let mut drafting = Drafting::default();
            self.gone(&mut draft, &mut drafting, name);
            draft.records.push(drafting.record);
        }
        let expired = draft.records.len();
        if let Err(error) = self.bring_into_force(&draft) {
            // Subscribers are not notified yet, but the documents are no longer served.
            for change in draft.records.iter().flatten() {
                self.documents.pages.hide(&change.name);
            }
            tracing::warn!(target: TARGET, "documents that have had their time cannot be taken away: {error}");
            std::thread::sleep(Duration::from_secs(1));
            return;
        }
        self.documents.counters.expired.add(expired as u64);
    }

    /// Computes the changes of one job, after those before it.
    fn draft(&self, draft: &mut Draft, wishes: &[Wish]) -> Result<Vec<Done>, Refused> {
        let (newest, size) = (draft.newest, draft.size);
        let mut drafting = Drafting::default();
        let done: Result<Vec<_>, _> = wishes
            .iter()
            .map(|wish| self.draft_one(draft, wish, &mut drafting))
            .collect();
        let fits = draft.size <= self.documents.settings.memory || draft.size <= size;
        let done = done.and_then(|done| fits.then_some(done).ok_or(Refused::Full));
        if done.is_err() {
            draft.undo(drafting, newest, size);
        } else if !drafting.record.is_empty() {
            draft.records.push(drafting.record);
        }
        done
    }

    fn draft_one(
        &self,
        draft: &mut Draft,
        wish: &Wish,
        drafting: &mut Drafting,
    ) -> Result<Done, Refused> {
        let now = self.now(draft, &wish.name);
        let version = now
            .as_ref()
            .map(|now| draft.generations.version(now.number));
        if self.documents.settings.conditions && !wish.condition.is_set() {
            return Err(Refused::NoCondition);
        }
        if now.is_none() && !matches!(wish.deed, Deed::Put(..)) {
            return Err(Refused::Missing);
        }
        if !wish.condition.holds(version) {
            return Err(Refused::Condition);
        }
        let most = self.documents.settings.max_document;
        let (content, expires, patch) = match &wish.deed {
            Deed::Put(content, ttl) => {
                let expires = ttl.map(|ttl| self.documents.clock.now().plus(ttl));
                (content.clone(), expires, None)
            }
            Deed::Patch(patch) => {
                let now = now.as_ref().ok_or(Refused::Missing)?;
                let before = now.content.as_ref().ok_or(Refused::Missing)?;
                let content = patched(before, patch, most)?;
                (content, now.expires, patch.merged().cloned())
            }
            Deed::Delete => {
                self.gone(draft, drafting, Arc::clone(&wish.name));
                return Ok(Done::Deleted);
            }
        };
        if content.body.len() as u64 > most {
            return Err(Refused::TooLarge);
        }
        let is_same = |now: &Arc<Change>| {
            now.content.as_ref() == Some(&content) && now.expires.is_none() && expires.is_none()
        };
        if let (Some(now), Some(version)) = (&now, version)
            && is_same(now)
        {
            self.documents.counters.same.add_one();
            return Ok(Done::Same(version));
        }
        let delta = patch.zip(version).map(|(patch, version)| Delta {
            from: version.number,
            patch,
        });
        let delta = delta.filter(|delta| delta.patch.len() < content.body.len());
        draft.newest += 1;
        let change = Change {
            number: draft.newest,
            name: Arc::clone(&wish.name),
            content: Some(content),
            expires,
            delta,
        };
        self.add(draft, drafting, change);
        let version = draft.generations.version(draft.newest);
        Ok(match now {
            Some(_) => Done::Changed(version),
            None => Done::Created(version),
        })
    }

    /// Returns a document including uncommitted changes; `None` if it does not exist.
    fn now(&self, draft: &Draft, name: &Name) -> Option<Arc<Change>> {
        if let Some(drafted) = draft.now.get(name) {
            return (!drafted.is_gone()).then(|| Arc::clone(drafted));
        }
        let books = self.documents.books.lock();
        let now = self.documents.clock.now();
        let live = books.now(name).filter(|it| !it.has_expired(now));
        live.map(Arc::clone)
    }

    fn gone(&self, draft: &mut Draft, drafting: &mut Drafting, name: Name) {
        draft.newest += 1;
        let change = Change {
            number: draft.newest,
            name,
            content: None,
            expires: None,
            delta: None,
        };
        self.add(draft, drafting, change);
    }

    fn add(&self, draft: &mut Draft, drafting: &mut Drafting, change: Change) {
        let change = Arc::new(change);
        let before = draft
            .now
            .insert(Arc::clone(&change.name), Arc::clone(&change));
        let books = self.documents.books.lock();
        let leaves = match &before {
            Some(drafted) if books.keeps_only_the_last() || change.is_gone() => drafted.size(),
            Some(_) => 0,
            None => books.leaves(&change),
        };
        drop(books);
        draft.size = (draft.size + change.size()).saturating_sub(leaves);
        drafting.before.push(before);
        drafting.record.push(change);
    }

    /// Writes the changes to the log, and applies them.
    fn bring_into_force(&mut self, draft: &Draft) -> Result<(), String> {
        if draft.records.is_empty() {
            return Ok(());
        }
        self.write_down(&draft.records)?;
        for change in draft.records.iter().flatten() {
            self.documents.note(change);
        }
        self.clear_up();
        Ok(())
    }

    fn write_down(&mut self, records: &[Vec<Arc<Change>>]) -> Result<(), String> {
        let Some(journal) = &mut self.journal else {
            return Ok(());
        };
        let mut bytes = Vec::new();
        for record in records {
            records::write(record, &mut bytes);
        }
        let mended = if journal.is_broken() {
            let (header, all) = self.documents.all();
            journal.rewrite(&header, &all)
        } else {
            Ok(())
        };
        self.documents.counters.syncs.add_one();
        mended.and_then(|()| journal.append(&bytes)).map_err(|error| {
            self.documents.counters.unwritten.add_one();
            tracing::error!(target: TARGET, "changes of documents are refused: they cannot be written to push_directory: {error}");
            error.to_string()
        })
    }

    /// Compacts the log when most of it is outdated.
    fn clear_up(&mut self) {
        let Some(journal) = &mut self.journal else {
            return;
        };
        if !journal.is_mostly_old(self.documents.books.lock().whole_size()) {
            return;
        }
        let (header, all) = self.documents.all();
        if let Err(error) = journal.rewrite(&header, &all) {
            tracing::warn!(target: TARGET, "the log of documents grows: it cannot be written anew: {error}");
        }
    }
}

/// Target of log messages for the operator.
const TARGET: &str = "microcache";

impl Documents {
    /// Returns all stored changes, as a log contains them.
    fn all(&self) -> (Header, Vec<Arc<Change>>) {
        let books = self.books.lock();
        let header = Header {
            generations: books.generations.clone(),
            newest: books.newest,
            forgotten_through: books.forgotten_through,
        };
        (header, books.all())
    }
}
