//! Options of certificates that are got from an authority.

use std::path::PathBuf;

use super::super::acme::{AcmeConfig, MAX_NAMES, parse_directory, parse_email, parse_name};
use super::super::mistake::{Mistake, Mistakes};
use super::super::option::{About, Form, Opt, Unset};
use super::super::raw::Value;

/// Options of certificates that are got from an authority.
pub(in crate::config) const ACME: &[Opt<AcmeConfig>] = &[
    Opt {
        about: About {
            name: "acme",
            form: Form::List("NAME"),
            unset: Unset::Says("none"),
            example: r#"["example.org", "www.example.org"]"#,
            help: "The names that certificates are got for from an authority, and renewed, by themselves",
            more: "100 at most, each with a certificate of its own. Where neither `listen` nor `tls_listen` is named, clients connect at the ports 80 and 443 \
                   of all addresses, and are sent to the second one. Who uses it agrees to the terms of the authority.",
        },
        set: set_names,
    },
    Opt {
        about: About {
            name: "acme_email",
            form: Form::Text("ADDRESS"),
            unset: Unset::Says("none"),
            example: r#""me@example.org""#,
            help: "Where the authority writes to if something is wrong with certificates",
            more: "",
        },
        set: |acme, v, m| m.put(&mut acme.email, v.parse(parse_email).map(Some)),
    },
    Opt {
        about: About {
            name: "acme_directory",
            form: Form::Text("URL"),
            unset: Unset::Is(r#""https://acme-v02.api.letsencrypt.org/directory""#),
            example: r#""https://acme-v02.api.letsencrypt.org/directory""#,
            help: "The authority, by the url of its directory (RFC 8555)",
            more: "To try things out: https://acme-staging-v02.api.letsencrypt.org/directory, whose certificates nobody believes.",
        },
        set: |acme, v, m| m.put(&mut acme.directory, v.parse(parse_directory)),
    },
    Opt {
        about: About {
            name: "acme_root",
            form: Form::Text("FILE"),
            unset: Unset::Says("those of the system"),
            example: r#""/etc/microcache/ca.pem""#,
            help: "Certificates that vouch for the authority's own server, in PEM form",
            more: "For an authority of your own.",
        },
        set: |acme, v, m| {
            if let Some(file) = m.ok(v.text()) {
                acme.root = Some((PathBuf::from(file), v.place.clone()));
            }
        },
    },
    Opt {
        about: About {
            name: "acme_eab_kid",
            form: Form::Text("ID"),
            unset: Unset::Says("none"),
            example: r#""kid-1""#,
            help: "What an authority that has to know its customers calls your key",
            more: "External account binding, RFC 8555 §7.3.4.",
        },
        set: |acme, v, m| {
            if let Some(id) = m.ok(v.text()) {
                acme.key_id = Some((id.to_owned(), v.place.clone()));
            }
        },
    },
    Opt {
        about: About {
            name: "acme_eab_key_file",
            form: Form::Text("FILE"),
            unset: Unset::Says("none"),
            example: r#""/etc/microcache/eab""#,
            help: "A file with that key, in base64 as the authority gives it",
            more: "Nobody else should be able to read it.",
        },
        set: |acme, v, m| {
            if let Some(file) = m.ok(v.text()) {
                acme.key_file = Some((PathBuf::from(file), v.place.clone()));
            }
        },
    },
    Opt {
        about: About {
            name: "acme_storage",
            form: Form::Text("DIRECTORY"),
            unset: Unset::Says(
                "what systemd or XDG_STATE_HOME names for state, or ~/.local/state/microcache/acme",
            ),
            example: r#""/var/lib/microcache/acme""#,
            help: "Where certificates, their keys and the account are kept",
            more: "It is made if it is not there, for this user alone. Whoever loses it has to ask the authority again, which gives only so many a week.",
        },
        set: |acme, v, m| {
            let absolute = |text: &str| {
                let path = PathBuf::from(text);
                path.is_absolute()
                    .then_some(path)
                    .ok_or_else(|| "write the whole path, from / on".to_owned())
            };
            m.put(&mut acme.chosen_storage, v.parse(absolute).map(Some));
        },
    },
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
        let what = format!("from 1 to {MAX_NAMES} names are taken");
        mistakes.note(Mistake::new(&value.place, what));
    }
}
