//! Purge: removes entries from memory and the tiers, such that no earlier fetch brings them back.

use std::time::Duration;

use microcache_policy::{Fields, OriginView, Rules, Scheme, Time, key};
use microcache_store::{Hit, Key, Removal, Stored, TagNumbers, TierError, random};
use tokio::time::timeout;

use super::Cache;
use super::changes::ChangeKind;
use super::flight::Leader;
use super::rule::{Rule, RuleSubject, Scope, Strength};
use super::rules::{Covered, RuleNumber, RulePlaces};

/// The longest time an unsafe request waits until invalidated entries have left the tiers. After
/// its response no other process and no restart brings them back, and entries fetched next are not
/// removed with them. A hanging tier is not waited for longer.
const REMOVAL_WAIT: Duration = Duration::from_millis(500);

/// The most groups that the response to one unsafe request invalidates.
const MAX_INVALIDATED: usize = 128;

/// The result of a purge by rule.
#[derive(Debug)]
pub struct Purged {
    /// The rules.
    pub rules: Vec<Rule>,
    /// Success means that the rules survive this process, and reach the processes that share a
    /// tier, wherever entries do.
    pub written: Result<(), NotWritten>,
}

/// The progress of a purge rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleProgress {
    /// The rule.
    pub rule: Rule,
    /// The entries in memory that it has covered. One covered by several purges counts for the
    /// newest.
    pub entries: u64,
    /// All entries in memory have been checked against the rule.
    pub is_swept: bool,
}

/// The reason a purge rule is not in effect everywhere, or may be lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotWritten {
    /// The disk has not stored it.
    #[error("it may be lost when this process ends: {0}")]
    Journal(TierError),
    /// The processes that share a tier do not know the rule yet. Delivery is retried while this
    /// process lives, and after a restart if the rule was journaled.
    #[error("other processes have not received it yet, delivery is retried: {0}")]
    NotDelivered(TierError),
    /// Only one of two copies of the log has the rule. If that copy is lost before the other one
    /// has it, processes that had not read it yet never learn of it.
    #[error(
        "one of the two copies of the purge log has not received it yet, delivery is retried: {0}"
    )]
    HalfDelivered(TierError),
}

impl Cache {
    /// Removes every response of a key. A fetch under way still answers its waiters, but is not
    /// stored.
    pub fn purge_key(&self, key: &[u8]) {
        self.flights.purge(key, |_| {
            let _goes_on_by_itself = self.remove_everywhere(key);
        });
    }

    /// Purges everything in these scopes at once, even if the returned future is dropped. From now
    /// on this process does not serve it; once the rules are journaled, a restart does not either.
    pub fn purge(
        &self,
        named: impl IntoIterator<Item = (Scope, Strength)>,
    ) -> impl Future<Output = Purged> + Send {
        let named = named.into_iter();
        let rules: Vec<_> = named
            .map(|(scope, strength)| self.issue(scope, strength))
            .collect();
        async move {
            let written = self.publish(&rules).await;
            Purged { rules, written }
        }
    }

    /// Publishes rules to the processes that share a tier. Rules delivered there survive this
    /// process; others are journaled if there is a disk.
    pub(super) async fn publish(&self, rules: &[Rule]) -> Result<(), NotWritten> {
        if rules.is_empty() {
            // Most unsafe requests name no groups: they never wait for the journal.
            return Ok(());
        }
        if self.tiers.log().is_none() {
            return self.write_journal(rules).await.map_err(NotWritten::Journal);
        }
        let delivered = self.deliver(rules).await;
        if delivered.is_err() {
            // A delivery failure is worse than a journal failure, and is the one reported.
            let _ = self.write_journal(rules).await;
        }
        delivered
    }

    /// Applies a purge issued by another process, which also publishes it.
    pub fn apply_purge(&self, rule: &Rule) {
        self.add_rule(rule, RulePlaces::default());
    }

    /// Issues a purge, in effect from now on.
    pub(super) fn issue(&self, scope: Scope, strength: Strength) -> Rule {
        let rule = Rule {
            id: random::number(),
            scope,
            strength,
            // Not the time of the poll: a response may have been stored since.
            at: self.clock.read(),
        };
        self.add_rule(&rule, RulePlaces::default());
        self.queue_for_fleet(&rule);
        rule
    }

    /// Puts a purge into effect, with its known places in the shared log. In memory it covers
    /// fetches that began before this moment: purging too much only costs a fetch.
    pub(super) fn add_rule(&self, rule: &Rule, places: RulePlaces) {
        let now = self.clock.read();
        // In this order: an entry of the equivalent url is covered, or counts as too old for the purged one.
        let equivalent = self.equivalent(rule, now);
        for rule in equivalent.iter().chain([rule]) {
            if self.rules.add(rule.clone(), now, places).is_some() {
                self.changes.notify_rule(rule);
                self.unswept.notify_one();
            }
        }
    }

    /// The purge of the simplest url that is equivalent to the purged one, as this process knows it.
    fn equivalent(&self, rule: &Rule, now: Time) -> Option<Rule> {
        let Scope::Url { host, target } = &rule.scope else {
            return None;
        };
        let (none, rules) = (Fields::default(), Rules::default());
        let key = key::build(Scheme::Http, host, target, none, false, &rules);
        let simplified = self.queries.purged(&key, now)?;
        Some(Rule {
            // Another process derives the same one from this purge.
            id: rule.id.rotate_left(32),
            scope: Scope::Url {
                host: host.clone(),
                target: key::target_of(&simplified)?.into(),
            },
            ..rule.clone()
        })
    }

    /// The progress of the purge with this id; `None` if the id is unknown or the purge is
    /// complete.
    pub fn progress(&self, id: u64) -> Option<RuleProgress> {
        // In this order: a hit counted later belongs to a sweep that has not ended.
        let swept_through = self.swept_through.get();
        let (rule, number, entries) = self.rules.hits(id)?;
        Some(RuleProgress {
            rule,
            entries,
            is_swept: number <= swept_through,
        })
    }

    /// The newest live rules, newest first.
    pub fn newest_rules(&self, most: usize) -> Vec<Rule> {
        self.rules.newest_live(most)
    }

    /// The number of live rules.
    pub fn live_rules(&self) -> usize {
        self.rules.live_count()
    }

    /// Returns true if a rule issued since the response was last checked purges it.
    pub(crate) fn is_purged(&self, key: &[u8], response: &Stored) -> bool {
        let held = RuleSubject::stored(key, response);
        let covered = self.covered(held, RuleNumber::checked(response));
        covered == Some(Covered::Hard)
    }

    /// Returns true if a rule issued since the fetch began covers a leader's response with these
    /// tags.
    pub(crate) fn is_purged_since(&self, leader: &Leader, tags: &TagNumbers) -> bool {
        let held = RuleSubject::fetch(leader.key(), tags);
        self.covered(held, leader.since()).is_some()
    }

    /// The effect of the rules issued after number `since` on an entry.
    pub(super) fn covered(&self, held: RuleSubject<'_>, since: RuleNumber) -> Option<Covered> {
        self.rules.covers_since(held, since)
    }

    /// Purges these keys, and waits for the tiers, at most [`REMOVAL_WAIT`].
    pub(crate) fn invalidate(
        &self,
        keys: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> impl Future<Output = ()> + Send {
        let leaving: Vec<_> = keys
            .into_iter()
            .filter_map(|key| self.purge_and_watch(key.as_ref()))
            .collect();
        async {
            if leaving.is_empty() {
                return;
            }
            let gone = async {
                for leaving in leaving {
                    if leaving.removal.is_complete().await && leaving.is_unknown {
                        self.purges.withdraw(&leaving.key, leaving.noted);
                    }
                }
            };
            let _ = timeout(REMOVAL_WAIT, gone).await;
        }
    }

    /// Purges these scopes, at most [`MAX_INVALIDATED`] of them, and waits until the rules are published,
    /// at most [`REMOVAL_WAIT`].
    pub(crate) fn invalidate_all(&self, scopes: Vec<Scope>) -> impl Future<Output = ()> + Send {
        let names_any = !scopes.is_empty();
        let scopes = scopes.into_iter().take(MAX_INVALIDATED);
        let purged = self.purge(scopes.map(|scope| (scope, Strength::Hard)));
        async move {
            if names_any {
                // Rules that cannot be journaled count until the process ends.
                let _ = timeout(REMOVAL_WAIT, purged).await;
            }
        }
    }

    /// Removes the response that a request selects, from memory and tiers. The fetch that found it
    /// outdated continues.
    pub(crate) fn forget_selected(&self, key: &Key, stored: &Hit, request: &OriginView<'_>) {
        if stored.vary().is_empty() {
            let _goes_on_by_itself = self.remove_everywhere(key);
            return;
        }
        self.memory.remove_selected(key, request);
        self.changes.notify(key, stored, ChangeKind::Purged);
        let tiers = &self.tiers;
        if !tiers.remove_variant(key, stored.vary(), stored.selection()) {
            // Too many removals are queued: mark the tiers' entries of the key as purged instead.
            self.purges.note(key, self.clock.read());
        }
    }

    /// Removes a key from the tiers, where overwriting its entry would not replace the outdated
    /// one.
    pub(crate) fn forget_in_tiers(&self, key: &[u8]) {
        let _goes_on_by_itself = self.tiers.remove(key);
    }

    /// Removes a key from memory and the tiers. Returns whether it was in memory, and the removal
    /// under way in the tiers.
    fn remove_everywhere(&self, key: &[u8]) -> (bool, Option<TierRemoval>) {
        let was_there = self.memory.remove(key);
        self.changes.notify_removed(key);
        let leaving = (!self.tiers.is_empty()).then(|| {
            let noted = self.clock.read();
            self.purges.note(key, noted);
            let removal = self.tiers.remove(key);
            TierRemoval {
                key: key.into(),
                noted,
                removal,
                is_unknown: false,
            }
        });
        (was_there, leaving)
    }

    /// Purges a key, and returns the removal under way in the tiers.
    fn purge_and_watch(&self, key: &[u8]) -> Option<TierRemoval> {
        let mut watched = None;
        self.flights.purge(key, |is_fetched| {
            let (was_there, leaving) = self.remove_everywhere(key);
            watched = leaving.map(|leaving| TierRemoval {
                is_unknown: !was_there && !is_fetched,
                ..leaving
            });
        });
        watched
    }
}

/// A key being removed from the tiers.
struct TierRemoval {
    key: Box<[u8]>,
    noted: Time,
    removal: Removal,
    /// The key was not known here, so the purge need not be remembered once it has left the tiers:
    /// clients can send unlimited requests for urls that do not exist.
    is_unknown: bool,
}
