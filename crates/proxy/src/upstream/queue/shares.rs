//! Permits of uploads, shared fairly by addresses.
//!
//! An address gets a permit while it holds fewer than are free: a single address gets half of them, two get a third
//! each, and one stays free for the next address until many addresses hold some. After that, the slowest upload of
//! the address with most is ended for an address without any. If no address holds more than one, only an upload
//! slower than [`SLOW`] is ended: many addresses can take all permits, but not with clients that hardly send.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use microcache_engine::Holdings;
use microcache_policy::Network;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Bytes per second below which an upload may be ended even if it is the only one of its address.
const SLOW: u64 = 16 * 1024;
/// Longest time in seconds for which earlier speed keeps an upload from counting as slow.
const AHEAD: u64 = 10;

/// Places held by uploads.
#[derive(Debug, Default)]
pub(super) struct UploadPermits {
    taken: HashMap<u64, SlotHolder>,
    /// Permits of uploads that were not asked to end.
    kept: Holdings,
    last: u64,
}

/// An upload that holds a place.
#[derive(Debug)]
struct SlotHolder {
    network: Network,
    pace: Arc<Mutex<UploadRate>>,
    /// `None` once the upload was asked to end.
    end: Option<oneshot::Sender<()>>,
}

/// Transfer rate of an upload.
#[derive(Debug)]
struct UploadRate {
    began: Instant,
    sent: u64,
    /// Bytes received beyond [`SLOW`], at the last piece.
    ahead: u64,
    last: Instant,
}

/// A place, as held by its upload.
#[derive(Debug)]
pub(super) struct UploadSlot {
    pub(super) number: u64,
    pace: Arc<Mutex<UploadRate>>,
    /// `None` once it has resolved.
    ended: Option<oneshot::Receiver<()>>,
}

impl UploadPermits {
    /// Returns true if an address may hold one more place of `of`.
    pub(super) fn may_take(&self, network: Network, of: usize) -> bool {
        let free = of.saturating_sub(self.taken.len());
        self.kept.may_add(network, free)
    }

    /// Takes a place.
    pub(super) fn take(&mut self, network: Network) -> UploadSlot {
        self.last += 1;
        let (end, ended) = oneshot::channel();
        let pace = Arc::new(Mutex::new(UploadRate::new()));
        let holder = SlotHolder {
            network,
            pace: Arc::clone(&pace),
            end: Some(end),
        };
        self.taken.insert(self.last, holder);
        self.kept.add(network, self.last);
        UploadSlot {
            number: self.last,
            pace,
            ended: Some(ended),
        }
    }

    /// Frees a place.
    pub(super) fn give_back(&mut self, number: u64) {
        if let Some(holder) = self.taken.remove(&number) {
            self.kept.remove(holder.network, number);
        }
    }

    /// Asks an upload to end for the first one of this address, if one has to. Returns its address. Its permit is
    /// free once it has ended.
    pub(super) fn end_one_for(&mut self, newcomer: Network) -> Option<Network> {
        if self.kept.count(newcomer) > 0 {
            return None;
        }
        let most = self.kept.most();
        let kept = &self.kept;
        let now = Instant::now();
        let candidates = self.taken.iter_mut().filter(|(_, holder)| {
            let may_end = most > 1 || holder.pace.lock().is_slow(now);
            holder.end.is_some() && kept.count(holder.network) == most && may_end
        });
        let slowest =
            candidates.min_by_key(|(number, holder)| (holder.pace.lock().rate(now), **number));
        let (&number, holder) = slowest?;
        // It counts as taken until it is given back.
        let _ = holder.end.take()?.send(());
        self.kept.remove(holder.network, number);
        Some(holder.network)
    }
}

impl UploadRate {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            began: now,
            sent: 0,
            ahead: 0,
            last: now,
        }
    }

    fn ahead_at(&self, now: Instant) -> u64 {
        let passed = now.duration_since(self.last).as_millis() as u64;
        self.ahead
            .saturating_sub(passed.saturating_mul(SLOW) / 1000)
    }

    fn count(&mut self, bytes: u64, now: Instant) {
        self.sent = self.sent.saturating_add(bytes);
        self.ahead = (self.ahead_at(now) + bytes).min(AHEAD * SLOW);
        self.last = now;
    }

    fn is_slow(&self, now: Instant) -> bool {
        self.ahead_at(now) == 0
    }

    /// Bytes per second, on average.
    fn rate(&self, now: Instant) -> u64 {
        let took = now.duration_since(self.began).max(Duration::from_secs(1));
        self.sent.saturating_mul(1000) / took.as_millis() as u64
    }
}

impl UploadSlot {
    /// Counts received bytes.
    pub(super) fn count(&self, bytes: usize) {
        self.pace.lock().count(bytes as u64, Instant::now());
    }

    /// Resolves if the upload has to give way.
    pub(super) fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(ended) = &mut self.ended else {
            return Poll::Pending;
        };
        let Poll::Ready(ended) = Pin::new(ended).poll(cx) else {
            return Poll::Pending;
        };
        self.ended = None;
        ended.map_or(Poll::Pending, Poll::Ready)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    const fn address(bits: u64) -> Network {
        Network::from_bits(bits)
    }

    fn has_to_end(taken: &mut UploadSlot) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        taken.poll_ended(&mut cx).is_ready()
    }

    /// Takes as many as one address may have.
    fn fill(shares: &mut UploadPermits, network: Network, of: usize) -> Vec<UploadSlot> {
        let mut taken = Vec::new();
        while shares.may_take(network, of) {
            taken.push(shares.take(network));
        }
        taken
    }

    #[tokio::test(start_paused = true)]
    async fn many_addresses_that_fill_all_places_give_way_to_the_next() {
        let mut shares = UploadPermits::default();
        let mut all: Vec<_> = (1..=6)
            .map(|number| fill(&mut shares, address(number), 32))
            .collect();
        let counts: Vec<_> = all.iter().map(Vec::len).collect();
        assert_eq!(counts, [16, 8, 4, 2, 1, 1]);
        tokio::time::advance(Duration::from_secs(5)).await;
        // The slowest of the one with most, however slow others are.
        for (number, taken) in all[0].iter().enumerate() {
            taken.count(1000 * number.abs_diff(7) + 1);
        }
        let newcomer = address(7);
        assert!(!shares.may_take(newcomer, 32));
        assert_eq!(shares.end_one_for(newcomer), Some(address(1)));
        let ended: Vec<_> = all.iter_mut().flatten().map(has_to_end).collect();
        assert_eq!(ended.iter().filter(|ended| **ended).count(), 1);
        assert!(ended[7]);
        // It is free when that has noticed, and not for the address that had it.
        assert!(!shares.may_take(newcomer, 32));
        shares.give_back(all[0].remove(7).number);
        assert!(!shares.may_take(address(1), 32) && !shares.may_take(address(6), 32));
        assert!(shares.may_take(newcomer, 32));
        let place = shares.take(newcomer);
        assert_eq!(shares.end_one_for(newcomer), None, "it has one");
        assert_eq!(shares.end_one_for(address(8)), Some(address(1)));
        shares.give_back(place.number);
        for taken in all.into_iter().flatten() {
            shares.give_back(taken.number);
        }
        assert_eq!(fill(&mut shares, newcomer, 32).len(), 16);
    }

    #[tokio::test(start_paused = true)]
    async fn where_each_address_has_one_only_a_slow_upload_gives_way() {
        let mut shares = UploadPermits::default();
        let mut all: Vec<_> = (1..=4).map(|number| shares.take(address(number))).collect();
        for second in 1..=60 {
            tokio::time::advance(Duration::from_secs(1)).await;
            for (number, taken) in all.iter().enumerate() {
                // The first has sent much, and then nothing; the second is slow all the time.
                match number {
                    0 if second <= 20 => taken.count(10 << 20),
                    0 => {}
                    1 => taken.count(SLOW as usize - 1),
                    _ => taken.count(SLOW as usize + 1),
                }
            }
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        let ended = |all: &mut [UploadSlot]| all.iter_mut().map(has_to_end).collect::<Vec<_>>();
        assert_eq!(shares.end_one_for(address(5)), Some(address(2)));
        assert_eq!(ended(&mut all), [false, true, false, false]);
        assert_eq!(shares.end_one_for(address(5)), Some(address(1)));
        assert_eq!(ended(&mut all), [true, false, false, false]);
        assert_eq!(shares.end_one_for(address(5)), None, "the others move");
    }
}
