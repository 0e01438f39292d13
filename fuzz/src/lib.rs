//! What the fuzz targets share: other readers of the same bytes, and inputs in readable form.

pub mod chunked;
pub mod fields;
pub mod hyper_reading;
pub mod our_reading;
