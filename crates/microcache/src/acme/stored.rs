//! Certificates in the storage directory.

use microcache_proxy::{IssuedCertificate, IssuedCertificates};

use super::schedule;
use super::storage::Storage;

/// Loads the stored certificate of a name, if it is usable.
pub(super) fn load(storage: &Storage, name: &str) -> Result<Option<IssuedCertificate>, String> {
    let stored = storage.read(name);
    let stored =
        stored.map_err(|error| format!("the stored certificate cannot be read: {error}"))?;
    let Some(pem) = stored else {
        return Ok(None);
    };
    let issue = IssuedCertificate::read(&pem, name, schedule::now());
    let issue = issue.map_err(|why| format!("the stored certificate is unusable: {why}"))?;
    IssuedCertificates::of_this_process().show(name, &issue);
    Ok(Some(issue))
}
