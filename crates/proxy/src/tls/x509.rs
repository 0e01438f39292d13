//! The fields of an X.509 certificate that the server needs: validity, names, serial, authority key.
//!
//! Reads the operator's own files only. Clients verify everything else (RFC 5280).

use std::fmt;

const SEQUENCE: u8 = 0x30;
const OBJECT: u8 = 0x06;
const OCTETS: u8 = 0x04;
const BOOLEAN: u8 = 0x01;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
const DNS_NAME: u8 = 0x82;
const INTEGER: u8 = 0x02;
const KEY_ID: u8 = 0x80;
/// 2.5.29.17, `subjectAltName`.
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];
/// 2.5.29.35, `authorityKeyIdentifier`.
const AUTHORITY_KEY: &[u8] = &[0x55, 0x1d, 0x23];

/// Fields of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CertificateFields {
    pub(super) not_before: CertificateTime,
    pub(super) not_after: CertificateTime,
    /// DNS names in lower case; `*.` matches one label.
    pub(super) names: Vec<String>,
    /// Serial number, as encoded.
    pub(super) serial: Vec<u8>,
    /// Authority key identifier; empty if absent.
    pub(super) authority_key: Vec<u8>,
}

/// A time in a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CertificateTime {
    year: u32,
    month: u32,
    day: u32,
    second_of_day: u32,
}

impl CertificateFields {
    /// Parses a certificate (DER); `None` if it is malformed.
    pub(super) fn read(certificate: &[u8]) -> Option<Self> {
        let mut certificate = Der(Der(certificate).take(SEQUENCE)?);
        let mut fields = Der(certificate.take(SEQUENCE)?);
        fields.skip_if(VERSION);
        let serial = fields.take(INTEGER)?.to_vec();
        // Algorithm, issuer.
        fields.take(SEQUENCE)?;
        fields.take(SEQUENCE)?;
        let mut validity = Der(fields.take(SEQUENCE)?);
        let not_before = CertificateTime::read(&mut validity)?;
        let not_after = CertificateTime::read(&mut validity)?;
        let (mut names, mut authority_key) = (Vec::new(), Vec::new());
        while let Some((tag, value)) = fields.next() {
            if tag == EXTENSIONS {
                let mut extensions = Der(Der(value).take(SEQUENCE)?);
                while let Some(extension) = extensions.take(SEQUENCE) {
                    match opened(extension) {
                        (Some(ALTERNATIVE_NAMES), listed) => names.extend(host_names(listed)),
                        (Some(AUTHORITY_KEY), mut about) => {
                            authority_key = about.take(KEY_ID).unwrap_or_default().to_vec();
                        }
                        _ => {}
                    }
                }
            }
        }
        Some(Self {
            not_before,
            not_after,
            names,
            serial,
            authority_key,
        })
    }
}

/// Returns the object identifier of an extension, and the list in its value.
fn opened(extension: &[u8]) -> (Option<&[u8]>, Der<'_>) {
    let mut extension = Der(extension);
    let what = extension.take(OBJECT);
    extension.skip_if(BOOLEAN);
    let listed = extension
        .take(OCTETS)
        .and_then(|all| Der(all).take(SEQUENCE));
    (what, Der(listed.unwrap_or_default()))
}

/// DNS names among the subject's alternative names.
fn host_names(mut listed: Der<'_>) -> Vec<String> {
    let mut names = Vec::new();
    while let Some((tag, name)) = listed.next() {
        if let (DNS_NAME, Ok(name)) = (tag, std::str::from_utf8(name)) {
            names.push(name.to_ascii_lowercase());
        }
    }
    names
}

impl CertificateTime {
    fn read(from: &mut Der<'_>) -> Option<Self> {
        let (tag, text) = from.next()?;
        let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
        let (year, rest) = match tag {
            // RFC 5280 §4.1.2.5.1: two digits, of 1950 to 2049.
            UTC_TIME => {
                let (year, rest) = text.split_at_checked(2)?;
                let year = number(year)?;
                (if year < 50 { 2000 + year } else { 1900 + year }, rest)
            }
            GENERALIZED_TIME => {
                let (year, rest) = text.split_at_checked(4)?;
                (number(year)?, rest)
            }
            _ => return None,
        };
        if rest.len() != 10 {
            return None;
        }
        let two = |at: usize| number(rest.get(at..at + 2)?);
        Some(Self {
            year,
            month: two(0).filter(|month| (1..=12).contains(month))?,
            day: two(2).filter(|day| (1..=31).contains(day))?,
            second_of_day: two(4)? * 3600 + two(6)? * 60 + two(8)?,
        })
    }

    /// Seconds since 1970.
    pub(super) fn unix(self) -> i64 {
        // Years begin with March here, so that the odd day is the last one of a year.
        let (year, month) = (i64::from(self.year), i64::from(self.month));
        let year = year - i64::from(month <= 2);
        let era = year.div_euclid(400);
        let of_era = year.rem_euclid(400);
        let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + i64::from(self.day) - 1;
        let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - 719_468;
        days * 86_400 + i64::from(self.second_of_day)
    }
}

impl fmt::Display for CertificateTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

fn number(digits: &str) -> Option<u32> {
    digits
        .bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| digits.parse().ok())?
}

/// Values one after the other, in the Distinguished Encoding Rules.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The next value and its tag.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            short @ 0..=0x7f => (usize::from(short), rest),
            long => {
                let bytes = usize::from(long & 0x7f);
                if bytes == 0 || bytes > 4 {
                    return None;
                }
                let (length, rest) = rest.split_at_checked(bytes)?;
                let length = length
                    .iter()
                    .fold(0, |all, &byte| all << 8 | usize::from(byte));
                (length, rest)
            }
        };
        let (value, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, value))
    }

    /// The next value, if it has this tag.
    fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next()
            .filter(|(is, _)| *is == tag)
            .map(|(_, value)| value)
    }

    /// Leaves the next value out if it has this tag.
    fn skip_if(&mut self, tag: u8) {
        if self.0.first() == Some(&tag) {
            self.next();
        }
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    #[test]
    fn what_a_certificate_says_is_read() {
        let names = ["Example.org".to_owned(), "*.example.org".to_owned()];
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = date_time_ymd(2024, 2, 29);
        params.not_after = date_time_ymd(2051, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let facts = CertificateFields::read(certificate.der()).unwrap();
        assert_eq!(facts.names, ["example.org", "*.example.org"]);
        assert_eq!(facts.not_before.unix(), 1_709_164_800);
        assert_eq!(facts.not_before.to_string(), "2024-02-29");
        // From 2050 on years have four digits.
        assert_eq!(facts.not_after.unix(), 2_556_144_000);
        assert_eq!(facts.not_after.to_string(), "2051-01-01");
    }

    #[test]
    fn what_is_cut_or_changed_is_no_certificate_and_no_panic() {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["a".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap().der().to_vec();
        for length in 0..certificate.len() {
            assert_eq!(
                CertificateFields::read(&certificate[..length]),
                None,
                "{length}"
            );
        }
        for at in 0..certificate.len() {
            for value in [0, 0x30, 0x7f, 0x80, 0x84, 0xff] {
                let mut changed = certificate.clone();
                changed[at] = value;
                let _ = CertificateFields::read(&changed);
            }
        }
    }
}
