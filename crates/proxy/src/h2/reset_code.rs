//! The error code with which a response is reset whose body breaks off.

use microcache_engine::BodyError;

use super::reason::ErrorCode;

/// Returns the code for a body that breaks off. CANCEL and `ENHANCE_YOUR_CALM` of an origin on HTTP/2 are passed
/// on; its other codes concern its own connection.
pub(super) fn reset_code(why: &BodyError) -> ErrorCode {
    let passed_on = [ErrorCode::Cancel, ErrorCode::EnhanceYourCalm];
    let is_it = |code: &ErrorCode| *why == BodyError::Reset(code.code());
    passed_on
        .into_iter()
        .find(is_it)
        .unwrap_or(ErrorCode::Internal)
}
