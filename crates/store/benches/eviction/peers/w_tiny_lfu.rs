//! W-TinyLFU (Einziger et al., 2017), as in Caffeine: a window of a hundredth before a segmented LRU, and a sketch of
//! frequencies that decides between the window's candidate and the victim.

use crate::list::{Links, List};
use crate::policy::Policy;
use crate::random::mix;
use crate::trace::Catalogue;

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Out,
    Window,
    Probation,
    Protected,
}

pub(crate) struct WTinyLfu<'a> {
    catalogue: &'a Catalogue,
    capacity: u64,
    links: Links,
    places: Vec<Place>,
    window: List,
    probation: List,
    protected: List,
    sketch: FrequencySketch,
}

impl<'a> WTinyLfu<'a> {
    pub(crate) fn new(catalogue: &'a Catalogue, capacity: u64) -> Self {
        let objects = catalogue.sizes.len();
        let sizes = catalogue.sizes.iter().copied().map(u64::from);
        let typical = sizes.sum::<u64>() / objects as u64;
        Self {
            catalogue,
            capacity,
            links: Links::new(objects),
            places: vec![Place::Out; objects],
            window: List::new(),
            probation: List::new(),
            protected: List::new(),
            sketch: FrequencySketch::new((capacity / typical) as usize),
        }
    }

    fn size(&self, object: u32) -> u32 {
        self.catalogue.sizes[object as usize]
    }

    fn push(&mut self, object: u32, place: Place) {
        let size = self.size(object);
        self.places[object as usize] = place;
        if let Some(list) = list(
            &mut self.window,
            &mut self.probation,
            &mut self.protected,
            place,
        ) {
            self.links.push(list, object, size);
        }
    }

    fn take(&mut self, object: u32) {
        let size = self.size(object);
        let place = std::mem::replace(&mut self.places[object as usize], Place::Out);
        if let Some(list) = list(
            &mut self.window,
            &mut self.probation,
            &mut self.protected,
            place,
        ) {
            self.links.remove(list, object, size);
        }
    }

    fn use_again(&mut self, object: u32, place: Place) {
        self.take(object);
        self.push(
            object,
            if place == Place::Window {
                place
            } else {
                Place::Protected
            },
        );
        while self.protected.bytes > self.capacity / 100 * 99 / 10 * 8 {
            let Some(first) = self.protected.first() else {
                break;
            };
            self.take(first);
            self.push(first, Place::Probation);
        }
    }

    /// Moves objects from a full window to the main part, where they compete with its victims.
    fn make_room(&mut self) {
        while self.window.bytes > self.capacity / 100 {
            let Some(candidate) = self.window.first() else {
                break;
            };
            self.take(candidate);
            let size = u64::from(self.size(candidate));
            let room = self.capacity - self.capacity / 100;
            let frequency = self.sketch.frequency(candidate);
            let mut is_admitted = true;
            while self.probation.bytes + self.protected.bytes + size > room {
                let Some(victim) = self.probation.first().or(self.protected.first()) else {
                    break;
                };
                if self.sketch.frequency(victim) >= frequency {
                    is_admitted = false;
                    break;
                }
                self.take(victim);
            }
            if is_admitted {
                self.push(candidate, Place::Probation);
            }
        }
    }
}

fn list<'a>(
    window: &'a mut List,
    probation: &'a mut List,
    protected: &'a mut List,
    place: Place,
) -> Option<&'a mut List> {
    match place {
        Place::Out => None,
        Place::Window => Some(window),
        Place::Probation => Some(probation),
        Place::Protected => Some(protected),
    }
}

impl Policy for WTinyLfu<'_> {
    fn request(&mut self, object: u32, _: usize) -> bool {
        self.sketch.count(object);
        match self.places[object as usize] {
            Place::Out => {
                self.push(object, Place::Window);
                self.make_room();
                false
            }
            place => {
                self.use_again(object, place);
                true
            }
        }
    }
}

/// Count-min sketch of four rows with four bits a counter, halved after ten requests for each object of the cache.
struct FrequencySketch {
    counters: Vec<[u8; 4]>,
    counted: usize,
    period: usize,
}

impl FrequencySketch {
    fn new(objects: usize) -> Self {
        let width = objects.max(16).next_power_of_two();
        Self {
            counters: vec![[0; 4]; width * 2],
            counted: 0,
            period: objects.max(16) * 10,
        }
    }

    fn place(&self, object: u32, row: usize) -> usize {
        mix(u64::from(object) << 2 | row as u64) as usize & (self.counters.len() - 1)
    }

    fn frequency(&self, object: u32) -> u8 {
        let counts = (0..4).map(|row| self.counters[self.place(object, row)][row]);
        counts.min().unwrap_or_default()
    }

    fn count(&mut self, object: u32) {
        for row in 0..4 {
            let place = self.place(object, row);
            let counter = &mut self.counters[place][row];
            *counter = 15.min(*counter + 1);
        }
        self.counted += 1;
        if self.counted == self.period {
            self.counted /= 2;
            self.counters
                .iter_mut()
                .flatten()
                .for_each(|counter| *counter /= 2);
        }
    }
}
