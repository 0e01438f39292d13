//! Least recently used.

use crate::list::{Links, List};
use crate::policy::Policy;
use crate::trace::Catalogue;

pub(crate) struct Lru<'a> {
    catalogue: &'a Catalogue,
    capacity: u64,
    links: Links,
    list: List,
    is_in: Vec<bool>,
}

impl<'a> Lru<'a> {
    pub(crate) fn new(catalogue: &'a Catalogue, capacity: u64) -> Self {
        let objects = catalogue.sizes.len();
        Self {
            catalogue,
            capacity,
            links: Links::new(objects),
            list: List::new(),
            is_in: vec![false; objects],
        }
    }
}

impl Policy for Lru<'_> {
    fn request(&mut self, object: u32, _: usize) -> bool {
        let size = self.catalogue.sizes[object as usize];
        let is_hit = std::mem::replace(&mut self.is_in[object as usize], true);
        if is_hit {
            self.links.remove(&mut self.list, object, size);
        }
        while self.list.bytes + u64::from(size) > self.capacity {
            let Some(first) = self.list.first() else {
                break;
            };
            self.links
                .remove(&mut self.list, first, self.catalogue.sizes[first as usize]);
            self.is_in[first as usize] = false;
        }
        self.links.push(&mut self.list, object, size);
        is_hit
    }
}
