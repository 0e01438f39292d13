//! A model of one body with many readers that join, leave, pause and continue, small limits, and a
//! random order. In every order each reader that joined gets the complete body.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;

use super::{Fill, FillBudget, FillReader};
use crate::body::{BodyError, Frame};
use crate::request::route::Clients;

const RUNS: u64 = 5_000;
/// The budget: more than twice the longest body, so that no reader is dropped.
const BUDGET: u64 = 200_000;

#[test]
fn every_admitted_reader_gets_the_whole_body() {
    for seed in 1..=RUNS {
        Run::new(seed).play();
    }
}

/// A seeded random generator (xorshift64*).
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }
}

/// A task that must not be polled before it is woken.
struct Woken(AtomicBool);

impl Woken {
    fn new() -> Arc<Self> {
        Arc::new(Self(AtomicBool::new(true)))
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

enum Client {
    /// Notified of the body, and not polled since.
    Informed,
    Reading(FillReader, u64, Arc<Woken>),
    Gone,
}

struct Run {
    seed: u64,
    chance: Chance,
    fill: Arc<Fill>,
    body: Bytes,
    sent: usize,
    limit: u64,
    breaks_off: bool,
    /// Keeps its share of the budget.
    _other: Arc<Fill>,
    pump: Option<Arc<Woken>>,
    clients: Vec<Client>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut chance = Chance(seed);
        let length = chance.below(60) * 1000;
        let body: Bytes = (0..length).map(|at| (at % 251) as u8).collect();
        // Another body takes some of the budget, so that it can be exhausted.
        let budget = Arc::new(FillBudget::new(BUDGET, Clients::Visitors));
        let other = Fill::new(&budget);
        other.push(vec![0; chance.below(BUDGET) as usize].into(), u64::MAX);
        let fill = Fill::new(&budget);
        let first = match chance.below(3) {
            0 => Client::Gone,
            _ => Client::Reading(fill.reader().expect("nothing is gone"), 0, Woken::new()),
        };
        let clients = (0..chance.below(6)).map(|_| Client::Informed);
        Self {
            seed,
            limit: chance.below(80_000),
            breaks_off: chance.below(8) == 0,
            clients: std::iter::once(first).chain(clients).collect(),
            fill,
            body,
            sent: 0,
            _other: other,
            pump: Some(Woken::new()),
            chance,
        }
    }

    fn play(mut self) {
        for _ in 0..self.chance.below(200) {
            self.step(true);
        }
        let mut idle = 0;
        while idle < 1000 && !self.is_over() {
            idle = if self.step(false) { 0 } else { idle + 1 };
        }
        assert!(self.is_over(), "seed {}: somebody was not woken", self.seed);
    }

    fn is_over(&self) -> bool {
        let gone = |client: &Client| matches!(client, Client::Gone);
        self.pump.is_none() && self.clients.iter().all(gone)
    }

    /// Returns whether the step changed anything.
    fn step(&mut self, may_leave: bool) -> bool {
        let who = self.chance.below(self.clients.len() as u64 + 1) as usize;
        if who == self.clients.len() {
            return self.step_pump();
        }
        if may_leave && self.chance.below(30) == 0 {
            self.clients[who] = Client::Gone;
        }
        self.step_client(who)
    }

    fn step_pump(&mut self) -> bool {
        let Some(woken) = &self.pump else {
            return false;
        };
        if !woken.0.swap(false, Ordering::Relaxed) {
            return false;
        }
        let waker = Waker::from(Arc::clone(woken));
        let end = match self.fill.poll_ready(&mut Context::from_waker(&waker)) {
            Poll::Pending => return true,
            Poll::Ready(Err(_)) => Err(BodyError::Disconnected),
            Poll::Ready(Ok(())) if self.sent < self.body.len() => {
                let most = (self.body.len() - self.sent).min(10_000) as u64;
                let length = 1 + self.chance.below(most) as usize;
                let chunk = self.body.slice(self.sent..self.sent + length);
                self.sent += length;
                self.fill.push(chunk, self.limit);
                woken.0.store(true, Ordering::Relaxed);
                return true;
            }
            Poll::Ready(Ok(())) if self.breaks_off => Err(BodyError::Incomplete),
            Poll::Ready(Ok(())) => Ok(None),
        };
        self.fill.finish(end);
        self.pump = None;
        true
    }

    fn step_client(&mut self, who: usize) -> bool {
        let next = match std::mem::replace(&mut self.clients[who], Client::Gone) {
            Client::Gone => return false,
            // `None`: it fetches for itself.
            Client::Informed => match self.fill.reader() {
                Some(reader) => Client::Reading(reader, 0, Woken::new()),
                None => Client::Gone,
            },
            Client::Reading(reader, got, woken) if !woken.0.load(Ordering::Relaxed) => {
                self.clients[who] = Client::Reading(reader, got, woken);
                return false;
            }
            Client::Reading(mut reader, got, woken) => {
                let waker = Waker::from(Arc::clone(&woken));
                match reader.poll_frame(&mut Context::from_waker(&waker)) {
                    Poll::Pending => {
                        woken.0.store(false, Ordering::Relaxed);
                        Client::Reading(reader, got, woken)
                    }
                    Poll::Ready(Some(Ok(Frame::Data(data)))) => {
                        let from = got as usize;
                        let part = &self.body[from..from + data.len()];
                        assert!(data == part, "seed {}: bytes from elsewhere", self.seed);
                        Client::Reading(reader, got + data.len() as u64, woken)
                    }
                    Poll::Ready(Some(Ok(Frame::Trailers(_)))) => unreachable!("there are none"),
                    Poll::Ready(None) => {
                        assert_eq!(got, self.body.len() as u64, "seed {}: a part", self.seed);
                        Client::Gone
                    }
                    Poll::Ready(Some(Err(error))) => {
                        let theirs = self.breaks_off && self.sent == self.body.len();
                        assert!(theirs, "seed {}: broke off: {error}", self.seed);
                        Client::Gone
                    }
                }
            }
        };
        self.clients[who] = next;
        true
    }
}
