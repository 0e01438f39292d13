//! What went wrong in other caches of clients: one test each.
