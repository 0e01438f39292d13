//! Options of the admin interface.

use std::net::SocketAddr;

use super::super::Admin;
use super::super::option::Form::Text;
use super::super::option::{Opt, optional};
use super::server::parse_address;

/// Options of the admin interface.
pub(in crate::config) const ADMIN: &[Opt<Admin>] = &[
    optional("admin", Text("ADDRESS"), "127.0.0.1:8081")
        .unset("127.0.0.1:8081 if that is free")
        .help("Address and port of the admin interface, or `off`")
        .more(
            "Not meant for visitors: an address that other machines can reach requires \
             `admin_token_file`.",
        )
        .sets(|admin, v, m| {
            if let Some(address) = m.ok(v.parse(parse_admin)) {
                (admin.address, admin.is_chosen) = (address, true);
            }
        }),
    optional("admin_token_file", Text("FILE"), "/etc/microcache/token")
        .unset("none: access from this machine only")
        .help("File with the bearer token that admin requests must carry")
        .more(
            "Sent as `Authorization: Bearer SECRET`. The token is the first line of the file, at \
             least 16 characters; only the server's user should be able to read it.",
        )
        .sets(|admin, v, m| m.put(&mut admin.token_file, v.path().map(Some))),
];

fn parse_admin(text: &str) -> Result<Option<SocketAddr>, String> {
    match text {
        "off" => Ok(None),
        text => parse_address(text)
            .map(Some)
            .map_err(|what| format!("{what}, or `off`")),
    }
}
