//! Flow-control windows (RFC 9113 §5.2, §6.9).

/// Initial window in bytes (RFC 9113 §6.9.2).
pub const INITIAL: u32 = 65_535;
/// Largest window in bytes (RFC 9113 §6.9.1).
pub const LARGEST: u32 = (1 << 31) - 1;

/// Flow-control window in bytes. A change of the initial size may make it negative (RFC 9113 §6.9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window(i64);

/// Error: the window would exceed [`LARGEST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowOverflow;

/// Error: more bytes than the window allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowExceeded;

impl Window {
    /// Window of this size.
    pub const fn new(size: u32) -> Self {
        Self(size as i64)
    }

    /// Returns the number of bytes that the window allows; 0 if it is negative.
    pub fn open(self) -> usize {
        usize::try_from(self.0).unwrap_or(0)
    }

    /// Consumes bytes of the window.
    pub fn take(&mut self, bytes: usize) -> Result<(), WindowExceeded> {
        let less = i64::try_from(bytes).map_err(|_| WindowExceeded)?;
        if bytes > self.open() {
            return Err(WindowExceeded);
        }
        self.0 -= less;
        Ok(())
    }

    /// Adds the increment of a `WINDOW_UPDATE`.
    pub const fn grow(&mut self, bytes: u32) -> Result<(), WindowOverflow> {
        self.shift(bytes as i64)
    }

    /// Adjusts the window after a change of its initial size.
    pub const fn shift(&mut self, by: i64) -> Result<(), WindowOverflow> {
        let shifted = self.0 + by;
        if shifted > LARGEST as i64 {
            return Err(WindowOverflow);
        }
        self.0 = shifted;
        Ok(())
    }
}

/// Receive window, with the bytes that are to be returned to the sender.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveWindow {
    window: Window,
    size: u32,
    /// Bytes released since the last `WINDOW_UPDATE`.
    spare: u32,
}

impl ReceiveWindow {
    /// Receive window of this size.
    pub const fn new(size: u32) -> Self {
        Self {
            window: Window::new(size),
            size,
            spare: 0,
        }
    }

    /// Records the arrival of flow-controlled bytes.
    pub fn arrived(&mut self, bytes: usize) -> Result<(), WindowExceeded> {
        self.window.take(bytes)
    }

    /// Releases bytes that have been taken. Returns the increment for `WINDOW_UPDATE` once it is worth a frame.
    pub fn released(&mut self, bytes: usize) -> Option<u32> {
        self.spare = self.spare.saturating_add(bytes as u32);
        // An increment of 0 is an error (RFC 9113 §6.9).
        if self.spare < (self.size / 2).max(1) {
            return None;
        }
        let spare = std::mem::take(&mut self.spare);
        // The increment was consumed before, so this never overflows.
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
        assert_eq!(window.take(11), Err(WindowExceeded));
        assert_eq!((window.take(10), window.open()), (Ok(()), 0));
        assert_eq!(window.grow(LARGEST), Ok(()));
        assert_eq!(window.grow(1), Err(WindowOverflow));
        assert_eq!(window.shift(-i64::from(LARGEST) - 5), Ok(()));
        assert_eq!((window.open(), window.take(0)), (0, Ok(())));
        assert_eq!((window.grow(6), window.open()), (Ok(()), 1));
    }

    #[test]
    fn the_window_is_reopened_by_halves() {
        let mut receive_window = ReceiveWindow::new(100);
        assert_eq!(receive_window.arrived(60), Ok(()));
        assert_eq!(receive_window.released(49), None);
        assert_eq!(receive_window.released(11), Some(60));
        assert_eq!(receive_window.arrived(100), Ok(()));
        assert_eq!(receive_window.arrived(1), Err(WindowExceeded));
        for smallest in [0, 1] {
            assert_eq!(ReceiveWindow::new(smallest).released(0), None);
        }
    }

    proptest! {
        #[test]
        fn no_more_is_ever_held_than_was_given(steps in proptest::collection::vec((0usize..200, 0usize..200), 0..200)) {
            let mut receive_window = ReceiveWindow::new(100);
            let mut held = 0;
            for (arrives, leaves) in steps {
                if receive_window.arrived(arrives).is_ok() {
                    held += arrives;
                }
                prop_assert!(held <= 100);
                let leaves = leaves.min(held);
                held -= leaves;
                receive_window.released(leaves);
            }
        }
    }
}
