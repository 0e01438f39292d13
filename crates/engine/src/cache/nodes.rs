//! Figures of all nodes that share a tier, for the operators of each.
//!
//! Each node keeps its figures in one of the numbered slots of the tier for as long as it renews them. So a reader finds
//! all nodes without a list that several nodes would have to change. The figures are for people: no decision of the cache
//! depends on them.
//!
//! A reader stops after a batch of slots that are all empty, so a node takes a slot only of the first batch that has a free
//! one: no batch before it was empty then. If all nodes of an earlier batch end, those behind it are out of
//! sight until one of them has moved there, as nodes look for lower slots now and then. Which free slot
//! of the batch a node takes is random: nodes that start together would all try for the lowest one, and only one of them
//! would get it each time.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::try_join_all;
use microcache_store::{Content, Entry, EntryId, TierError, random};

use super::Cache;

/// Maximum number of nodes.
const MAX_NODES: usize = 1024;
/// Maximum size of the figures of a node, in bytes. Larger ones of another program are ignored.
const MAX_FIGURES: usize = 2048;
/// Slots that are read at the same time. A reader stops after as many empty ones.
const BATCH: usize = 64;
/// The time for which figures are kept that are not renewed.
const LIFETIME: Duration = Duration::from_mins(1);
/// Renewals between two looks for a lower slot: those of nodes that have ended become free.
const ROUNDS: u32 = 16;
/// Slots that are tried then.
const TRIED: usize = 8;
/// The beginning of a head.
const MAGIC: &[u8] = b"microcache node 1 ";

/// The slot of this process.
#[derive(Debug)]
pub struct NodeSlot {
    id: u64,
    slot: Option<usize>,
    rounds: u32,
}

/// The figures of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFigures {
    /// Number that the node has drawn at its start.
    pub id: u64,
    /// Its figures, as it wrote them. Any program that can write to the tier can write these.
    pub figures: Bytes,
}

impl NodeSlot {
    /// A process that has no slot yet.
    pub fn new() -> Self {
        Self {
            id: random::number(),
            slot: None,
            rounds: 0,
        }
    }

    /// The number of this process.
    pub const fn id(&self) -> u64 {
        self.id
    }
}

impl Default for NodeSlot {
    fn default() -> Self {
        Self::new()
    }
}

impl Cache {
    /// Writes the figures of this process into the shared tier, if there is one.
    pub async fn write_node(&self, place: &mut NodeSlot, figures: Bytes) -> Result<(), TierError> {
        let Some(tier) = self.tiers.log() else {
            return Ok(());
        };
        place.rounds = place.rounds.wrapping_add(1);
        let before = place.slot;
        let is_kept = match before {
            Some(slot) => {
                let found = self.read_slot(slot).await?;
                found.is_none_or(|found| found.id == place.id)
            }
            None => false,
        };
        place.slot = match before.filter(|_| is_kept) {
            Some(slot) if place.rounds.is_multiple_of(ROUNDS) => Some(self.lower_slot(slot).await?),
            Some(slot) => Some(slot),
            None => self.free_slot(place.id).await?,
        };
        let Some(slot) = place.slot else {
            return Err(TierError::Failed(format!(
                "all {MAX_NODES} slots of nodes are taken"
            )));
        };
        let entry = Entry {
            head: [MAGIC, &place.id.to_be_bytes()].concat().into(),
            body: Content::Bytes(figures),
        };
        tier.put(id_of(slot), entry, LIFETIME, None).await?;
        match before {
            Some(before) if is_kept && before > slot => tier.remove(id_of(before)).await,
            _ => Ok(()),
        }
    }

    /// Reads the figures of all nodes that share the tier.
    pub async fn nodes(&self) -> Result<Vec<NodeFigures>, TierError> {
        let mut nodes = Vec::new();
        for first in (0..MAX_NODES).step_by(BATCH) {
            let slots = self.read_batch(first).await?;
            if slots.iter().all(Option::is_none) {
                break;
            }
            nodes.extend(slots.into_iter().flatten());
        }
        // A node that has moved may still be read in both slots.
        nodes.sort_by_key(|node| node.id);
        nodes.dedup_by_key(|node| node.id);
        Ok(nodes)
    }

    /// A slot that this process has already, or a free one, of the first batch that has any.
    async fn free_slot(&self, id: u64) -> Result<Option<usize>, TierError> {
        let is_own = |found: &Option<NodeFigures>| found.as_ref().is_some_and(|it| it.id == id);
        for first in (0..MAX_NODES).step_by(BATCH) {
            let slots = self.read_batch(first).await?;
            let free: Vec<_> = (0..BATCH).filter(|at| slots[*at].is_none()).collect();
            let any = random::number() as usize % free.len().max(1);
            let at = slots.iter().position(is_own);
            if let Some(at) = at.or_else(|| free.get(any).copied()) {
                return Ok(Some(first + at));
            }
        }
        Ok(None)
    }

    /// The lowest free one of some slots below this one, or itself: to look at all of them would be most of what a node of
    /// a large fleet asks the tier for.
    async fn lower_slot(&self, slot: usize) -> Result<usize, TierError> {
        let tried: Vec<_> = (0..TRIED.min(slot))
            .map(|_| random::number() as usize % slot)
            .collect();
        let found = try_join_all(tried.iter().map(|slot| self.read_slot(*slot))).await?;
        let free = tried.into_iter().zip(found).filter(|(_, it)| it.is_none());
        Ok(free.map(|(slot, _)| slot).min().unwrap_or(slot))
    }

    async fn read_batch(&self, first: usize) -> Result<Vec<Option<NodeFigures>>, TierError> {
        try_join_all((first..first + BATCH).map(|slot| self.read_slot(slot))).await
    }

    async fn read_slot(&self, slot: usize) -> Result<Option<NodeFigures>, TierError> {
        let Some(tier) = self.tiers.log() else {
            return Ok(None);
        };
        match tier.get(id_of(slot)).await {
            Ok(entry) => Ok(entry.as_ref().and_then(figures_of)),
            // Foreign or damaged content was removed.
            Err(TierError::Corrupt(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn id_of(slot: usize) -> EntryId {
    EntryId::of(format!("microcache node slot {slot}").as_bytes())
}

fn figures_of(entry: &Entry) -> Option<NodeFigures> {
    let id = entry.head.strip_prefix(MAGIC)?;
    let figures = entry.body.bytes()?;
    (figures.len() <= MAX_FIGURES).then_some(NodeFigures {
        id: u64::from_be_bytes(id.try_into().ok()?),
        figures: figures.clone(),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use microcache_store::tiers::scripted::ScriptedTier;
    use microcache_store::{AnyTier, Clock, SharedTier, Tier, TierLimits, Tiers};
    use tokio::runtime::Handle;

    use super::super::testing::cache;
    use super::*;

    fn node(tier: &ScriptedTier) -> (Cache, NodeSlot) {
        let shared: Arc<dyn SharedTier> = Arc::new(tier.clone());
        let tiers = vec![AnyTier::Shared(shared)];
        let tiers = Tiers::new(tiers, TierLimits::default(), &Handle::current());
        (cache(tiers, Clock::start()), NodeSlot::new())
    }

    async fn write((cache, slot): &mut (Cache, NodeSlot), figures: &'static str) -> Option<usize> {
        let written = cache.write_node(slot, Bytes::from_static(figures.as_bytes()));
        written.await.expect("it is written");
        slot.slot
    }

    async fn listed((cache, _): &(Cache, NodeSlot)) -> Vec<Bytes> {
        let nodes = cache.nodes().await.expect("they are read");
        let mut figures: Vec<_> = nodes.into_iter().map(|node| node.figures).collect();
        figures.sort_unstable();
        figures
    }

    #[tokio::test]
    async fn every_node_has_a_slot_of_its_own() {
        let tier = ScriptedTier::new(0, 0);
        let mut nodes: Vec<_> = (0..BATCH + 3).map(|_| node(&tier)).collect();
        let mut slots = Vec::new();
        for (at, node) in nodes.iter_mut().enumerate() {
            let slot = write(node, "old").await.expect("a slot");
            assert_eq!(
                slot / BATCH,
                at / BATCH,
                "an earlier batch is full, as readers expect"
            );
            slots.push(slot);
        }
        for (slot, node) in slots.iter().zip(&mut nodes) {
            assert_eq!(write(node, "new").await, Some(*slot));
        }
        assert_eq!(listed(&nodes[0]).await, vec!["new"; BATCH + 3]);
    }

    #[tokio::test]
    async fn nodes_that_start_together_take_different_slots() {
        let (cache, _) = node(&ScriptedTier::new(0, 0));
        let mut slots = Vec::new();
        for id in 0..32 {
            slots.extend(cache.free_slot(id).await.expect("it is read"));
        }
        assert!(slots.iter().all(|slot| *slot < BATCH), "{slots:?}");
        slots.sort_unstable();
        slots.dedup();
        assert!(slots.len() > 8, "{slots:?}");
    }

    #[tokio::test]
    async fn a_node_finds_the_slot_that_it_has_already() {
        let tier = ScriptedTier::new(0, 0);
        let mut node = node(&tier);
        let slot = write(&mut node, "own").await;
        assert_eq!(node.0.free_slot(node.1.id).await, Ok(slot));
    }

    #[tokio::test]
    async fn a_node_leaves_a_slot_that_another_has_taken() {
        let tier = ScriptedTier::new(0, 0);
        let [mut slow, mut thief] = [node(&tier), node(&tier)];
        let taken = write(&mut slow, "slow").await.expect("a slot");
        tier.remove(id_of(taken)).await.expect("it expires");
        thief.1.slot = Some(taken);
        assert_eq!(write(&mut thief, "thief").await, Some(taken));
        assert_ne!(write(&mut slow, "slow").await, Some(taken));
        assert_eq!(listed(&slow).await, ["slow", "thief"]);
    }

    #[tokio::test]
    async fn a_node_moves_to_a_lower_slot_that_is_free() {
        let tier = ScriptedTier::new(0, 0);
        let mut node = node(&tier);
        node.1.slot = Some(1);
        for _ in 0..ROUNDS {
            write(&mut node, "moves").await;
        }
        assert_eq!(node.1.slot, Some(0), "the lower one was free");
        assert_eq!(listed(&node).await, ["moves"]);
        assert!(tier.get(id_of(1)).await.expect("it is read").is_none());
    }

    #[tokio::test]
    async fn what_is_no_nodes_is_ignored_and_replaced() {
        let tier = ScriptedTier::new(0, 0);
        let huge = vec![b'x'; MAX_FIGURES + 1];
        let head = [MAGIC, &[0; 8]].concat();
        for (head, body) in [
            (&b"other"[..], &b"x"[..]),
            (&head[..head.len() - 1], b"x"),
            (&head, &huge),
        ] {
            let mut node = node(&tier);
            let entry = Entry {
                head: Bytes::copy_from_slice(head),
                body: Content::Bytes(Bytes::copy_from_slice(body)),
            };
            for slot in 0..BATCH {
                let put = tier.put(id_of(slot), entry.clone(), LIFETIME, None);
                put.await.expect("it is put");
            }
            assert_eq!(listed(&node).await, [""; 0]);
            let slot = write(&mut node, "own").await;
            assert!(slot.is_some_and(|slot| slot < BATCH), "{slot:?}");
            assert_eq!(listed(&node).await, ["own"]);
        }
    }

    #[tokio::test]
    async fn without_a_shared_tier_there_are_no_others() {
        let mut alone = (cache(Tiers::default(), Clock::start()), NodeSlot::new());
        assert_eq!(write(&mut alone, "own").await, None);
        assert_eq!(listed(&alone).await, [""; 0]);
    }
}
