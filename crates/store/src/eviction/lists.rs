//! Lists of entries, linked by slot.

use super::cost::FetchCost;
use super::magnitude::Magnitude;

const NONE: u32 = u32::MAX;
const NODES_AT_ONCE: usize = 1024;

/// Eviction data of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    previous: u32,
    next: u32,
    /// Age of the queue at which the entry is to be looked at again.
    pub(super) due: u32,
    pub(super) weight: Magnitude,
    pub(super) cost: FetchCost,
    list: u8,
    /// Uses, less one for each time that the entry was looked at.
    pub(super) frequency: u8,
}

/// First and last entry of a list.
#[derive(Clone, Copy, Debug)]
struct Ends {
    first: u32,
    last: u32,
}

/// A number of lists. An entry is in at most one of them.
#[derive(Debug)]
pub(super) struct Lists {
    /// In chunks, so that growth neither copies nor doubles.
    nodes: Vec<Vec<Node>>,
    ends: [Ends; Self::COUNT],
    /// A bit for each list that is not empty.
    occupied: u32,
}

impl Lists {
    pub(super) const COUNT: usize = 32;

    pub(super) const fn new() -> Self {
        let empty = Ends {
            first: NONE,
            last: NONE,
        };
        Self {
            nodes: Vec::new(),
            ends: [empty; Self::COUNT],
            occupied: 0,
        }
    }

    /// Makes sure that a slot has a node.
    pub(super) fn grow(&mut self, slot: u32) {
        while self.nodes.len() * NODES_AT_ONCE <= slot as usize {
            self.nodes.push(vec![Node::VACANT; NODES_AT_ONCE]);
        }
    }

    /// Drops the nodes of all slots but the first `count`.
    pub(super) fn truncate(&mut self, count: usize) {
        self.nodes.truncate(count.div_ceil(NODES_AT_ONCE));
        self.nodes.shrink_to_fit();
    }

    /// Memory used, in bytes.
    pub(super) const fn heap_size(&self) -> usize {
        self.nodes.len() * NODES_AT_ONCE * size_of::<Node>()
            + self.nodes.capacity() * size_of::<Vec<Node>>()
    }

    pub(super) fn node(&self, slot: u32) -> &Node {
        &self.nodes[slot as usize / NODES_AT_ONCE][slot as usize % NODES_AT_ONCE]
    }

    pub(super) fn node_mut(&mut self, slot: u32) -> &mut Node {
        &mut self.nodes[slot as usize / NODES_AT_ONCE][slot as usize % NODES_AT_ONCE]
    }

    /// First entry of a list.
    pub(super) fn first(&self, list: u8) -> Option<u32> {
        let first = self.ends[usize::from(list)].first;
        (first != NONE).then_some(first)
    }

    /// Iterates over the first entries of all lists before this one.
    pub(super) fn firsts_before(&self, list: u8) -> impl Iterator<Item = u32> {
        let mut left = self.occupied & ((1 << list) - 1);
        std::iter::from_fn(move || {
            let list = left.trailing_zeros();
            left &= left.wrapping_sub(1);
            self.ends.get(list as usize).map(|ends| ends.first)
        })
    }

    /// Appends an entry, which is in no list.
    pub(super) fn push(&mut self, slot: u32, list: u8) {
        let previous = std::mem::replace(&mut self.ends[usize::from(list)].last, slot);
        let node = self.node_mut(slot);
        (node.list, node.previous, node.next) = (list, previous, NONE);
        self.link(previous, list, slot);
        self.occupied |= 1 << list;
    }

    /// Removes an entry from its list, which is returned.
    pub(super) fn unlink(&mut self, slot: u32) -> u8 {
        let &Node {
            previous,
            next,
            list,
            ..
        } = self.node(slot);
        self.link(previous, list, next);
        self.link_back(next, list, previous);
        if self.first(list).is_none() {
            self.occupied &= !(1 << list);
        }
        list
    }

    /// Moves an entry to a slot that is not in use. It keeps its place in its list.
    pub(super) fn relocate(&mut self, from: u32, to: u32) {
        let node = *self.node(from);
        *self.node_mut(to) = node;
        self.link(node.previous, node.list, to);
        self.link_back(node.next, node.list, to);
    }

    /// Makes `previous` precede `next`, or be the last one of the list.
    fn link_back(&mut self, next: u32, list: u8, previous: u32) {
        match next {
            NONE => self.ends[usize::from(list)].last = previous,
            next => self.node_mut(next).previous = previous,
        }
    }

    /// Makes `next` follow `previous`, or be the first one of the list.
    fn link(&mut self, previous: u32, list: u8, next: u32) {
        match previous {
            NONE => self.ends[usize::from(list)].first = next,
            previous => self.node_mut(previous).next = next,
        }
    }
}

impl Node {
    const VACANT: Self = Self {
        previous: NONE,
        next: NONE,
        due: 0,
        weight: Magnitude::from_step(0),
        cost: FetchCost::from_byte(0),
        list: 0,
        frequency: 0,
    };

    pub(super) const fn new(weight: Magnitude, cost: FetchCost) -> Self {
        Self {
            weight,
            cost,
            ..Self::VACANT
        }
    }

    /// List of the entry.
    pub(super) const fn list(&self) -> u8 {
        self.list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_small() {
        assert_eq!(size_of::<Node>(), 16);
    }
}
