//! S3-FIFO (Yang et al., SOSP 2023): a tenth on probation, which an object passes with two uses; uses are counted up to
//! three; the ghost list is as long as the main queue.

use std::collections::VecDeque;

use crate::policy::Policy;
use crate::trace::Catalogue;

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Out,
    Small,
    Main,
    /// With the number of its place in the ghost list.
    Ghost(usize),
}

pub(crate) struct S3Fifo<'a> {
    catalogue: &'a Catalogue,
    capacity: u64,
    places: Vec<Place>,
    uses: Vec<u8>,
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    ghosts: VecDeque<u32>,
    /// Bytes of the objects in each queue.
    bytes: [u64; 3],
    ghosts_made: usize,
    has_ghosts: bool,
    /// Uses with which an object passes probation.
    passes_with: u8,
}

const SMALL: usize = 0;
const MAIN: usize = 1;
const GHOSTS: usize = 2;

impl<'a> S3Fifo<'a> {
    pub(crate) fn new(catalogue: &'a Catalogue, capacity: u64) -> Self {
        let objects = catalogue.sizes.len();
        Self {
            catalogue,
            capacity,
            places: vec![Place::Out; objects],
            uses: vec![0; objects],
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: VecDeque::new(),
            bytes: [0; 3],
            ghosts_made: 0,
            has_ghosts: true,
            passes_with: 2,
        }
    }

    /// Without ghosts; an object passes probation with one use.
    pub(crate) fn without_ghosts(catalogue: &'a Catalogue, capacity: u64) -> Self {
        Self {
            has_ghosts: false,
            passes_with: 1,
            ..Self::new(catalogue, capacity)
        }
    }

    fn size(&self, object: u32) -> u64 {
        u64::from(self.catalogue.sizes[object as usize])
    }

    fn evict(&mut self) {
        if self.bytes[SMALL] >= self.capacity / 10 || self.main.is_empty() {
            self.evict_small();
        } else {
            self.evict_main();
        }
    }

    fn evict_small(&mut self) {
        while let Some(object) = self.small.pop_front() {
            let size = self.size(object);
            self.bytes[SMALL] -= size;
            if self.uses[object as usize] >= self.passes_with {
                self.push_main(object);
            } else {
                self.push_ghost(object);
                return;
            }
        }
    }

    fn evict_main(&mut self) {
        while let Some(object) = self.main.pop_front() {
            self.bytes[MAIN] -= self.size(object);
            if self.uses[object as usize] > 0 {
                let uses = self.uses[object as usize] - 1;
                self.push_main(object);
                self.uses[object as usize] = uses;
            } else {
                self.places[object as usize] = Place::Out;
                return;
            }
        }
    }

    fn push_main(&mut self, object: u32) {
        self.main.push_back(object);
        self.bytes[MAIN] += self.size(object);
        self.places[object as usize] = Place::Main;
        self.uses[object as usize] = 0;
    }

    fn push_ghost(&mut self, object: u32) {
        self.ghosts.push_back(object);
        self.bytes[GHOSTS] += self.size(object);
        self.places[object as usize] = Place::Ghost(self.ghosts_made);
        self.ghosts_made += 1;
        while !self.has_ghosts || self.bytes[GHOSTS] > self.capacity / 10 * 9 {
            let Some(oldest) = self.ghosts.pop_front() else {
                break;
            };
            self.bytes[GHOSTS] -= self.size(oldest);
            // It may have left the list meanwhile, and come back at another place.
            if self.places[oldest as usize]
                == Place::Ghost(self.ghosts_made - 1 - self.ghosts.len())
            {
                self.places[oldest as usize] = Place::Out;
            }
        }
    }
}

impl Policy for S3Fifo<'_> {
    fn request(&mut self, object: u32, _: usize) -> bool {
        let place = self.places[object as usize];
        if matches!(place, Place::Small | Place::Main) {
            self.uses[object as usize] = 3.min(self.uses[object as usize] + 1);
            return true;
        }
        let size = self.size(object);
        while self.bytes[SMALL] + self.bytes[MAIN] + size > self.capacity {
            self.evict();
        }
        // The ghost may just have been forgotten.
        if matches!(self.places[object as usize], Place::Ghost(_)) {
            self.push_main(object);
        } else {
            self.small.push_back(object);
            self.bytes[SMALL] += size;
            self.places[object as usize] = Place::Small;
            self.uses[object as usize] = 0;
        }
        false
    }
}
