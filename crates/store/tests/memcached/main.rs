//! Memcached pool against real servers, and against others.

mod claims;
mod fake;
mod log;
mod lost;
mod pool;
mod records;
mod renew;
mod ring;
#[path = "../shared/log.rs"]
mod shared_log;
#[path = "../shared/records.rs"]
mod shared_records;
mod strangers;
