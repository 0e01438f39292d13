//! Order of eviction of one shard: first in, first out, with a second chance for entries that were used.

use std::mem;

/// Entries of a shard in their order of eviction, by slot.
#[derive(Debug)]
pub(super) struct EvictionQueue {
    /// Neighbours of each slot; those of slot `n` are at `n + 1`, the ends of the queue at 0.
    nodes: Vec<Node>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Node {
    older: u32,
    newer: u32,
}

const ENDS: u32 = 0;

impl EvictionQueue {
    pub(super) fn new() -> Self {
        Self {
            nodes: vec![Node::default()],
        }
    }

    /// Adds an entry as the newest. The slot is not in the queue.
    pub(super) fn insert(&mut self, slot: u32) {
        let at = slot + 1;
        if self.nodes.len() <= at as usize {
            self.nodes.resize(at as usize + 1, Node::default());
        }
        let before = mem::replace(&mut self.node(ENDS).older, at);
        self.node(before).newer = at;
        *self.node(at) = Node {
            older: before,
            newer: ENDS,
        };
    }

    /// Removes an entry.
    pub(super) fn remove(&mut self, slot: u32) {
        let Node { older, newer } = mem::take(self.node(slot + 1));
        self.node(older).newer = newer;
        self.node(newer).older = older;
    }

    /// Removes and returns the oldest entry of which `uses` returns 0; the others become the newest. `None` if the
    /// queue is empty.
    pub(super) fn evict(&mut self, mut uses: impl FnMut(u32) -> u8) -> Option<u32> {
        loop {
            let slot = self.node(ENDS).newer.checked_sub(1)?;
            self.remove(slot);
            if uses(slot) == 0 {
                return Some(slot);
            }
            self.insert(slot);
        }
    }

    fn node(&mut self, at: u32) -> &mut Node {
        &mut self.nodes[at as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_entry_without_uses_is_evicted_first() {
        let mut queue = EvictionQueue::new();
        for slot in 0..5 {
            queue.insert(slot);
        }
        queue.remove(1);
        let mut uses = [1, 0, 0, 1, 0];
        let mut evict = || queue.evict(|slot| mem::take(&mut uses[slot as usize]));
        let order: Vec<u32> = std::iter::from_fn(&mut evict).collect();
        assert_eq!(order, [2, 4, 0, 3]);
    }
}
