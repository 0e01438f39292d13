//! Options for those who operate the server.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::super::Admin;
use super::super::option::{About, Form, Opt, Unset};
use super::server::parse_address;

/// Options for those who operate the server.
pub(in crate::config) const ADMIN: &[Opt<Admin>] = &[
    Opt {
        about: About {
            name: "admin",
            form: Form::Text("ADDRESS"),
            unset: Unset::Says("127.0.0.1:8081 if that is free"),
            example: r#""127.0.0.1:8081""#,
            help: "Where operators connect, or `off`",
            more: "It is not for visitors: an address that \
                   other machines reach needs `admin_token_file`.",
        },
        set: |admin, v, m| {
            if let Some(address) = m.ok(v.parse(parse_admin)) {
                (admin.address, admin.is_chosen) = (address, true);
            }
        },
    },
    Opt {
        about: About {
            name: "admin_token_file",
            form: Form::Text("FILE"),
            unset: Unset::Says("none: this machine only, and no web page"),
            example: r#""/etc/microcache/token""#,
            help: "A file with the secret that operators' requests have to carry",
            more: "As `Authorization: Bearer SECRET`. Its first line counts, of 16 characters at least; nobody else should be able to \
                   read it.",
        },
        set: |admin, v, m| {
            m.put(
                &mut admin.token_file,
                v.text().map(|path| Some(PathBuf::from(path))),
            );
        },
    },
];

fn parse_admin(text: &str) -> Result<Option<SocketAddr>, String> {
    match text {
        "off" => Ok(None),
        text => parse_address(text)
            .map(Some)
            .map_err(|what| format!("{what}, or `off`")),
    }
}
