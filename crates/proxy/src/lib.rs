//! Under construction.
pub mod h1;
