//! The policy of the store.

use std::time::Duration;

use microcache_store::FetchCost;
use microcache_store::eviction::{EvictionQueue, MAX_USES};

use crate::policy::Policy;
use crate::random::mix;
use crate::trace::Catalogue;

pub(crate) struct Microcache<'a> {
    catalogue: &'a Catalogue,
    capacity: u64,
    bytes: u64,
    queue: EvictionQueue,
    /// Uses of the objects that are stored.
    uses: Vec<Option<u8>>,
}

impl<'a> Microcache<'a> {
    pub(crate) fn new(catalogue: &'a Catalogue, capacity: u64) -> Self {
        Self {
            catalogue,
            capacity,
            bytes: 0,
            queue: EvictionQueue::new(),
            uses: vec![None; catalogue.sizes.len()],
        }
    }
}

impl Policy for Microcache<'_> {
    fn request(&mut self, object: u32, _: usize) -> bool {
        let number = object as usize;
        if let Some(uses) = &mut self.uses[number] {
            *uses = MAX_USES.min(*uses + 1);
            return true;
        }
        let size = u64::from(self.catalogue.sizes[number]);
        while self.bytes + size > self.capacity {
            let uses = &mut self.uses;
            let look = |slot: u32| {
                let uses = uses[slot as usize].replace(0);
                (mix(slot.into()), uses.unwrap_or_default())
            };
            let Some(victim) = self.queue.evict(look) else {
                break;
            };
            self.uses[victim as usize] = None;
            self.bytes -= u64::from(self.catalogue.sizes[victim as usize]);
        }
        let cost = Duration::from_micros(self.catalogue.costs[number].into());
        self.queue
            .insert(object, mix(object.into()), size, FetchCost::of(cost));
        self.uses[number] = Some(0);
        self.bytes += size;
        false
    }
}
