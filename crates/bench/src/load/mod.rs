//! `microcache bench`: the load generator.
