//! Options of TLS with clients.

use std::path::PathBuf;

use super::super::mistake::{Mistake, Mistakes};
use super::super::option::{About, Form, Opt, Unset};
use super::super::raw::Value;
use super::super::tls::TlsConfig;
use super::server::read_addresses;
use crate::tls::CertificateFiles;

/// Options of TLS with clients.
pub(in crate::config) const TLS: &[Opt<TlsConfig>] = &[
    Opt {
        about: About {
            name: "tls",
            form: Form::List("CERTIFICATE,KEY"),
            unset: Unset::Says("none: no TLS"),
            example: r#"{ certificate = "/etc/microcache/example.org.pem", key = "/etc/microcache/example.org.key" }"#,
            help: "The certificates that clients are shown, each with its key, as files in PEM form",
            more: "`--tls fullchain.pem,key.pem` on the command line, and again for each certificate; a file alone holds both. Clients are \
                   shown the one for the host that they name, by the names in it; `*.` stands for one label. The first is for \
                   all others. They are read again with the configuration.",
        },
        set: set_certificates,
    },
    Opt {
        about: About {
            name: "tls_listen",
            form: Form::List("ADDRESS"),
            unset: Unset::Says(
                "127.0.0.1:8443 if there is `tls`, or with `acme` port 443 of all addresses",
            ),
            example: r#"["0.0.0.0:443", "[::]:443"]"#,
            help: "Where clients connect by TLS",
            more: "Written as those in `listen`, where they connect without it.",
        },
        set: |tls, v, m| tls.listen = read_addresses(v, m),
    },
    Opt {
        about: About {
            name: "redirect_http",
            form: Form::Switch,
            unset: Unset::Says("false, or true with `acme` and neither `listen` nor `tls_listen`"),
            example: "true",
            help: "Send those who come without TLS to where it is spoken, with 308",
            more: "To the port of the first address in `tls_listen`. Trusted proxies that say that the visitor came by TLS are answered.",
        },
        set: |tls, v, m| m.put(&mut tls.redirect, v.switch()),
    },
    Opt {
        about: About {
            name: "strict_transport_security",
            form: Form::Text("POLICY"),
            unset: Unset::Says("none"),
            example: r#""max-age=31536000""#,
            help: "The Strict-Transport-Security that clients are told who came by TLS",
            more: "From then on they come by TLS only, for so many seconds: it cannot be taken back before. What the application says \
                   of it counts.",
        },
        set: |tls, v, m| m.put(&mut tls.strict, v.parse(policy).map(Some)),
    },
    Opt {
        about: About {
            name: "tls_ticket_keys",
            form: Form::Text("FILE"),
            unset: Unset::Says("keys of this process's own"),
            example: r#""/etc/microcache/tickets""#,
            help: "A file with secrets, so that several servers take up each other's TLS sessions",
            more: "One a line, of 32 characters at least (`openssl rand -hex 32`). The first one seals, all open: put a new one first \
                   everywhere, and take the old one out a day later. The keys made of them change twice a day.",
        },
        set: |tls, v, m| {
            if let Some(file) = m.ok(v.text()) {
                tls.ticket_keys = Some((PathBuf::from(file), v.place.clone()));
            }
        },
    },
];

/// What a certificate may be given in a file.
pub(in crate::config) const CERTIFICATE: &[Opt<CertificateFiles>] = &[
    Opt {
        about: About {
            name: "certificate",
            form: Form::Text("FILE"),
            unset: Unset::Says("needed"),
            example: r#""/etc/microcache/example.org.pem""#,
            help: "The certificate, and behind it those that lead to its authority",
            more: "",
        },
        set: |files, v, m| m.put(&mut files.certificate, v.text().map(PathBuf::from)),
    },
    Opt {
        about: About {
            name: "key",
            form: Form::Text("FILE"),
            unset: Unset::Says("the certificate's file"),
            example: r#""/etc/microcache/example.org.key""#,
            help: "Its private key, without a password",
            more: "Nobody else should be able to read it.",
        },
        set: |files, v, m| {
            m.put(
                &mut files.key,
                v.text().map(|file| Some(PathBuf::from(file))),
            );
        },
    },
    Opt {
        about: About {
            name: "ocsp",
            form: Form::Text("FILE"),
            unset: Unset::Says("none"),
            example: r#""/etc/microcache/example.org.ocsp""#,
            help: "What its authority says of it, in DER form, to be shown along with it",
            more: "It is read with the certificate; keeping it up to date is for whoever writes it.",
        },
        set: |files, v, m| {
            m.put(
                &mut files.ocsp,
                v.text().map(|file| Some(PathBuf::from(file))),
            );
        },
    },
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
                    "a certificate without `certificate`",
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

/// Reads the names of two files, or of one that holds both.
pub(super) fn certificate_and_key(text: &str) -> Result<CertificateFiles, String> {
    let (certificate, key) = match text.split_once(',') {
        Some((certificate, key)) => (certificate.trim(), Some(key.trim())),
        None => (text.trim(), None),
    };
    if certificate.is_empty() || key.is_some_and(|key| key.is_empty() || key.contains(',')) {
        return Err("write CERTIFICATE,KEY: two files, or one that holds both".to_owned());
    }
    Ok(CertificateFiles {
        certificate: certificate.into(),
        key: key.map(PathBuf::from),
        ocsp: None,
    })
}

/// RFC 6797 §6.1: directives, of which `max-age` has to be one.
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
        Err("write it as the field has it: \"max-age=31536000\", \"max-age=31536000; includeSubDomains\"".to_owned())
    }
}
