//! Windows (RFC 9113 §5.2, §6.9): how much may be sent before the receiver says more.

/// The window of everything that says nothing of it (RFC 9113 §6.9.2).
pub(crate) const INITIAL: u32 = 65_535;
/// No window may become larger (RFC 9113 §6.9.1).
pub(crate) const LARGEST: u32 = (1 << 31) - 1;

/// A window. A change of the initial size may make it negative (RFC 9113 §6.9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window(i64);

/// It would become larger than a window may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overflow;

/// More was sent than it allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exceeded;

impl Window {
    pub(crate) const fn new(size: u32) -> Self {
        Self(size as i64)
    }

    /// How much may be sent now.
    pub(crate) fn open(self) -> usize {
        usize::try_from(self.0).unwrap_or(0)
    }

    /// So much is sent.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<(), Exceeded> {
        let less = i64::try_from(bytes).map_err(|_| Exceeded)?;
        if bytes > self.open() {
            return Err(Exceeded);
        }
        self.0 -= less;
        Ok(())
    }

    /// So much more may be sent.
    pub(crate) const fn grow(&mut self, bytes: u32) -> Result<(), Overflow> {
        self.shift(bytes as i64)
    }

    /// What it began with has changed by so much.
    pub(crate) const fn shift(&mut self, by: i64) -> Result<(), Overflow> {
        let shifted = self.0 + by;
        if shifted > LARGEST as i64 {
            return Err(Overflow);
        }
        self.0 = shifted;
        Ok(())
    }
}

/// A window that we give, and what of it is to be given again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given {
    window: Window,
    size: u32,
    /// What was used, and is no longer held.
    spare: u32,
}

impl Given {
    pub(crate) const fn new(size: u32) -> Self {
        Self {
            window: Window::new(size),
            size,
            spare: 0,
        }
    }

    /// So much has arrived.
    pub(crate) fn arrived(&mut self, bytes: usize) -> Result<(), Exceeded> {
        self.window.take(bytes)
    }

    /// So much of what had arrived is no longer held. Says by how much the window is to be opened
    /// again, once it is worth a frame.
    pub(crate) fn released(&mut self, bytes: usize) -> Option<u32> {
        self.spare = self.spare.saturating_add(bytes as u32);
        if self.spare < self.size / 2 {
            return None;
        }
        let spare = std::mem::take(&mut self.spare);
        // What is given again had been taken.
        self.window.grow(spare).ok()?;
        Some(spare)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_window_is_used_up_and_grows_to_its_bound() {
        let mut window = Window::new(10);
        assert_eq!(window.take(11), Err(Exceeded));
        assert_eq!((window.take(10), window.open()), (Ok(()), 0));
        assert_eq!(window.grow(LARGEST), Ok(()));
        assert_eq!(window.grow(1), Err(Overflow));
        assert_eq!(window.shift(-i64::from(LARGEST) - 5), Ok(()));
        assert_eq!((window.open(), window.take(0)), (0, Ok(())));
        assert_eq!((window.grow(6), window.open()), (Ok(()), 1));
    }

    #[test]
    fn what_is_given_is_given_again_in_halves() {
        let mut given = Given::new(100);
        assert_eq!(given.arrived(60), Ok(()));
        assert_eq!(given.released(49), None);
        assert_eq!(given.released(11), Some(60));
        assert_eq!(given.arrived(100), Ok(()));
        assert_eq!(given.arrived(1), Err(Exceeded));
    }

    proptest! {
        #[test]
        fn no_more_is_ever_held_than_was_given(steps in proptest::collection::vec((0usize..200, 0usize..200), 0..200)) {
            let mut given = Given::new(100);
            let mut held = 0;
            for (arrives, leaves) in steps {
                if given.arrived(arrives).is_ok() {
                    held += arrives;
                }
                prop_assert!(held <= 100);
                let leaves = leaves.min(held);
                held -= leaves;
                given.released(leaves);
            }
        }
    }
}
