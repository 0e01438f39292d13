//! Under construction.
pub mod h1;
pub mod upstream;
