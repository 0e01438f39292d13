//! The decision of an authentication server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use microcache_engine::{Body, Frame, OriginResponse, Outcome, Response};
use microcache_policy::{CacheStatus, Detail, FieldsBuf, Network};
use parking_lot::Mutex;

use super::grant::Grant;
use super::pending::{PendingQuestion, PendingQuestions, QuestionTurn};
use crate::fingerprints::{DecisionTable, Fingerprint, FingerprintKey};

/// Limit of the body of a refusal.
const MAX_BODY: usize = 64 * 1024;
/// Fields of a refusal that the client receives.
const OF_REFUSALS: [&str; 5] = [
    "Location",
    "WWW-Authenticate",
    "Set-Cookie",
    "Content-Type",
    "Content-Language",
];

/// The decision about a request.
pub(crate) enum Decision {
    /// It is admitted.
    Granted(Grant),
    /// The client receives this response instead.
    Refused(Box<Response>),
}

impl Decision {
    /// Reads the decision from a response, of which these fields are copied if it admits the request.
    /// Fails with the reason why it is none.
    pub(crate) async fn of(response: OriginResponse, copied: &[String]) -> Result<Self, String> {
        match response.status {
            200..=299 => Ok(Self::Granted(Grant::of(&response.fields, copied))),
            401 | 403 | 301 | 302 | 303 | 307 | 308 => refusal(response).await,
            status => Err(format!("it has answered {status}")),
        }
    }
}

async fn refusal(mut response: OriginResponse) -> Result<Decision, String> {
    let mut body = BytesMut::new();
    while let Some(frame) = response.body.frame().await {
        match frame {
            Ok(Frame::Data(data)) if body.len() + data.len() <= MAX_BODY => {
                body.extend_from_slice(&data);
            }
            Ok(Frame::Trailers(_)) => {}
            Ok(Frame::Data(_)) => return Err("its response is larger than 64 KiB".to_owned()),
            Err(_) => return Err("its response has broken off".to_owned()),
        }
    }
    let mut fields = FieldsBuf::new();
    for name in OF_REFUSALS {
        for value in response.fields.fields().all(name) {
            fields.push(name, value);
        }
    }
    fields.push("Cache-Control", "no-store");
    let body: Bytes = body.freeze();
    Ok(Decision::Refused(Box::new(Response {
        status: response.status,
        fields: Some(fields.into()),
        age: None,
        cache_status: CacheStatus {
            detail: Some(Detail::AuthenticationRequired),
            ..CacheStatus::default()
        },
        length: Some(body.len() as u64),
        body: Body::Full(body),
        tunnel: None,
        outcome: Outcome::Limited,
    })))
}

/// Grants that routes keep for a short time.
pub(crate) struct DecisionCache {
    key: FingerprintKey,
    grants: Mutex<DecisionTable<Arc<Grant>>>,
    pending: PendingQuestions,
}

impl Default for DecisionCache {
    fn default() -> Self {
        Self {
            key: FingerprintKey::random(),
            grants: Mutex::default(),
            pending: PendingQuestions::default(),
        }
    }
}

impl DecisionCache {
    /// Returns the fingerprint of a request.
    pub(crate) fn fingerprint<'a>(&self, parts: impl IntoIterator<Item = &'a [u8]>) -> Fingerprint {
        self.key.of(parts)
    }

    pub(crate) fn get(&self, fingerprint: &Fingerprint) -> Option<Arc<Grant>> {
        self.grants.lock().get(fingerprint, Instant::now()).cloned()
    }

    /// Returns whether a request with this fingerprint asks, or waits for an identical one.
    pub(crate) fn turn(&self, fingerprint: Fingerprint) -> QuestionTurn<'_> {
        self.pending.turn(fingerprint)
    }

    /// Keeps a grant of a client. A cookie that came with it is for one response only, so such a grant is not kept.
    pub(crate) fn keep(&self, of: (Fingerprint, Network), grant: &Arc<Grant>, time: Duration) {
        if !grant.sets_cookies() && !time.is_zero() {
            let now = Instant::now();
            let mut grants = self.grants.lock();
            grants.insert(of, Arc::clone(grant), now + time, now);
        }
    }

    /// As [`Self::keep`], unless the fingerprint was forgotten since the question began.
    pub(crate) fn keep_answer(
        &self,
        question: &PendingQuestion<'_>,
        of: (Fingerprint, Network),
        grant: &Arc<Grant>,
        time: Duration,
    ) {
        question.unless_forgotten(|| self.keep(of, grant, time));
    }

    /// Forgets what is kept about a fingerprint, and answers to questions that began before.
    pub(crate) fn forget(&self, fingerprint: &Fingerprint) {
        let forget = || self.grants.lock().remove(fingerprint);
        self.pending.forget(fingerprint, forget);
    }
}
