//! The threads that verify passwords.
//!
//! bcrypt is slow on purpose, so requests wait for it in a bounded queue, and those of one address have a small part of
//! it: wrong passwords hold up neither hits nor other clients.

use std::collections::HashMap;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use microcache_policy::Network;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::credentials::Credentials;
use super::users::Users;
use crate::fingerprints::{DecisionTable, Fingerprint, FingerprintKey};

/// Limit of verifications that wait.
const QUEUE: usize = 128;
/// Limit of those of one client network.
const QUEUE_OF_NETWORK: usize = 16;
/// The time for which a password is accepted without another verification.
const LIFETIME: Duration = Duration::from_mins(5);
/// Limit of threads.
const MAX_THREADS: usize = 4;

/// The threads that verify passwords, and the results of late.
pub(crate) struct PasswordVerifier {
    key: FingerprintKey,
    /// The queue of the threads, which end when it is dropped.
    jobs: OnceLock<SyncSender<Verification>>,
    results: Arc<Mutex<PasswordResults>>,
}

/// The state of a password.
pub(crate) enum PasswordCheck {
    /// It was verified a short time ago.
    Accepted,
    /// It is being verified.
    Pending(PendingVerification),
    /// The client's network has too many verifications waiting.
    TooManyOfNetwork,
    /// Too many verifications wait.
    QueueFull,
}

/// A verification under way.
pub(crate) struct PendingVerification(watch::Receiver<Option<bool>>);

impl PendingVerification {
    /// Waits for the result: whether the password is right.
    pub(crate) async fn verified(mut self) -> bool {
        let result = self.0.wait_for(Option::is_some).await;
        result.is_ok_and(|result| *result == Some(true))
    }
}

#[derive(Default)]
struct PasswordResults {
    accepted: DecisionTable<()>,
    pending: HashMap<Fingerprint, watch::Receiver<Option<bool>>>,
    pending_of: HashMap<Network, usize>,
}

struct Verification {
    password: Vec<u8>,
    hash: Arc<str>,
    /// The name is a user's.
    is_known: bool,
    fingerprint: Fingerprint,
    network: Network,
    result: watch::Sender<Option<bool>>,
}

impl Default for PasswordVerifier {
    fn default() -> Self {
        Self {
            key: FingerprintKey::random(),
            jobs: OnceLock::new(),
            results: Arc::default(),
        }
    }
}

impl PasswordVerifier {
    /// Starts the threads with the first password.
    fn start(&self) -> io::Result<SyncSender<Verification>> {
        let (jobs, waiting) = sync_channel(QUEUE);
        let waiting = Arc::new(Mutex::new(waiting));
        let processors = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        for _ in 0..(processors / 2).clamp(1, MAX_THREADS) {
            let (waiting, results) = (Arc::clone(&waiting), Arc::clone(&self.results));
            thread::Builder::new()
                .name("passwords".to_owned())
                .spawn(move || verify_all(&waiting, &results))?;
        }
        Ok(jobs)
    }

    /// Queues a verification. Returns `false` if the queue is full.
    fn queue(&self, verification: Verification) -> bool {
        let jobs = match self.jobs.get() {
            Some(jobs) => jobs,
            None => match self.start() {
                Ok(jobs) => self.jobs.get_or_init(|| jobs),
                Err(_) => return false,
            },
        };
        jobs.try_send(verification).is_ok()
    }

    /// Looks a password up, or begins its verification. Requests with the same one share it.
    pub(crate) fn check(
        &self,
        users: &Users,
        credentials: &Credentials,
        network: Network,
    ) -> PasswordCheck {
        let (hash, is_known) = users.hash_of(credentials.user());
        let password = credentials.password();
        // With the hash: a change of the password in the file takes effect at once.
        let fingerprint = self.key.of([hash.as_bytes(), credentials.user(), password]);
        let mut results = self.results.lock();
        if results.accepted.get(&fingerprint, Instant::now()).is_some() {
            return PasswordCheck::Accepted;
        }
        if let Some(pending) = results.pending.get(&fingerprint) {
            return PasswordCheck::Pending(PendingVerification(pending.clone()));
        }
        let of_network = results.pending_of.get(&network).copied().unwrap_or(0);
        if of_network >= QUEUE_OF_NETWORK {
            return PasswordCheck::TooManyOfNetwork;
        }
        let (result, pending) = watch::channel(None);
        let verification = Verification {
            password: password.to_vec(),
            hash,
            is_known,
            fingerprint,
            network,
            result,
        };
        // Under the lock, so that it is listed before it is concluded.
        if !self.queue(verification) {
            return PasswordCheck::QueueFull;
        }
        results.pending.insert(fingerprint, pending.clone());
        results.pending_of.insert(network, of_network + 1);
        PasswordCheck::Pending(PendingVerification(pending))
    }
}

fn verify_all(waiting: &Mutex<Receiver<Verification>>, results: &Mutex<PasswordResults>) {
    loop {
        let next = waiting.lock().recv();
        let Ok(next) = next else {
            return;
        };
        let is_right = bcrypt::verify(&next.password, &next.hash).unwrap_or(false);
        results.lock().conclude(&next, is_right && next.is_known);
    }
}

impl PasswordResults {
    fn conclude(&mut self, verification: &Verification, is_right: bool) {
        self.pending.remove(&verification.fingerprint);
        if let Some(count) = self.pending_of.get_mut(&verification.network) {
            *count -= 1;
            if *count == 0 {
                self.pending_of.remove(&verification.network);
            }
        }
        if is_right {
            let now = Instant::now();
            let of = (verification.fingerprint, verification.network);
            self.accepted.insert(of, (), now + LIFETIME, now);
        }
        verification.result.send_replace(Some(is_right));
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use microcache_policy::Fields;

    use super::*;

    const NETWORK: Network = Network::from_bits(1);

    fn credentials(user: &str, password: &str) -> Credentials {
        let token = STANDARD.encode(format!("{user}:{password}"));
        let fields = format!("Authorization: Basic {token}\r\n");
        Credentials::of(Fields::new(fields.as_bytes())).expect("valid credentials")
    }

    fn users(user: &str, password: &str) -> Users {
        let hash = bcrypt::hash(password, 4).expect("a hash");
        Users::parse(&format!("{user}:{hash}")).expect("a file")
    }

    async fn is_right(verifier: &PasswordVerifier, users: &Users, user: &str, pass: &str) -> bool {
        match verifier.check(users, &credentials(user, pass), NETWORK) {
            PasswordCheck::Pending(pending) => pending.verified().await,
            _ => panic!("no verification of {user} {pass}"),
        }
    }

    #[tokio::test]
    async fn right_passwords_are_remembered_and_others_are_not() {
        let verifier = PasswordVerifier::default();
        let users = users("ann", "secret");
        let is_accepted = |users: &Users, user, password| {
            let check = verifier.check(users, &credentials(user, password), NETWORK);
            matches!(check, PasswordCheck::Accepted)
        };
        for _ in 0..2 {
            assert!(!is_right(&verifier, &users, "ann", "wrong").await);
            assert!(!is_right(&verifier, &users, "ann", "").await);
            assert!(!is_right(&verifier, &users, "eve", "secret").await);
            assert!(!is_right(&verifier, &users, "", "secret").await);
        }
        assert!(is_right(&verifier, &users, "ann", "secret").await);
        assert!(is_accepted(&users, "ann", "secret"));
        assert!(!is_accepted(&users, "ann", "wrong"));
        // A reload with another password or without the user takes effect at once.
        let changed = self::users("ann", "other");
        assert!(!is_right(&verifier, &changed, "ann", "secret").await);
        let empty = Users::parse("").expect("an empty file");
        assert!(!is_right(&verifier, &empty, "ann", "secret").await);
        // The password of the decoy is not one.
        assert!(!is_right(&verifier, &empty, "eve", "abcdefghijklmnopqrstuvwxyz").await);
    }

    #[test]
    fn the_queue_and_the_part_of_a_network_are_bounded() {
        let (jobs, waiting) = sync_channel(QUEUE);
        let verifier = PasswordVerifier {
            key: FingerprintKey::random(),
            jobs: jobs.into(),
            results: Arc::default(),
        };
        let users = users("ann", "secret");
        let check = |password: usize, network| {
            let credentials = credentials("ann", &password.to_string());
            verifier.check(&users, &credentials, Network::from_bits(network))
        };
        let is_pending = |check: &PasswordCheck| matches!(check, PasswordCheck::Pending(_));
        for password in 0..QUEUE_OF_NETWORK {
            assert!(is_pending(&check(password, 1)));
        }
        assert!(matches!(check(1000, 1), PasswordCheck::TooManyOfNetwork));
        // The same password is verified once.
        assert!(is_pending(&check(0, 1)) && is_pending(&check(0, 2)));
        for password in QUEUE_OF_NETWORK..QUEUE {
            assert!(is_pending(&check(password, 1000 + password as u64)));
        }
        assert!(matches!(check(1000, 2), PasswordCheck::QueueFull));
        let first = waiting.recv().expect("a verification");
        verifier.results.lock().conclude(&first, false);
        assert!(is_pending(&check(1000, 1)));
        drop(waiting);
    }
}
