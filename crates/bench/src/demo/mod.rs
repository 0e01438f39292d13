//! `microcache demo`: what a cache does to a slow application, live, in half a minute.
