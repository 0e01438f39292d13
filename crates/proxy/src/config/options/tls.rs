//! Options of TLS with clients.

use std::path::PathBuf;

use super::super::mistake::{Mistake, Mistakes};
use super::super::option::Form::{List, Switch, Text};
use super::super::option::{Opt, optional};
use super::super::raw::Value;
use super::super::tls::TlsConfig;
use super::server::read_addresses;
use crate::tls::CertificateFiles;

/// Options of TLS with clients.
pub(in crate::config) const TLS: &[Opt<TlsConfig>] = &[
    optional("tls", List("CERTIFICATE,KEY"), r#"{ certificate = "/etc/microcache/example.org.pem", key = "/etc/microcache/example.org.key" }"#)
        .unset("none: no TLS")
        .help("TLS certificates with their keys (PEM files)")
        .more(
            "On the command line `--tls fullchain.pem,key.pem`, repeated for each certificate; \
             one file may hold both. The certificate is selected by the client's SNI and the \
             names in it; `*.` matches one label. The first one is the default. They are read \
             again on reload.",
        )
        .sets(set_certificates),
    optional("tls_listen", List("ADDRESS"), r#"["0.0.0.0:443", "[::]:443"]"#)
        .unset("127.0.0.1:8443 with `tls`, port 443 of all addresses with `acme`")
        .help("Address and port to listen on (HTTPS)")
        .more("Same form as `listen`.")
        .sets(|tls, v, m| tls.listen = read_addresses(v, m)),
    optional("redirect_http", Switch, "true")
        .unset("false, or true with `acme` and neither `listen` nor `tls_listen`")
        .help("Redirect from HTTP to HTTPS (308)")
        .more(
            "To the port of the first address in `tls_listen`. Requests from trusted proxies that \
             say the visitor used TLS are served.",
        )
        .sets(|tls, v, m| m.put(&mut tls.redirect, v.switch())),
    optional("strict_transport_security", Text("POLICY"), "max-age=31536000")
        .help("Strict-Transport-Security (HSTS) on HTTPS responses")
        .more(
            "Browsers use HTTPS only for `max-age` seconds; this cannot be revoked earlier. A \
             header from the backend takes precedence.",
        )
        .sets(|tls, v, m| m.put(&mut tls.strict, v.parse(policy).map(Some))),
    optional("tls_ticket_keys", Text("FILE"), "/etc/microcache/tickets")
        .unset("random, per process")
        .help("File with TLS session ticket secrets, for resumption across servers")
        .more(
            "One per line, at least 32 characters (`openssl rand -hex 32`). The first encrypts, \
             all decrypt: put a new one first on all servers, and remove the old one a day later. \
             The keys derived from them change twice a day.",
        )
        .sets(|tls, v, m| m.put(&mut tls.ticket_keys, v.file().map(Some))),
    optional("client_ca", Text("FILE"), "/etc/microcache/clients.pem")
        .unset("none: no client is asked for a certificate")
        .help("Authorities (PEM) whose certificates clients may present")
        .more(
            "Each client is asked for a certificate, and need not have one: routes with \
             `client_certificate` require it. One of another authority, or expired, ends the \
             handshake. A reload reads the file again. See \
             [access](access.md#by-client-certificate).",
        )
        .sets(|tls, v, m| m.put(&mut tls.client_ca, v.file().map(Some))),
];

/// Options of one certificate.
pub(in crate::config) const CERTIFICATE: &[Opt<CertificateFiles>] = &[
    optional(
        "certificate",
        Text("FILE"),
        "/etc/microcache/example.org.pem",
    )
    .unset("required")
    .help("File (PEM) with the certificate, followed by its chain")
    .sets(|files, v, m| m.put(&mut files.certificate, v.path())),
    optional("key", Text("FILE"), "/etc/microcache/example.org.key")
        .unset("the certificate's file")
        .help("File (PEM) with the private key, unencrypted")
        .more("Only the server's user should be able to read it.")
        .sets(|files, v, m| m.put(&mut files.key, v.path().map(Some))),
    optional("ocsp", Text("FILE"), "/etc/microcache/example.org.ocsp")
        .help("File (DER) with an OCSP response to staple")
        .more("Read with the certificate; it has to be kept up to date externally.")
        .sets(|files, v, m| m.put(&mut files.ocsp, v.path().map(Some))),
];

fn set_certificates(tls: &mut TlsConfig, value: &Value, mistakes: &mut Mistakes) {
    tls.certificates.clear();
    for item in value.items() {
        let before = mistakes.count();
        let mut files = CertificateFiles::default();
        if item.is_text() {
            match item.parse(certificate_and_key) {
                Ok(read) => files = read,
                Err(mistake) => mistakes.note(mistake),
            }
        } else if let Some(table) = mistakes.ok(item.table()) {
            table.apply(CERTIFICATE, &mut files, mistakes);
            if table.get("certificate").is_none() {
                mistakes.note(Mistake::new(
                    &item.place,
                    "a table in `tls` without `certificate`",
                ));
            }
            table.refuse_rest(mistakes);
        }
        if mistakes.count() == before {
            tls.certificates.push((files, item.place.clone()));
        }
    }
    if value.items().is_empty() {
        mistakes.note(Mistake::new(&value.place, "no certificate"));
    }
}

/// Parses the names of two files, or of one with both.
pub(super) fn certificate_and_key(text: &str) -> Result<CertificateFiles, String> {
    let (certificate, key) = match text.split_once(',') {
        Some((certificate, key)) => (certificate.trim(), Some(key.trim())),
        None => (text.trim(), None),
    };
    if certificate.is_empty() || key.is_some_and(|key| key.is_empty() || key.contains(',')) {
        return Err("write CERTIFICATE,KEY: two files, or one file with both".to_owned());
    }
    Ok(CertificateFiles {
        certificate: certificate.into(),
        key: key.map(PathBuf::from),
        ocsp: None,
    })
}

/// Parses a policy: directives, one of them `max-age` (RFC 6797 §6.1).
fn policy(text: &str) -> Result<String, String> {
    let is_age = |directive: &str| {
        let (name, value) = directive.split_once('=').unwrap_or_default();
        let value = value.trim().trim_matches('"');
        name.trim().eq_ignore_ascii_case("max-age")
            && !value.is_empty()
            && value.bytes().all(|b| b.is_ascii_digit())
    };
    let is_text = text.bytes().all(|b| b.is_ascii_graphic() || b == b' ');
    if is_text && text.split(';').any(is_age) {
        Ok(text.to_owned())
    } else {
        Err("write the value of the header: \"max-age=31536000\", \"max-age=31536000; includeSubDomains\"".to_owned())
    }
}
