//! Belady's policy: the entry that is requested again last goes first. It knows the future.

use std::collections::BTreeSet;

use crate::policy::Policy;
use crate::trace::Catalogue;

pub(crate) struct Belady<'a> {
    catalogue: &'a Catalogue,
    capacity: u64,
    bytes: u64,
    next: Vec<Option<usize>>,
    order: BTreeSet<(usize, u32)>,
}

impl<'a> Belady<'a> {
    pub(crate) fn new(catalogue: &'a Catalogue, capacity: u64) -> Self {
        Self {
            catalogue,
            capacity,
            bytes: 0,
            next: vec![None; catalogue.sizes.len()],
            order: BTreeSet::new(),
        }
    }

    fn leave(&mut self, next: usize, object: u32) {
        self.order.remove(&(next, object));
        self.bytes -= u64::from(self.catalogue.sizes[object as usize]);
        self.next[object as usize] = None;
    }
}

impl Policy for Belady<'_> {
    fn request(&mut self, object: u32, next: usize) -> bool {
        let before = self.next[object as usize];
        if let Some(before) = before {
            self.leave(before, object);
        }
        self.order.insert((next, object));
        self.next[object as usize] = Some(next);
        self.bytes += u64::from(self.catalogue.sizes[object as usize]);
        while self.bytes > self.capacity {
            let Some(&(last, victim)) = self.order.last() else {
                break;
            };
            self.leave(last, victim);
        }
        before.is_some()
    }
}
