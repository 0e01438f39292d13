//! Lists of objects, linked by index.

const NONE: u32 = u32::MAX;

/// Links of all objects; an object is in at most one list.
pub(crate) struct Links(Vec<(u32, u32)>);

/// List of objects with their total size.
pub(crate) struct List {
    first: u32,
    last: u32,
    pub(crate) bytes: u64,
}

impl Links {
    pub(crate) fn new(objects: usize) -> Self {
        Self(vec![(NONE, NONE); objects])
    }

    pub(crate) fn push(&mut self, list: &mut List, object: u32, size: u32) {
        self.0[object as usize] = (list.last, NONE);
        match list.last {
            NONE => list.first = object,
            previous => self.0[previous as usize].1 = object,
        }
        list.last = object;
        list.bytes += u64::from(size);
    }

    pub(crate) fn remove(&mut self, list: &mut List, object: u32, size: u32) {
        let (previous, next) = self.0[object as usize];
        match previous {
            NONE => list.first = next,
            previous => self.0[previous as usize].1 = next,
        }
        match next {
            NONE => list.last = previous,
            next => self.0[next as usize].0 = previous,
        }
        list.bytes -= u64::from(size);
    }
}

impl List {
    pub(crate) const fn new() -> Self {
        Self {
            first: NONE,
            last: NONE,
            bytes: 0,
        }
    }

    pub(crate) fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }
}
