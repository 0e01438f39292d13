//! The previous process, while it drains after a handover.
//!
//! A purge applies here at once. It is forwarded to the previous process on the handover line, and confirmed
//! when it applies there; the line closes when that process ends.

use std::sync::Arc;

use microcache_engine::cache::{Rule, Scope, Strength};
use microcache_policy::Time;
use microcache_store::Epoch;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::handover::{HandoverChannel, LONGEST};

/// Prefix of a purge message.
const PURGE: &str = "purge ";
/// Confirmation of a purge.
const PURGED: &str = "purged";

#[derive(Default)]
pub(crate) struct Predecessor {
    serves: watch::Sender<bool>,
    /// Set once this process has taken over.
    line: watch::Sender<Option<Arc<HandoverChannel>>>,
    /// Number of purges forwarded.
    forwarded: Mutex<u64>,
    /// Number of purges confirmed.
    confirmed: watch::Sender<u64>,
}

impl Predecessor {
    /// Sets whether the previous process still serves.
    pub(crate) fn set_serves(&self, serves: bool) {
        self.serves.send_replace(serves);
    }

    /// Receives its confirmations until it ends.
    pub(crate) fn hear_until_end(&self, line: HandoverChannel) {
        let line = Arc::new(line);
        self.line.send_replace(Some(Arc::clone(&line)));
        line.wait_for_ever();
        while let Ok(Some((word, _))) = line.hear() {
            if word == PURGED {
                self.confirmed.send_modify(|confirmed| *confirmed += 1);
            }
        }
        self.set_serves(false);
    }

    /// Completes when these purges apply in the previous process too, or it serves nothing any more.
    pub(crate) async fn purge(self: &Arc<Self>, rules: &[Rule]) {
        if rules.is_empty() || !*self.serves.borrow() {
            return;
        }
        let words: Vec<_> = rules.iter().map(word).collect();
        let forwarded = async {
            let Some(line) = self.line().await else {
                return;
            };
            let this = Arc::clone(self);
            let forwarded = spawn_blocking(move || this.forward(&line, &words)).await;
            if let Ok(Some(number)) = forwarded {
                let mut confirmed = self.confirmed.subscribe();
                let _ = confirmed.wait_for(|&confirmed| confirmed >= number).await;
            } else {
                self.has_ended().await;
            }
        };
        tokio::select! {
            () = forwarded => {}
            () = self.has_ended() => {}
        }
    }

    /// Forwards purges, and returns the number of all forwarded ones.
    fn forward(&self, line: &HandoverChannel, words: &[String]) -> Option<u64> {
        let mut forwarded = self.forwarded.lock();
        for word in words {
            line.say(word, None).ok()?;
            *forwarded += 1;
        }
        Some(*forwarded)
    }

    /// Waits for the line.
    async fn line(&self) -> Option<Arc<HandoverChannel>> {
        let mut line = self.line.subscribe();
        let there_is_one = line.wait_for(Option::is_some).await;
        there_is_one.ok().and_then(|line| line.clone())
    }

    async fn has_ended(&self) {
        let mut serves = self.serves.subscribe();
        let _ = serves.wait_for(|&serves| !serves).await;
    }
}

/// Encodes a purge. One that is too long for a message becomes a purge of everything: the previous process
/// ends soon, and fetches again what it needs.
fn word(rule: &Rule) -> String {
    let epoch = Epoch::now();
    let encoded = |rule: &Rule| format!("{PURGE}{}", hex::encode(rule.encode(&epoch)));
    let word = encoded(rule);
    if word.len() <= LONGEST {
        return word;
    }
    encoded(&Rule {
        scope: Scope::Everything,
        ..rule.clone()
    })
}

/// Applies the purges that the successor forwards, until the line closes.
pub(crate) fn follow_successor(line: &HandoverChannel, purge: impl Fn(Rule)) {
    line.wait_for_ever();
    while let Ok(Some((word, _))) = line.hear() {
        let encoded = word.strip_prefix(PURGE).map(hex::decode);
        let Some(Ok(encoded)) = encoded else { continue };
        // Both processes mostly run the same program. An unreadable purge may have named anything.
        let rule = Rule::decode(&encoded, &Epoch::now()).unwrap_or_else(everything);
        purge(rule);
        if line.say(PURGED, None).is_err() {
            return;
        }
    }
}

fn everything() -> Rule {
    Rule {
        id: 0,
        scope: Scope::Everything,
        strength: Strength::Hard,
        at: Time::default(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use bytes::Bytes;

    use super::*;

    fn tag(id: u64, length: usize) -> Rule {
        Rule {
            id,
            scope: Scope::Tag(Bytes::from("x".repeat(length))),
            strength: Strength::Soft,
            at: Time::from_secs(1),
        }
    }

    #[tokio::test]
    async fn a_purge_counts_in_both_processes_when_it_is_answered() {
        let (old, new) = HandoverChannel::pair().expect("a pair");
        let new = HandoverChannel::of(new).expect("an end");
        let (purge, purged) = mpsc::channel();
        let before = Arc::new(Predecessor::default());
        before.purge(&[tag(1, 1)]).await;
        before.set_serves(true);
        let hears = Arc::clone(&before);
        let hears = thread::spawn(move || hears.hear_until_end(new));
        let follows = thread::spawn(move || {
            follow_successor(&old, |rule| purge.send(rule).expect("somebody wants it"));
        });
        before.purge(&[tag(2, 10), tag(3, LONGEST)]).await;
        let known: Vec<_> = purged.try_iter().collect();
        assert_eq!(known[0], tag(2, 10));
        assert_eq!((known[1].id, &known[1].scope), (3, &Scope::Everything));
        assert_eq!(known.len(), 2);
        drop((hears, follows));
    }

    #[tokio::test]
    async fn a_process_that_ends_is_not_waited_for() {
        let (old, new) = HandoverChannel::pair().expect("a pair");
        let new = HandoverChannel::of(new).expect("an end");
        let before = Arc::new(Predecessor::default());
        before.set_serves(true);
        let hears = Arc::clone(&before);
        let hears = thread::spawn(move || hears.hear_until_end(new));
        let rules = [tag(1, 1)];
        let purged = before.purge(&rules);
        let ends = async { drop(old) };
        tokio::join!(purged, ends);
        hears.join().expect("it has ended");
        before.purge(&[tag(2, 1)]).await;
    }
}
