//! Maintenance mode, which an operator switches on and off. It survives reloads and upgrades, not restarts.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::config::Cidr;

/// The most blocks of addresses that one command may admit, so that a handover can name them in one message.
pub const MAX_ALLOWED: usize = 64;

/// Maintenance mode as it was switched on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Maintenance {
    /// Time at which it was switched on, in seconds since 1970.
    pub since: u64,
    /// Clients that are served as usual, in addition to `maintenance_allow`; at most [`MAX_ALLOWED`].
    pub allow: Vec<Cidr>,
    /// Seconds in `Retry-After`.
    pub retry_after: u32,
    /// Responses that need no request to the origin are sent.
    pub keep_cached: bool,
}

/// Maintenance mode, or none.
#[derive(Default)]
pub(crate) struct MaintenanceSwitch {
    is_on: AtomicBool,
    mode: Mutex<Option<Arc<Maintenance>>>,
}

impl Maintenance {
    /// Returns whether a client is served as usual. An unknown address is in no block.
    pub(crate) fn admits(&self, client: Option<IpAddr>) -> bool {
        client.is_some_and(|client| self.allow.iter().any(|block| block.contains(client)))
    }

    /// Encodes it for another process.
    fn encoded(&self) -> String {
        let Self {
            since,
            allow,
            retry_after,
            keep_cached,
        } = self;
        let mut text = format!("{since} {retry_after} {keep_cached}");
        for block in allow {
            text.push(' ');
            text.push_str(&block.to_string());
        }
        text
    }

    fn decoded(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        Some(Self {
            since: words.next()?.parse().ok()?,
            retry_after: words.next()?.parse().ok()?,
            keep_cached: words.next()?.parse().ok()?,
            allow: words.map(|word| word.parse().ok()).collect::<Option<_>>()?,
        })
    }
}

impl MaintenanceSwitch {
    /// Returns whether it is on.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Returns the mode if it is on.
    pub(crate) fn mode(&self) -> Option<Arc<Maintenance>> {
        self.mode.lock().clone()
    }

    /// Switches it on or off, unless `is_barred`, which is asked under the lock.
    pub(super) fn set_unless(
        &self,
        mode: Option<Maintenance>,
        is_barred: impl FnOnce() -> bool,
    ) -> bool {
        let mut current = self.mode.lock();
        if is_barred() {
            return false;
        }
        self.is_on.store(mode.is_some(), Ordering::Relaxed);
        *current = mode.map(Arc::new);
        true
    }

    /// Encodes the mode for the next process, if it is on.
    pub(crate) fn handover(&self) -> Option<String> {
        self.mode().map(|mode| mode.encoded())
    }

    /// Takes up the mode of the previous process. One that cannot be read stops all clients.
    pub(crate) fn take_up(&self, text: &str) {
        let unreadable = || Maintenance {
            retry_after: 60,
            ..Maintenance::default()
        };
        let mode = Maintenance::decoded(text).unwrap_or_else(unreadable);
        self.set_unless(Some(mode), || false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::handover::LONGEST;

    #[test]
    fn the_next_process_gets_the_mode_as_it_was_switched_on() {
        let before = MaintenanceSwitch::default();
        assert_eq!((before.is_on(), before.handover()), (false, None));
        let block: Cidr = "2001:db8:ffff:ffff:ffff:ffff:ffff:fff0/124"
            .parse()
            .expect("a block");
        let mode = Maintenance {
            since: u64::MAX,
            allow: [
                vec!["192.0.2.7".parse().expect("an address")],
                vec![block; MAX_ALLOWED - 1],
            ]
            .concat(),
            retry_after: u32::MAX,
            keep_cached: true,
        };
        assert!(before.set_unless(Some(mode.clone()), || false));
        let text = before.handover().expect("it is on");
        assert!(text.len() < LONGEST - 20, "{}", text.len());
        let after = MaintenanceSwitch::default();
        after.take_up(&text);
        assert!(after.is_on());
        assert_eq!(after.mode().as_deref(), Some(&mode));
        assert!(mode.admits("192.0.2.7".parse().ok()));
        assert!(!mode.admits("192.0.2.8".parse().ok()) && !mode.admits(None));
        assert!(!after.set_unless(None, || true));
        assert!(after.is_on());
        assert!(after.set_unless(None, || false));
        assert_eq!((after.is_on(), after.mode()), (false, None));
    }

    #[test]
    fn a_mode_that_cannot_be_read_admits_no_client() {
        let after = MaintenanceSwitch::default();
        for text in ["", "1 60", "1 60 true somewhere"] {
            after.take_up(text);
            let mode = after.mode().expect("it is on");
            assert!(mode.allow.is_empty() && !mode.keep_cached, "{text}");
        }
    }
}
