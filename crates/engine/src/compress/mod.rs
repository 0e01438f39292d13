//! Background compression. Requests queue jobs and continue; low-priority threads encode bodies in
//! memory and store the encodings next to their response.

#[cfg(feature = "compress")]
mod codecs;
#[cfg(feature = "compress")]
pub(crate) mod decoded;
#[cfg(feature = "compress")]
mod deltas;
#[cfg(not(feature = "compress"))]
mod none;
#[cfg(feature = "compress")]
mod pieces;
mod queue;
mod saved;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use microcache_policy::{Coding, DictionaryCoding, SentCoding};
use microcache_store::{BodyEncodings, EncodingMethod, EncodingTask, Memory};
use parking_lot::{Condvar, Mutex};
use rustix::time::{ClockId, clock_gettime};

#[cfg(not(feature = "compress"))]
use none::{codecs, deltas};
#[cfg(feature = "compress")]
pub use pieces::GzipPage;
pub(crate) use queue::CompressionJob;
use queue::JobQueue;
use saved::Saved;

/// The niceness of compression threads relative to the threads that serve.
const NICENESS: i32 = 10;

/// The owner of the memory that holds the bodies to compress.
pub(crate) trait MemoryOwner: Send + Sync + 'static {
    /// The memory.
    fn memory(&self) -> &Memory;
}

/// The compression threads and their queue.
pub(crate) struct Compressor {
    shared: Arc<CompressorState>,
    /// The most threads.
    threads: usize,
}

/// The state shared by the compression threads.
#[derive(Default)]
struct CompressorState {
    state: Mutex<State>,
    wake: Condvar,
    /// The demand below which a job is refused.
    needed: AtomicU32,
    counts: CompressionCounters,
    saved: Saved,
}

#[derive(Default)]
struct State {
    queue: JobQueue,
    threads: usize,
    closed: bool,
}

#[derive(Default)]
struct CompressionCounters {
    /// Bodies compressed, by coding.
    made: [CodingCounters; Coding::ALL.len()],
    useless: AtomicU64,
    dropped: AtomicU64,
    refused: AtomicU64,
    deltas: AtomicU64,
    cpu_nanos: AtomicU64,
}

#[derive(Default)]
struct CodingCounters {
    bodies: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
}

/// The totals of compression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompressionStats {
    /// Bodies compressed, by coding in the order of [`Coding::ALL`].
    pub made: [MadeStats; Coding::ALL.len()],
    /// Bodies that did not shrink by a sixteenth, and are sent uncompressed.
    pub useless: u64,
    /// Bodies that were purged or replaced before compression, or whose encoding memory refused.
    pub dropped: u64,
    /// Bodies not compressed because the queue was full.
    pub refused: u64,
    /// Number of deltas made.
    pub deltas: u64,
    /// Bodies in the queue.
    pub waiting: u64,
    /// The CPU time spent.
    pub cpu: Duration,
    /// Responses sent compressed.
    pub answers: u64,
    /// Responses sent compressed, by coding in the order of [`SentCoding::ALL`].
    pub sent: [u64; SentCoding::ALL.len()],
    /// Bytes saved against the stored bodies.
    pub saved: u64,
}

/// The totals of one coding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MadeStats {
    /// Number of bodies.
    pub bodies: u64,
    /// Bytes before compression.
    pub bytes_in: u64,
    /// Bytes after compression.
    pub bytes_out: u64,
}

impl Compressor {
    pub(crate) fn new() -> Self {
        Self {
            shared: Arc::default(),
            threads: threads(),
        }
    }

    /// Returns true if a job with this demand would be queued; otherwise it is counted as refused.
    /// No lock is taken: a full queue must cost requests nothing.
    pub(crate) fn has_place(&self, demand: u32) -> bool {
        let has_place = demand >= self.shared.needed.load(Ordering::Relaxed);
        if !has_place {
            self.shared.counts.refused.fetch_add(1, Ordering::Relaxed);
        }
        has_place
    }

    /// Queues a job for the memory of this owner, unless the queue has reached `bound`.
    pub(crate) fn ask<O: MemoryOwner>(&self, owner: &Arc<O>, job: CompressionJob, bound: usize) {
        let mut state = self.shared.state.lock();
        let left_out = state.queue.push(job, bound);
        let needed = state.queue.needed(bound);
        self.shared.needed.store(needed, Ordering::Relaxed);
        if state.threads < self.threads && self.shared.start(owner) {
            state.threads += 1;
        }
        drop(state);
        self.shared.wake.notify_one();
        if let Some(job) = left_out {
            self.shared.counts.refused.fetch_add(1, Ordering::Relaxed);
            if let Some(encodings) = job.encodings.upgrade() {
                encodings.give_up(job.task);
            }
        }
    }

    /// Counts a response that was smaller than the stored body by this many bytes.
    pub(crate) fn saved(&self, coding: SentCoding, bytes: u64) {
        self.shared.saved.note(coding, bytes);
    }

    pub(crate) fn stats(&self) -> CompressionStats {
        let (shared, count) = (&self.shared, |one: &AtomicU64| one.load(Ordering::Relaxed));
        let counts = &shared.counts;
        let (sent, saved) = shared.saved.all();
        let made = |made: &CodingCounters| MadeStats {
            bodies: count(&made.bodies),
            bytes_in: count(&made.bytes_in),
            bytes_out: count(&made.bytes_out),
        };
        CompressionStats {
            made: counts.made.each_ref().map(made),
            useless: count(&counts.useless),
            dropped: count(&counts.dropped),
            refused: count(&counts.refused),
            deltas: count(&counts.deltas),
            waiting: shared.state.lock().queue.len() as u64,
            cpu: Duration::from_nanos(count(&counts.cpu_nanos)),
            answers: sent.iter().sum(),
            sent,
            saved,
        }
    }
}

impl Drop for Compressor {
    fn drop(&mut self) {
        self.shared.state.lock().closed = true;
        self.shared.wake.notify_all();
    }
}

/// A quarter of the cores, at least one.
fn threads() -> usize {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    (cores / 4).clamp(1, 4)
}

impl CompressorState {
    /// Starts a thread. Returns false on failure; the next request for a job tries again.
    fn start<O: MemoryOwner>(self: &Arc<Self>, owner: &Arc<O>) -> bool {
        let (shared, owner) = (Arc::clone(self), Arc::downgrade(owner));
        let thread = thread::Builder::new().name("compress".to_owned());
        let work = move || {
            // Without the privilege the thread runs at normal priority.
            let _ = rustix::process::nice(NICENESS);
            while let Some(job) = shared.next() {
                let Some(owner) = owner.upgrade() else {
                    return;
                };
                // A panic is a bug here, but must not stop the compression of other bodies.
                let done = catch_unwind(AssertUnwindSafe(|| shared.work(owner.memory(), &job)));
                if done.is_err() {
                    shared.counts.dropped.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        thread.spawn(work).is_ok()
    }

    /// Waits for the next job; `None` at the end.
    fn next(&self) -> Option<CompressionJob> {
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(job) = state.queue.pop() {
                self.needed.store(0, Ordering::Relaxed);
                return Some(job);
            }
            self.wake.wait(&mut state);
        }
    }

    fn work(&self, memory: &Memory, job: &CompressionJob) {
        let (counts, began) = (&self.counts, cpu_time());
        let encodings = job.encodings.upgrade();
        let is_kept = encodings.is_some_and(|encodings| match job.task {
            EncodingTask::Encode(making) => self.encode(memory, job, &encodings, making),
            EncodingTask::Compare(coding) => self.compare(memory, job, &encodings, coding),
        });
        let spent = cpu_time().saturating_sub(began).as_nanos() as u64;
        counts.cpu_nanos.fetch_add(spent, Ordering::Relaxed);
        if !is_kept {
            counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Encodes a body for all clients. Returns whether the result is kept.
    fn encode(
        &self,
        memory: &Memory,
        job: &CompressionJob,
        encodings: &Arc<BodyEncodings>,
        making: EncodingMethod,
    ) -> bool {
        let Some(body) = memory.body_of(&job.key, encodings) else {
            return false;
        };
        let Ok(encoded) = codecs::encoded(making, &body) else {
            return false;
        };
        let bytes_out = encoded.len() as u64;
        let is_kept = memory.attach(&job.key, encodings, making, exact(encoded));
        if is_kept && bytes_out == 0 {
            self.counts.useless.fetch_add(1, Ordering::Relaxed);
        } else if is_kept {
            let made = &self.counts.made[making.coding() as usize];
            made.bodies.fetch_add(1, Ordering::Relaxed);
            made.bytes_in
                .fetch_add(body.len() as u64, Ordering::Relaxed);
            made.bytes_out.fetch_add(bytes_out, Ordering::Relaxed);
        }
        is_kept
    }

    /// Encodes deltas of a body against each version that clients may have, latest first. Returns
    /// whether they are kept.
    fn compare(
        &self,
        memory: &Memory,
        job: &CompressionJob,
        encodings: &Arc<BodyEncodings>,
        coding: DictionaryCoding,
    ) -> bool {
        let Some(body) = memory.body_of(&job.key, encodings) else {
            return false;
        };
        if !memory.attach_dictionary(&job.key, encodings, &body) {
            return false;
        }
        encodings.bases().all(|base| {
            let dictionary = base.version().body();
            let hash = base.version().hash_or(deltas::hash);
            // On failure the plain codings remain.
            let delta = deltas::delta(coding, dictionary, hash, &body).unwrap_or_default();
            if !delta.is_empty() {
                self.counts.deltas.fetch_add(1, Ordering::Relaxed);
            }
            memory.attach_difference(&job.key, encodings, base, coding, exact(delta))
        })
    }
}

/// The bytes of an encoding, without the spare capacity that encoders leave: they are kept, and charged by their length.
fn exact(encoded: Vec<u8>) -> Bytes {
    encoded.into_boxed_slice().into()
}

/// The CPU time of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::from_secs(seconds)
        + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or_default())
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::sync::Weak;

    use microcache_store::{Clock, MemoryLimits, Tiers};

    use super::*;
    use crate::cache::Cache;
    use crate::flight::FlightLimits;

    fn cache() -> Cache {
        let memory = MemoryLimits {
            capacity: 1 << 20,
            object: 1 << 16,
            variants: 8,
        };
        let flights = FlightLimits::of_one(10, 10);
        Cache::new(memory, flights, Tiers::default(), Clock::start())
    }

    fn job(demand: u32) -> CompressionJob {
        CompressionJob {
            key: b"a page"[..].into(),
            encodings: Weak::new(),
            task: EncodingTask::Encode(EncodingMethod::Fast(Coding::Gzip)),
            demand,
        }
    }

    #[test]
    fn a_full_queue_refuses_without_a_lock() {
        let (cache, mut compressor) = (Arc::new(cache()), Compressor::new());
        // No thread takes jobs from the queue.
        compressor.threads = 0;
        for demand in [3, 5] {
            assert!(compressor.has_place(1));
            compressor.ask(&cache, job(demand), 2);
        }
        let locked = compressor.shared.state.lock();
        assert!(!compressor.has_place(1) && !compressor.has_place(3));
        assert!(compressor.has_place(4));
        drop(locked);
        assert_eq!(compressor.stats().refused, 2);
        compressor.ask(&cache, job(4), 2);
        assert!(!compressor.has_place(4));
        assert!(compressor.shared.next().is_some());
        assert!(compressor.has_place(1));
        assert_eq!(compressor.stats().refused, 4);
    }

    #[cfg(feature = "compress")]
    #[test]
    fn encodings_take_no_more_memory_than_their_length() {
        use microcache_policy::{Fields, Lifetime, OriginView, Rules, Time};
        use microcache_store::Stored;

        let (cache, compressor, rules) = (cache(), Compressor::new(), Rules::default());
        let request = OriginView {
            fields: Fields::default(),
            rules: &rules,
            address: "",
            is_trusted: false,
        };
        let (fields, now) = (Fields::default(), Time::default());
        let lifetime = Lifetime::from_bytes(&[0; Lifetime::ENCODED_LEN]).expect("zeros are one");
        let rows = (0..1000).map(|row| format!("<p>row {row}: {}</p>", row * row % 1009));
        let page = Bytes::from(rows.collect::<String>());
        let run = |task| {
            let body = page.clone().into();
            let stored = Stored::new(b"a page", 200, fields, body, lifetime, now);
            let hit = cache.memory().put(b"a page", stored, &request, now);
            let hit = hit.expect("it is small");
            let encoded = cache.memory().encoded(&hit, 1, |_| true);
            let encodings = Arc::clone(encoded.expect("it may be").bodies());
            let job = CompressionJob {
                encodings: Arc::downgrade(&encodings),
                task,
                ..job(1)
            };
            compressor.shared.work(cache.memory(), &job);
            encodings
        };
        let methods = Coding::ALL.map(EncodingMethod::Fast).into_iter();
        let mut all = Vec::new();
        for method in methods.chain([EncodingMethod::Best]) {
            all.extend(
                run(EncodingTask::Encode(method))
                    .body(method.coding())
                    .cloned(),
            );
        }
        for coding in DictionaryCoding::ALL {
            let encodings = run(EncodingTask::Compare(coding));
            all.extend(
                encodings
                    .bases()
                    .filter_map(|base| base.difference(coding))
                    .cloned(),
            );
        }
        assert_eq!(all.len(), 6);
        // The references that memory had are gone with the response.
        assert!(cache.memory().remove(b"a page"));
        for encoded in all {
            let length = encoded.len();
            let whole = encoded.try_into_mut().expect("nothing else refers to it");
            assert_eq!(whole.capacity(), length);
        }
    }
}
