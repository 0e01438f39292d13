//! Small, readable implementations of the policies that ours is compared with.

mod belady;
mod gdsf;
mod lru;
mod s3_fifo;
mod w_tiny_lfu;

pub(crate) use belady::Belady;
pub(crate) use gdsf::Gdsf;
pub(crate) use lru::Lru;
pub(crate) use s3_fifo::S3Fifo;
pub(crate) use w_tiny_lfu::WTinyLfu;
