//! Questions under way, so that identical requests ask once.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::fingerprints::Fingerprint;

/// Questions under way. There are at most as many as requests that are being authenticated.
#[derive(Default)]
pub(super) struct PendingQuestions(Mutex<HashMap<Fingerprint, watch::Receiver<()>>>);

/// The turn of a request.
pub(crate) enum QuestionTurn<'a> {
    /// It asks, and others wait until this is dropped.
    Ask(PendingQuestion<'a>),
    /// Another one asks.
    Wait(PendingAnswer),
}

/// A question under way.
pub(crate) struct PendingQuestion<'a> {
    all: &'a PendingQuestions,
    fingerprint: Fingerprint,
    /// Dropped behind the entry, which wakes those that wait.
    answered: watch::Sender<()>,
}

/// The end of the question of another request.
pub(crate) struct PendingAnswer(watch::Receiver<()>);

impl PendingQuestions {
    pub(super) fn turn(&self, fingerprint: Fingerprint) -> QuestionTurn<'_> {
        let mut pending = self.0.lock();
        if let Some(answered) = pending.get(&fingerprint) {
            return QuestionTurn::Wait(PendingAnswer(answered.clone()));
        }
        let (sender, answered) = watch::channel(());
        pending.insert(fingerprint, answered);
        QuestionTurn::Ask(PendingQuestion {
            all: self,
            fingerprint,
            answered: sender,
        })
    }
}

impl PendingQuestions {
    /// Forgets the question under way, so that its answer is not kept. `act` runs before any later question.
    pub(super) fn forget(&self, fingerprint: &Fingerprint, act: impl FnOnce()) {
        let mut pending = self.0.lock();
        pending.remove(fingerprint);
        act();
    }
}

impl PendingQuestion<'_> {
    /// Runs `act` unless the question was forgotten.
    pub(super) fn unless_forgotten(&self, act: impl FnOnce()) {
        let pending = self.all.0.lock();
        if self.is_in(&pending) {
            act();
        }
    }

    fn is_in(&self, pending: &HashMap<Fingerprint, watch::Receiver<()>>) -> bool {
        let known = pending.get(&self.fingerprint);
        known.is_some_and(|known| known.same_channel(&self.answered.subscribe()))
    }
}

impl Drop for PendingQuestion<'_> {
    fn drop(&mut self) {
        let mut pending = self.all.0.lock();
        if self.is_in(&pending) {
            pending.remove(&self.fingerprint);
        }
    }
}

impl PendingAnswer {
    /// Completes when the other request has its decision, or was cancelled.
    pub(crate) async fn arrived(mut self) {
        // Nothing is sent: the channel closes.
        let _ = self.0.changed().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fingerprints::FingerprintKey;

    #[tokio::test]
    async fn one_asks_and_the_others_wait_until_it_has_its_answer_or_is_cancelled() {
        let pending = PendingQuestions::default();
        let key = FingerprintKey::random();
        let of = |text: &str| key.of([text.as_bytes()]);
        let QuestionTurn::Ask(first) = pending.turn(of("a")) else {
            panic!("it is the first");
        };
        let QuestionTurn::Wait(second) = pending.turn(of("a")) else {
            panic!("it is the second");
        };
        assert!(matches!(pending.turn(of("b")), QuestionTurn::Ask(_)));
        let ended = async { drop(first) };
        tokio::join!(second.arrived(), ended);
        assert!(matches!(pending.turn(of("a")), QuestionTurn::Ask(_)));
        assert!(pending.0.lock().is_empty());
    }

    #[test]
    fn the_answer_to_a_forgotten_question_is_not_kept() {
        let pending = PendingQuestions::default();
        let key = FingerprintKey::random();
        let fingerprint = key.of([&b"a"[..]]);
        let ask = || match pending.turn(fingerprint) {
            QuestionTurn::Ask(question) => question,
            QuestionTurn::Wait(_) => panic!("no question is under way"),
        };
        let first = ask();
        pending.forget(&fingerprint, || ());
        let second = ask();
        let is_kept = |question: &PendingQuestion<'_>| {
            let mut is_kept = false;
            question.unless_forgotten(|| is_kept = true);
            is_kept
        };
        assert!(!is_kept(&first) && is_kept(&second));
        drop(first);
        assert!(is_kept(&second));
        drop(second);
        assert!(pending.0.lock().is_empty());
    }
}
