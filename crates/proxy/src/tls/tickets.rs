//! Session tickets, for abbreviated handshakes.
//!
//! Their keys are rotated twice a day and kept for one more period, which bounds the harm of a stolen key
//! (RFC 8446 §8.1, RFC 5077 §5.5). The keys survive a reload and are handed over to the next process.
//! Processes with the same fleet secrets derive the same keys.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::{hmac, rand};
use parking_lot::Mutex;
use rustls::server::ProducesTickets;

/// Time for which a key seals tickets, in seconds. It opens them for as long again.
const PERIOD: u64 = 12 * 60 * 60;
const NAME: usize = 16;
const SEED: usize = 32;

/// Secret that the name and the key are derived from.
type Seed = [u8; SEED];

/// Seals tickets and opens them.
pub(crate) struct Tickets {
    source: KeySource,
    now: fn() -> u64,
    keys: Mutex<TicketKeys>,
}

/// Source of the keys.
enum KeySource {
    /// Random keys of this process.
    Own,
    /// Secrets shared with other processes. The first one seals; all open.
    Fleet(Vec<Seed>),
}

/// The keys of one period.
struct TicketKeys {
    period: u64,
    /// Seeds of random keys, the current one first; empty for a fleet's.
    seeds: Vec<Seed>,
    /// The first one seals.
    open: Vec<Arc<TicketKey>>,
}

struct TicketKey {
    /// Key name, which begins a ticket.
    name: [u8; NAME],
    key: LessSafeKey,
}

impl Tickets {
    /// Returns the random keys of this process, which reloads do not change.
    pub(crate) fn of_this_process() -> Arc<Self> {
        static TICKETS: LazyLock<Arc<Tickets>> = LazyLock::new(|| Arc::new(Tickets::own()));
        Arc::clone(&TICKETS)
    }

    fn own() -> Self {
        Self::from(KeySource::Own, unix_time)
    }

    /// Derives the keys from secrets, of which the first one seals.
    pub(crate) fn of_fleet<'a>(secrets: impl Iterator<Item = &'a [u8]>) -> Self {
        let seed = |secret: &[u8]| derived(secret, b"microcache session tickets");
        Self::from(KeySource::Fleet(secrets.map(seed).collect()), unix_time)
    }

    fn from(source: KeySource, now: fn() -> u64) -> Self {
        let keys = TicketKeys {
            period: 0,
            seeds: Vec::new(),
            open: Vec::new(),
        };
        Self {
            source,
            now,
            keys: Mutex::new(keys),
        }
    }

    /// Serialises the keys for the next process; `None` if it can derive them itself.
    pub(crate) fn handover(&self) -> Option<String> {
        self.keys()?;
        let keys = self.keys.lock();
        let seeds = keys.seeds.iter().map(hex::encode);
        let seeds: Vec<String> = seeds.collect();
        (!seeds.is_empty()).then(|| format!("{} {}", keys.period, seeds.join(" ")))
    }

    /// Takes over keys of another process. Malformed ones are ignored, and clients perform full handshakes.
    pub(crate) fn take_up(&self, handed: &str) {
        let mut words = handed.split(' ');
        let period = words.next().and_then(|period| period.parse().ok());
        let seeds: Option<Vec<Seed>> = words.map(seed_of).collect();
        if let (KeySource::Own, Some(period), Some(seeds)) = (&self.source, period, seeds) {
            let open = seeds.iter().filter_map(TicketKey::of).collect();
            *self.keys.lock() = TicketKeys {
                period,
                seeds,
                open,
            };
        }
    }

    /// Returns the current keys, the sealing one first; `None` if the random generator fails.
    fn keys(&self) -> Option<Vec<Arc<TicketKey>>> {
        let period = (self.now)() / PERIOD;
        let mut keys = self.keys.lock();
        if keys.open.is_empty() || keys.period != period {
            *keys = match &self.source {
                KeySource::Own => keys.succeeded(period)?,
                KeySource::Fleet(secrets) => TicketKeys::of_fleet(secrets, period),
            };
        }
        Some(keys.open.clone())
    }
}

impl TicketKeys {
    /// Keys of another period: a new one seals, and the previous one still opens if it is of the period
    /// before.
    fn succeeded(&self, period: u64) -> Option<Self> {
        let mut seeds = vec![[0; SEED]];
        rand::fill(&mut seeds[0]).ok()?;
        if self.period + 1 == period {
            seeds.extend(self.seeds.first());
        }
        let open = seeds.iter().filter_map(TicketKey::of).collect();
        Some(Self {
            period,
            seeds,
            open,
        })
    }

    /// Keys of a fleet; those of the next period open as well, since clocks differ.
    fn of_fleet(secrets: &[Seed], period: u64) -> Self {
        let of = |period: u64| {
            let seed = move |secret: &Seed| derived(secret, &period.to_be_bytes());
            secrets.iter().map(seed)
        };
        let seeds = of(period)
            .chain(of(period.saturating_sub(1)))
            .chain(of(period + 1));
        Self {
            period,
            open: seeds.filter_map(|seed| TicketKey::of(&seed)).collect(),
            seeds: Vec::new(),
        }
    }
}

impl TicketKey {
    fn of(seed: &Seed) -> Option<Arc<Self>> {
        let mut name = [0; NAME];
        name.copy_from_slice(&derived(seed, b"name")[..NAME]);
        let key = UnboundKey::new(&AES_256_GCM, &derived(seed, b"key")).ok()?;
        let key = LessSafeKey::new(key);
        Some(Arc::new(Self { name, key }))
    }
}

/// Tickets of the sessions of one configuration. A session keeps the client certificate of its first handshake, or the
/// lack of one: it is not resumed where certificates of other authorities are asked for.
#[derive(Debug)]
pub(super) struct BoundTickets {
    tickets: Arc<Tickets>,
    /// Fingerprint of the authorities; empty where no certificate is asked for.
    authorities: String,
}

impl BoundTickets {
    pub(super) const fn new(tickets: Arc<Tickets>, authorities: String) -> Self {
        Self {
            tickets,
            authorities,
        }
    }

    /// Returns what a ticket is sealed and opened with in addition to its key.
    fn associated(&self, name: &[u8]) -> Aad<Vec<u8>> {
        Aad::from([name, self.authorities.as_bytes()].concat())
    }
}

impl ProducesTickets for BoundTickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        PERIOD as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let keys = self.tickets.keys()?;
        let key = keys.first()?;
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).ok()?;
        let mut sealed = plain.to_vec();
        let unique = Nonce::assume_unique_for_key(nonce);
        key.key
            .seal_in_place_append_tag(unique, self.associated(&key.name), &mut sealed)
            .ok()?;
        Some([&key.name[..], &nonce, &sealed].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_at_checked(NAME)?;
        let (nonce, sealed) = rest.split_at_checked(NONCE_LEN)?;
        let keys = self.tickets.keys()?;
        let key = keys.iter().find(|key| key.name == name)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut opened = sealed.to_vec();
        let plain = key
            .key
            .open_in_place(nonce, self.associated(&key.name), &mut opened);
        plain.ok().map(|plain| plain.to_vec())
    }
}

/// Leaves the keys out.
impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tickets")
    }
}

fn derived(secret: &[u8], what: &[u8]) -> Seed {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let mut seed = [0; SEED];
    seed.copy_from_slice(hmac::sign(&key, what).as_ref());
    seed
}

fn unix_time() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

fn seed_of(digits: &str) -> Option<Seed> {
    let mut seed = [0; SEED];
    hex::decode_to_slice(digits, &mut seed).ok()?;
    Some(seed)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    impl Tickets {
        /// Returns these tickets for a configuration that asks for no certificates.
        fn unbound(self) -> BoundTickets {
            BoundTickets::new(Arc::new(self), String::new())
        }
    }

    /// Every test that changes the time has a clock of its own.
    macro_rules! clock {
        ($name:ident) => {{
            static $name: AtomicU64 = AtomicU64::new(100 * PERIOD);
            fn now() -> u64 {
                $name.load(Ordering::Relaxed)
            }
            (now as fn() -> u64, &$name)
        }};
    }

    #[test]
    fn a_ticket_is_accepted_for_one_more_period() {
        let (now, clock) = clock!(ROTATION);
        let tickets = Tickets::from(KeySource::Own, now).unbound();
        let ticket = tickets.encrypt(b"secrets").unwrap();
        assert_eq!(tickets.decrypt(&ticket).unwrap(), b"secrets");
        clock.fetch_add(PERIOD, Ordering::Relaxed);
        assert_eq!(tickets.decrypt(&ticket).unwrap(), b"secrets");
        let next = tickets.encrypt(b"secrets").unwrap();
        assert_ne!(ticket[..NAME], next[..NAME], "sealed with another key");
        clock.fetch_add(PERIOD, Ordering::Relaxed);
        assert_eq!(tickets.decrypt(&ticket), None);
        assert_eq!(tickets.decrypt(&next).unwrap(), b"secrets");
        clock.fetch_add(2 * PERIOD, Ordering::Relaxed);
        assert_eq!(tickets.decrypt(&next), None);
    }

    #[test]
    fn a_changed_or_truncated_ticket_is_refused() {
        let tickets = Tickets::own().unbound();
        let ticket = tickets.encrypt(b"secrets").unwrap();
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!(tickets.decrypt(&changed), None, "{at}");
            assert_eq!(tickets.decrypt(&ticket[..at]), None, "{at}");
        }
        assert_eq!(Tickets::own().unbound().decrypt(&ticket), None);
    }

    #[test]
    fn a_ticket_is_for_the_authorities_that_were_asked_for() {
        let tickets = Arc::new(Tickets::own());
        let [none, first, second] = ["", "a", "b"]
            .map(|authorities| BoundTickets::new(Arc::clone(&tickets), authorities.to_owned()));
        for (own, others) in [
            (&none, [&first, &second]),
            (&first, [&none, &second]),
            (&second, [&none, &first]),
        ] {
            let ticket = own.encrypt(b"secrets").unwrap();
            assert_eq!(own.decrypt(&ticket).unwrap(), b"secrets");
            assert!(others.iter().all(|other| other.decrypt(&ticket).is_none()));
        }
    }

    #[test]
    fn a_successor_opens_the_tickets_of_its_predecessor() {
        let before = Tickets::own().unbound();
        let ticket = before.encrypt(b"secrets").unwrap();
        let after = Tickets::own().unbound();
        for nonsense in ["", "x", "1", "1 zz", &"é".repeat(40)] {
            after.tickets.take_up(nonsense);
        }
        assert_eq!(after.decrypt(&ticket), None);
        after.tickets.take_up(&before.tickets.handover().unwrap());
        assert_eq!(after.decrypt(&ticket).unwrap(), b"secrets");
    }

    #[test]
    fn a_fleet_opens_each_others_tickets_also_while_its_secret_changes() {
        let (now, clock) = clock!(FLEET);
        let of = |secrets: &[&[u8]]| {
            let Tickets { source, .. } = Tickets::of_fleet(secrets.iter().copied());
            Tickets::from(source, now).unbound()
        };
        let (old, both, new) = (of(&[b"old"]), of(&[b"new", b"old"]), of(&[b"new"]));
        let ticket = old.encrypt(b"secrets").unwrap();
        assert_eq!(both.decrypt(&ticket).unwrap(), b"secrets");
        assert_eq!(new.decrypt(&ticket), None);
        let ticket = both.encrypt(b"secrets").unwrap();
        assert_eq!(new.decrypt(&ticket).unwrap(), b"secrets");
        assert_eq!(old.decrypt(&ticket), None);
        assert_eq!(both.tickets.handover(), None, "everybody has the secrets");
        // A process whose clock is behind opens tickets of one that is ahead.
        clock.fetch_add(PERIOD, Ordering::Relaxed);
        let ahead = both.encrypt(b"secrets").unwrap();
        clock.fetch_sub(PERIOD, Ordering::Relaxed);
        assert_eq!(new.decrypt(&ahead).unwrap(), b"secrets");
    }
}
