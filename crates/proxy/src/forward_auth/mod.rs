//! Authentication by another server: a request about each request, and what its response decides.

mod decision;
mod grant;
mod pending;
mod question;

pub(crate) use decision::{Decision, DecisionCache};
pub(crate) use grant::Grant;
pub(crate) use pending::QuestionTurn;
pub(crate) use question::{AuthQuestion, AuthSubject};
