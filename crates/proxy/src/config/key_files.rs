//! Files with keys and tokens.

use std::path::PathBuf;

use microcache_push::{SharedSecret, TokenKey};

use super::mistake::{Mistake, Mistakes};
use super::place::Place;
use super::tls::at;
use crate::tls::exposed;

/// Reads the token in the file of an option.
pub(super) fn read_secret(
    file: Option<&(PathBuf, Place)>,
    option: &'static str,
    mistakes: &mut Mistakes,
) -> Option<SharedSecret> {
    let (file, place) = file?;
    if let Some(fault) = exposed(file) {
        mistakes.warn(at(place, fault));
    }
    SharedSecret::read(file, option)
        .map_err(|error| {
            let mistake = Mistake::new(place, error.to_string());
            mistakes.note(mistake.remedy("openssl rand -hex 32 >FILE"));
        })
        .ok()
}

/// Reads the key to verify tokens in the file of an option.
pub(super) fn read_key(
    file: Option<&(PathBuf, Place)>,
    option: &'static str,
    mistakes: &mut Mistakes,
) -> Option<TokenKey> {
    let (file, place) = file?;
    match TokenKey::read(file, option) {
        Ok(key) => {
            if let Some(fault) = exposed(file).filter(|_| key.is_secret()) {
                mistakes.warn(at(place, fault));
            }
            Some(key)
        }
        Err(error) => {
            let mistake = Mistake::new(place, error.to_string());
            mistakes.note(mistake.remedy("openssl rand -hex 32 >FILE"));
            None
        }
    }
}
