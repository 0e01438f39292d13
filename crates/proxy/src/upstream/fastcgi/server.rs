//! A server with FastCGI: its settings and its lines in the log.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use microcache_policy::Scheme;

use super::call::ScriptCall;
use crate::observe::{Kind, Notices};
use crate::upstream::php::script::Script;
use crate::upstream::php::settings::PhpSettings;
use crate::upstream::server_address::ServerAddress;

/// A server with FastCGI.
#[derive(Debug)]
pub(in crate::upstream) struct FastCgiServer {
    settings: PhpSettings,
    /// Its name in the log.
    name: String,
    notices: Notices,
}

impl FastCgiServer {
    pub(in crate::upstream) fn new(
        settings: &PhpSettings,
        address: &ServerAddress,
        notices: &Notices,
    ) -> Self {
        Self {
            settings: settings.clone(),
            name: format!("origin {address}"),
            notices: notices.clone(),
        }
    }

    /// Connections stay open after a request.
    pub(super) const fn keeps_alive(&self) -> bool {
        self.settings.keep_alive
    }

    /// Logs a line that the application wrote to its error stream.
    pub(super) fn log(&self, line: &str) {
        let line = format!("{}: {line}", self.name);
        self.notices.say(Kind::ErrorOutput, &self.name, line);
    }

    /// Returns the script of a health check. The path is the operator's: it may be one that only php-fpm knows, such as
    /// its `ping.path`.
    pub(in crate::upstream) fn checked(&self, path: &str) -> ScriptCall {
        let mut name = path.split('?').next().unwrap_or_default().to_owned();
        if name.ends_with('/') {
            name.push_str(&self.settings.index);
        }
        let root = self.settings.root.as_deref().unwrap_or(Path::new("/"));
        ScriptCall {
            script: Script::new(root, name.into_bytes(), Vec::new()),
            scheme: Scheme::Http,
            client: None,
            server: IpAddr::V4(Ipv4Addr::LOCALHOST),
        }
    }
}
