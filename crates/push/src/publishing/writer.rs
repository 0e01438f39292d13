//! The writer thread, which commits in groups: it appends all pending requests to the log together and then
//! applies them in order. Each request sees the effect of those before it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::changes::change::{Delta, DocumentChange};
use crate::changes::generations::Generations;
use crate::changes::journal::{ChangeJournal, LogHeader};
use crate::changes::records;
use crate::documents::Documents;
use crate::documents::index::DocumentIndex;
use crate::name::DocumentName;
use crate::publishing::patch::apply_patch;
use crate::publishing::upload::UploadReservation;
use crate::publishing::write_error::WriteError;
use crate::publishing::write_request::{WriteOp, WriteOutcome, WriteRequest};

/// Limit of queued jobs.
const MAX_QUEUED: usize = 1024;
/// Limit of jobs in one group.
const MAX_GROUP: usize = 256;
/// Bounds of the interval between two searches for expired documents.
const SHORTEST_WAIT: Duration = Duration::from_millis(10);
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// Write requests that apply together or not at all.
struct WriteJob {
    writes: Vec<WriteRequest>,
    /// Counts the received content until it is written, even if the client has gone.
    _reservation: UploadReservation,
    done: oneshot::Sender<Result<Vec<WriteOutcome>, WriteError>>,
}

/// A command to the writer thread.
enum WriterCommand {
    Write(WriteJob),
    /// Hands the documents over to another process: no changes are made any more.
    HandOver(oneshot::Sender<()>),
    /// Takes them back after a failed handover.
    TakeBack,
}

/// The handle of the writer thread.
#[derive(Clone)]
pub(crate) struct DocumentWriter(SyncSender<WriterCommand>);

impl DocumentWriter {
    /// Starts the thread, which ends when all handles are dropped.
    pub(crate) fn start(
        documents: Arc<Documents>,
        journal: Option<ChangeJournal>,
    ) -> std::io::Result<Self> {
        let (sender, jobs) = sync_channel(MAX_QUEUED);
        let thread = std::thread::Builder::new().name("push".to_owned());
        thread.spawn(move || {
            let mut writer = WriterThread {
                documents,
                journal,
                is_handed_over: false,
            };
            writer.run(&jobs);
        })?;
        Ok(Self(sender))
    }

    /// Executes all of these write requests, or none of them.
    pub(crate) async fn submit(
        &self,
        writes: Vec<WriteRequest>,
        reservation: UploadReservation,
    ) -> Result<Vec<WriteOutcome>, WriteError> {
        let (done, result) = oneshot::channel();
        let job = WriteJob {
            writes,
            _reservation: reservation,
            done,
        };
        match self.0.try_send(WriterCommand::Write(job)) {
            Ok(()) => result.await.unwrap_or(Err(WriteError::Busy)),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => Err(WriteError::Busy),
        }
    }

    /// Hands the documents over to another process. After it returns, no changes are made.
    pub(crate) async fn hand_over(&self) {
        let (done, handed_over) = oneshot::channel();
        if self.send(WriterCommand::HandOver(done)).await {
            let _ = handed_over.await;
        }
    }

    /// Takes the documents back after a failed handover.
    pub(crate) async fn take_back(&self) {
        self.send(WriterCommand::TakeBack).await;
    }

    /// Sends a command as soon as the queue has room; false if the thread has ended.
    async fn send(&self, mut command: WriterCommand) -> bool {
        loop {
            match self.0.try_send(command) {
                Ok(()) => return true,
                Err(TrySendError::Disconnected(_)) => return false,
                Err(TrySendError::Full(again)) => command = again,
            }
            sleep(SHORTEST_WAIT).await;
        }
    }
}

struct WriterThread {
    documents: Arc<Documents>,
    journal: Option<ChangeJournal>,
    is_handed_over: bool,
}

/// Changes that are not committed yet.
struct WriteGroup {
    generations: Generations,
    /// The changes of each job.
    records: Vec<Vec<Arc<DocumentChange>>>,
    /// The newest change of each document.
    newest_changes: HashMap<DocumentName, Arc<DocumentChange>>,
    /// The number of the newest change.
    newest: u64,
    /// Memory used by documents including these changes, in bytes.
    size: u64,
}

/// The changes of one job, and the earlier uncommitted changes they replace.
#[derive(Default)]
struct JobDraft {
    record: Vec<Arc<DocumentChange>>,
    before: Vec<Option<Arc<DocumentChange>>>,
}

impl WriteGroup {
    /// Starts after the newest committed change; only this thread commits.
    fn new(index: &DocumentIndex) -> Self {
        Self {
            generations: index.generations.clone(),
            records: Vec::new(),
            newest_changes: HashMap::new(),
            newest: index.newest,
            size: index.size(),
        }
    }

    /// Reverts the changes of a job to the given newest number and size.
    fn undo(&mut self, draft: JobDraft, newest: u64, size: u64) {
        (self.newest, self.size) = (newest, size);
        let changes = draft.record.into_iter().zip(draft.before);
        for (change, before) in changes.rev() {
            match before {
                Some(before) => self.newest_changes.insert(Arc::clone(&change.name), before),
                None => self.newest_changes.remove(&change.name),
            };
        }
    }
}

impl WriterThread {
    fn run(&mut self, commands: &Receiver<WriterCommand>) {
        loop {
            let mut next = match commands.recv_timeout(self.until_next_expiry()) {
                Ok(first) => Some(first),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let mut jobs = Vec::new();
            while let Some(WriterCommand::Write(job)) = next {
                jobs.push(job);
                let may_take_more = jobs.len() < MAX_GROUP;
                next = may_take_more.then(|| commands.try_recv().ok()).flatten();
            }
            self.write(jobs);
            match next {
                Some(WriterCommand::HandOver(done)) => {
                    self.hand_over();
                    let _ = done.send(());
                }
                Some(WriterCommand::TakeBack) => self.take_back(),
                Some(WriterCommand::Write(_)) | None => {}
            }
            if !self.is_handed_over {
                self.expire();
            }
        }
    }

    fn hand_over(&mut self) {
        self.is_handed_over = true;
        if let Some(journal) = &self.journal {
            journal.unlock();
        }
    }

    fn take_back(&mut self) {
        let taken = self.journal.as_mut().is_none_or(ChangeJournal::take_back);
        self.is_handed_over = !taken;
        if !taken {
            tracing::error!(target: TARGET, "cannot use push_directory again after the failed upgrade: writes to documents fail until a restart");
        }
    }

    fn until_next_expiry(&self) -> Duration {
        let next = self.documents.index.lock().next_expiry();
        let now = self.documents.clock.now();
        let wait = next.map_or(LONGEST_WAIT, |at| Duration::from_millis(at.since(now)));
        wait.clamp(SHORTEST_WAIT, LONGEST_WAIT)
    }

    /// Executes a group of jobs.
    fn write(&mut self, jobs: Vec<WriteJob>) {
        if self.is_handed_over {
            // Without a response the client retries, and reaches the other process.
            return;
        }
        let mut group = WriteGroup::new(&self.documents.index.lock());
        let mut results = Vec::with_capacity(jobs.len());
        for job in jobs {
            let result = self.draft_job(&mut group, &job.writes);
            if result.is_err() {
                self.documents.counters.refused.add_one();
            }
            results.push((job, result));
        }
        let written = self.commit(&group);
        for (job, result) in results {
            // The client may have gone.
            let _ = job.done.send(match &written {
                Ok(()) => result,
                Err(error) => result.and(Err(WriteError::LogFailure(error.clone()))),
            });
        }
    }

    /// Deletes expired documents.
    fn expire(&mut self) {
        let now = self.documents.clock.now();
        let index = self.documents.index.lock();
        let expired = index.expired(now);
        if expired.is_empty() {
            return;
        }
        let mut group = WriteGroup::new(&index);
        drop(index);
        for name in expired {
            let mut draft = JobDraft::default();
            self.draft_deletion(&mut group, &mut draft, name);
            group.records.push(draft.record);
        }
        let expired = group.records.len();
        if let Err(error) = self.commit(&group) {
            // Subscribers are not notified yet, but the documents are no longer served.
            for change in group.records.iter().flatten() {
                self.documents.responses.remove(&change.name);
            }
            tracing::warn!(target: TARGET, "expired documents cannot be deleted: {error}");
            std::thread::sleep(Duration::from_secs(1));
            return;
        }
        self.documents.counters.expired.add(expired as u64);
    }

    /// Computes the changes of one job, after those before it.
    fn draft_job(
        &self,
        group: &mut WriteGroup,
        writes: &[WriteRequest],
    ) -> Result<Vec<WriteOutcome>, WriteError> {
        let (newest, size) = (group.newest, group.size);
        let mut draft = JobDraft::default();
        let done: Result<Vec<_>, _> = writes
            .iter()
            .map(|write| self.draft_one(group, write, &mut draft))
            .collect();
        let fits = group.size <= self.documents.settings.memory || group.size <= size;
        let done = done.and_then(|done| fits.then_some(done).ok_or(WriteError::Full));
        if done.is_err() {
            group.undo(draft, newest, size);
        } else if !draft.record.is_empty() {
            group.records.push(draft.record);
        }
        done
    }

    fn draft_one(
        &self,
        group: &mut WriteGroup,
        write: &WriteRequest,
        draft: &mut JobDraft,
    ) -> Result<WriteOutcome, WriteError> {
        let now = self.current(group, &write.name);
        let version = now
            .as_ref()
            .map(|now| group.generations.version(now.number));
        if self.documents.settings.conditions && !write.condition.is_set() {
            return Err(WriteError::ConditionRequired);
        }
        if now.is_none() && !matches!(write.op, WriteOp::Put(..)) {
            return Err(WriteError::Missing);
        }
        if !write.condition.holds(version) {
            return Err(WriteError::ConditionFailed);
        }
        let most = self.documents.settings.max_document;
        let (content, expires, patch) = match &write.op {
            WriteOp::Put(content, ttl) => {
                let expires = ttl.map(|ttl| self.documents.clock.now().plus(ttl));
                (content.clone(), expires, None)
            }
            WriteOp::Patch(patch) => {
                let now = now.as_ref().ok_or(WriteError::Missing)?;
                let before = now.content.as_ref().ok_or(WriteError::Missing)?;
                let content = apply_patch(before, patch, most)?;
                (content, now.expires, patch.merged().cloned())
            }
            WriteOp::Delete => {
                self.draft_deletion(group, draft, Arc::clone(&write.name));
                return Ok(WriteOutcome::Deleted);
            }
        };
        if content.body.len() as u64 > most {
            return Err(WriteError::TooLarge);
        }
        let is_same = |now: &Arc<DocumentChange>| {
            now.content.as_ref() == Some(&content) && now.expires.is_none() && expires.is_none()
        };
        if let (Some(now), Some(version)) = (&now, version)
            && is_same(now)
        {
            self.documents.counters.same.add_one();
            return Ok(WriteOutcome::Same(version));
        }
        let delta = patch.zip(version).map(|(patch, version)| Delta {
            from: version.number,
            patch: Bytes::copy_from_slice(&patch),
        });
        let delta = delta.filter(|delta| delta.patch.len() < content.body.len());
        group.newest += 1;
        let change = DocumentChange {
            number: group.newest,
            name: Arc::clone(&write.name),
            content: Some(content.into_compact()),
            expires,
            delta,
        };
        self.add(group, draft, change);
        let version = group.generations.version(group.newest);
        Ok(match now {
            Some(_) => WriteOutcome::Changed(version),
            None => WriteOutcome::Created(version),
        })
    }

    /// Returns a document including uncommitted changes; `None` if it does not exist.
    fn current(&self, group: &WriteGroup, name: &DocumentName) -> Option<Arc<DocumentChange>> {
        if let Some(drafted) = group.newest_changes.get(name) {
            return (!drafted.is_deletion()).then(|| Arc::clone(drafted));
        }
        let index = self.documents.index.lock();
        let now = self.documents.clock.now();
        let live = index.current(name).filter(|it| !it.has_expired(now));
        live.map(Arc::clone)
    }

    fn draft_deletion(&self, group: &mut WriteGroup, draft: &mut JobDraft, name: DocumentName) {
        group.newest += 1;
        let change = DocumentChange {
            number: group.newest,
            name,
            content: None,
            expires: None,
            delta: None,
        };
        self.add(group, draft, change);
    }

    fn add(&self, group: &mut WriteGroup, draft: &mut JobDraft, change: DocumentChange) {
        let change = Arc::new(change);
        let before = group
            .newest_changes
            .insert(Arc::clone(&change.name), Arc::clone(&change));
        let index = self.documents.index.lock();
        let evicted = match &before {
            Some(drafted) if index.stores_only_latest() || change.is_deletion() => drafted.size(),
            Some(_) => 0,
            None => index.evicted_size(&change),
        };
        drop(index);
        group.size = (group.size + change.size()).saturating_sub(evicted);
        draft.before.push(before);
        draft.record.push(change);
    }

    /// Writes the changes to the log, and applies them.
    fn commit(&mut self, group: &WriteGroup) -> Result<(), String> {
        if group.records.is_empty() {
            return Ok(());
        }
        self.append_to_log(&group.records)?;
        for change in group.records.iter().flatten() {
            self.documents.apply(change);
        }
        self.compact();
        Ok(())
    }

    fn append_to_log(&mut self, records: &[Vec<Arc<DocumentChange>>]) -> Result<(), String> {
        let Some(journal) = &mut self.journal else {
            return Ok(());
        };
        let mut bytes = Vec::new();
        for record in records {
            records::write(record, &mut bytes);
        }
        let ready = if journal.needs_rewrite() {
            let (header, all) = self.documents.all();
            journal.rewrite(&header, &all)
        } else {
            Ok(())
        };
        self.documents.counters.syncs.add_one();
        ready.and_then(|()| journal.append(&bytes)).map_err(|error| {
            self.documents.counters.unwritten.add_one();
            tracing::error!(target: TARGET, "writes to documents are rejected: cannot write to push_directory: {error}");
            error.to_string()
        })
    }

    /// Compacts the log when most of it is outdated.
    fn compact(&mut self) {
        let Some(journal) = &mut self.journal else {
            return;
        };
        if !journal.is_mostly_outdated(self.documents.index.lock().total_size()) {
            return;
        }
        let (header, all) = self.documents.all();
        if let Err(error) = journal.rewrite(&header, &all) {
            tracing::warn!(target: TARGET, "the log of documents cannot be compacted and keeps growing: {error}");
        }
    }
}

/// Target of log messages for the operator.
const TARGET: &str = "microcache";

impl Documents {
    /// Returns all stored changes, as a log contains them.
    fn all(&self) -> (LogHeader, Vec<Arc<DocumentChange>>) {
        let index = self.index.lock();
        let header = LogHeader {
            generations: index.generations.clone(),
            newest: index.newest,
            forgotten_through: index.forgotten_through,
        };
        (header, index.all())
    }
}
