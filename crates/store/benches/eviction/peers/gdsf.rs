//! Greedy-Dual-Size-Frequency (Cherkasova, 1998): the entry with the least uses × cost ÷ size goes first, with
//! aging.

use std::collections::BTreeSet;

use crate::policy::Policy;
use crate::trace::Catalogue;

pub(crate) struct Gdsf<'a> {
    catalogue: &'a Catalogue,
    capacity: u64,
    /// Cost is the time of the application; otherwise that of all objects is equal.
    by_time: bool,
    bytes: u64,
    age: f64,
    uses: Vec<u32>,
    priorities: Vec<f64>,
    /// Priorities, which are positive, by their bits.
    order: BTreeSet<(u64, u32)>,
}

impl<'a> Gdsf<'a> {
    pub(crate) fn new(catalogue: &'a Catalogue, capacity: u64, by_time: bool) -> Self {
        let objects = catalogue.sizes.len();
        Self {
            catalogue,
            capacity,
            by_time,
            bytes: 0,
            age: 0.0,
            uses: vec![0; objects],
            priorities: vec![0.0; objects],
            order: BTreeSet::new(),
        }
    }
}

impl Policy for Gdsf<'_> {
    fn request(&mut self, object: u32, _: usize) -> bool {
        let number = object as usize;
        let size = u64::from(self.catalogue.sizes[number]);
        let is_hit = self.uses[number] > 0;
        if is_hit {
            self.order
                .remove(&(self.priorities[number].to_bits(), object));
        } else {
            while self.bytes + size > self.capacity {
                let Some((priority, victim)) = self.order.pop_first() else {
                    break;
                };
                self.age = f64::from_bits(priority);
                self.bytes -= u64::from(self.catalogue.sizes[victim as usize]);
                self.uses[victim as usize] = 0;
            }
            self.bytes += size;
        }
        self.uses[number] += 1;
        let cost = if self.by_time {
            f64::from(self.catalogue.costs[number])
        } else {
            1.0
        };
        self.priorities[number] = self.age + f64::from(self.uses[number]) * cost / size as f64;
        self.order
            .insert((self.priorities[number].to_bits(), object));
        is_hit
    }
}
