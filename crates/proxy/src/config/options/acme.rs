//! Options of ACME certificates.

use std::path::PathBuf;

use super::super::acme::{
    AcmeConfig, MAX_NAMES, parse_directory, parse_email, parse_name, parse_profile,
};
use super::super::mistake::{Mistake, Mistakes};
use super::super::option::Form::{List, Text};
use super::super::option::{Opt, opt, optional};
use super::super::raw::Value;

/// Options of ACME certificates.
pub(in crate::config) const ACME: &[Opt<AcmeConfig>] = &[
    optional(
        "acme",
        List("NAME"),
        r#"["example.org", "www.example.org"]"#,
    )
    .help("Host names to obtain and renew certificates for by ACME (Let's Encrypt)")
    .more(
        "At most 100, each with a certificate of its own; IP addresses too. Without `listen` and `tls_listen` \
             the server listens on ports 80 and 443 of all addresses and redirects HTTP to HTTPS. \
             Using it accepts the terms of service of the certificate authority.",
    )
    .sets(set_names),
    optional("acme_email", Text("ADDRESS"), "me@example.org")
        .help("Contact address for notices of the certificate authority")
        .sets(|acme, v, m| m.put(&mut acme.email, v.parse(parse_email).map(Some))),
    opt(
        "acme_directory",
        Text("URL"),
        "https://acme-v02.api.letsencrypt.org/directory",
    )
    .help("Directory URL of the ACME certificate authority (RFC 8555)")
    .more(
        "For tests: https://acme-staging-v02.api.letsencrypt.org/directory, whose \
             certificates browsers do not trust.",
    )
    .sets(|acme, v, m| m.put(&mut acme.directory, v.parse(parse_directory))),
    optional("acme_profile", Text("NAME"), "shortlived")
        .unset("the authority's default")
        .help("Profile of certificates, such as `shortlived` (Let's Encrypt: six days)")
        .more(
            "An authority that does not offer it gets no order, and the error lists those that it offers. It applies from \
             the next order on. Let's Encrypt issues certificates for addresses with `shortlived` only.",
        )
        .sets(|acme, v, m| m.put(&mut acme.profile, v.parse(parse_profile).map(Some))),
    optional("acme_root", Text("FILE"), "/etc/microcache/ca.pem")
        .unset("the system's roots")
        .help("File (PEM) with root certificates to trust for the ACME server itself")
        .more("For a certificate authority of your own.")
        .sets(|acme, v, m| m.put(&mut acme.root, v.file().map(Some))),
    optional("acme_eab_kid", Text("ID"), "kid-1")
        .help("Key identifier for external account binding (EAB)")
        .more("For authorities that require a customer account, see RFC 8555 §7.3.4.")
        .sets(|acme, v, m| {
            if let Some(id) = m.ok(v.text()) {
                acme.key_id = Some((id.to_owned(), v.place.clone()));
            }
        }),
    optional("acme_eab_key_file", Text("FILE"), "/etc/microcache/eab")
        .help("File with the HMAC key for external account binding, in base64url")
        .more("Only the server's user should be able to read it.")
        .sets(|acme, v, m| m.put(&mut acme.key_file, v.file().map(Some))),
    optional(
        "acme_storage",
        Text("DIRECTORY"),
        "/var/lib/microcache/acme",
    )
    .unset(
        "`acme` in systemd's STATE_DIRECTORY, in XDG_STATE_HOME/microcache or in \
             ~/.local/state/microcache",
    )
    .help("Directory for certificates, private keys and the ACME account")
    .more(
        "Created if missing, readable by this user only. If it is lost, certificates are \
             requested again, which the authority limits to a few per week.",
    )
    .sets(|acme, v, m| {
        let absolute = |text: &str| {
            let path = PathBuf::from(text);
            path.is_absolute()
                .then_some(path)
                .ok_or_else(|| "write an absolute path".to_owned())
        };
        m.put(&mut acme.chosen_storage, v.parse(absolute).map(Some));
    }),
];

fn set_names(acme: &mut AcmeConfig, value: &Value, mistakes: &mut Mistakes) {
    acme.names = Vec::new();
    acme.place = Some(value.place.clone());
    for item in value.items() {
        let Some(name) = mistakes.ok(item.parse(parse_name)) else {
            continue;
        };
        if acme.names.contains(&name) {
            mistakes.note(Mistake::new(&item.place, format!("{name} is listed twice")));
        }
        acme.names.push(name);
    }
    if value.items().is_empty() || value.items().len() > MAX_NAMES {
        let what = format!("expected from 1 to {MAX_NAMES} names");
        mistakes.note(Mistake::new(&value.place, what));
    }
}
