//! Reception of published content, limited per request and for all requests together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::BytesMut;
use microcache_engine::{BodyError, Frame, OriginRequest, OriginResponse};

use crate::answer;

/// Limit of all content being received, as a multiple of the limit of one request.
const MAX_RECEIVING: u64 = 16;

/// Bytes being received by all requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct UploadBudget(Arc<AtomicU64>);

/// Bytes received by one request, counted until this is dropped.
#[derive(Default)]
pub(crate) struct UploadReservation {
    budget: UploadBudget,
    bytes: u64,
}

/// Error receiving content.
pub(crate) enum UploadError {
    Refused(Box<OriginResponse>),
    Broken(BodyError),
}

impl From<OriginResponse> for UploadError {
    fn from(answer: OriginResponse) -> Self {
        Self::Refused(Box::new(answer))
    }
}

impl UploadBudget {
    /// Receives the content of a request, of `largest` bytes at most; `what` names it in errors.
    pub(crate) async fn receive(
        &self,
        request: &mut OriginRequest,
        what: &str,
        largest: u64,
    ) -> Result<(BytesMut, UploadReservation), UploadError> {
        let too_large = || {
            answer::problem(
                413,
                format!("{what} may have at most {largest} bytes (push_max_document)"),
            )
        };
        if request.length.is_some_and(|length| length > largest) {
            return Err(too_large().into());
        }
        let mut reservation = UploadReservation {
            budget: self.clone(),
            bytes: 0,
        };
        let mut content = BytesMut::new();
        while let Some(frame) = request.body.frame().await {
            let Frame::Data(data) = frame.map_err(UploadError::Broken)? else {
                continue;
            };
            if (content.len() + data.len()) as u64 > largest {
                return Err(too_large().into());
            }
            if reservation.add(data.len() as u64) > largest.saturating_mul(MAX_RECEIVING) {
                let why = "too much content is being published at once";
                return Err(answer::later(answer::problem(503, why)).into());
            }
            content.extend_from_slice(&data);
        }
        Ok((content, reservation))
    }
}

impl UploadReservation {
    /// Adds bytes; returns the total of all requests.
    fn add(&mut self, bytes: u64) -> u64 {
        self.bytes += bytes;
        self.budget.0.fetch_add(bytes, Ordering::Relaxed) + bytes
    }
}

impl Drop for UploadReservation {
    fn drop(&mut self) {
        self.budget.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
