//! The interface of all simulated policies.

/// Eviction policy of a simulated cache.
pub(crate) trait Policy {
    /// Requests an object, whose next request has the number `next`. Returns whether it is a hit; if not, it is stored.
    fn request(&mut self, object: u32, next: usize) -> bool;
}
