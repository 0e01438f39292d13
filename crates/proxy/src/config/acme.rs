//! ACME certificates: names, authority, account and storage.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ClientConfig;

use super::mistake::{Mistake, Mistakes};
use super::place::Place;
use super::raw::Table;
use super::tls::{TlsConfig, at, unix_time};
use crate::tls::{self, OriginTls, read_eab_key};

/// The default authority: Let's Encrypt.
pub(super) const DIRECTORY: &str = "https://acme-v02.api.letsencrypt.org/directory";
/// The maximum number of names. Each has a certificate of its own.
pub(super) const MAX_NAMES: usize = 100;

/// The configuration of ACME certificates.
#[derive(Clone, Debug, Default)]
pub struct AcmeConfig {
    /// The host names and addresses, each of which has a certificate of its own.
    pub names: Vec<String>,
    /// The contact address for the authority.
    pub email: Option<String>,
    /// The directory URL of the authority (RFC 8555 §7.1.1).
    pub directory: String,
    /// The profile of certificates (draft-aaron-acme-profiles); by default the authority chooses.
    pub profile: Option<String>,
    /// The directory of accounts and certificates.
    pub storage: PathBuf,
    /// External account binding.
    pub binding: Option<Binding>,
    /// TLS with the authority; `None` until the files are read.
    pub tls: Option<Arc<ClientConfig>>,
    pub(super) place: Option<Place>,
    pub(super) root: Option<(PathBuf, Place)>,
    pub(super) key_id: Option<(String, Place)>,
    pub(super) key_file: Option<(PathBuf, Place)>,
    pub(super) chosen_storage: Option<PathBuf>,
}

/// External account binding (RFC 8555 §7.3.4).
#[derive(Clone, PartialEq, Eq)]
pub struct Binding {
    /// The key identifier.
    pub id: String,
    /// The key.
    pub key: Vec<u8>,
}

/// Omits the key.
impl fmt::Debug for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Binding({})", self.id)
    }
}

impl AcmeConfig {
    /// Returns whether there are names to get certificates for.
    pub const fn is_on(&self) -> bool {
        !self.names.is_empty()
    }

    /// Sets the default listeners: ports 80 and 443 of all addresses, with a redirect to HTTPS.
    pub(super) fn settle(
        &self,
        listen: &mut Vec<SocketAddr>,
        tls: &mut TlsConfig,
        says: impl Fn(&'static str) -> bool,
    ) {
        if !self.is_on() || says("tls_listen") {
            return;
        }
        tls.listen = vec![everywhere(443)];
        if !says("listen") {
            *listen = vec![everywhere(80)];
            if !says("redirect_http") {
                tls.redirect = true;
            }
        }
    }

    /// Notes options that have no effect.
    pub(super) fn check(&mut self, table: &Table<'_>, mistakes: &mut Mistakes) {
        if !self.is_on() {
            if table.get("acme").is_some() {
                return;
            }
            for name in [
                "acme_email",
                "acme_directory",
                "acme_profile",
                "acme_root",
                "acme_eab_kid",
                "acme_eab_key_file",
                "acme_storage",
            ] {
                if let Some(value) = table.get(name) {
                    let what = format!("`{name}` has no effect without `acme`");
                    mistakes.note(
                        Mistake::new(&value.place, what)
                            .remedy("add acme = \"HOST\", or remove it"),
                    );
                }
            }
        }
    }

    /// Finds the storage directory, and reads the configured files.
    pub(super) fn read_files(&mut self, mistakes: &mut Mistakes) {
        let Some(place) = self.place.clone() else {
            return;
        };
        match self.chosen_storage.clone().or_else(|| usual_state("acme")) {
            Some(folder) => self.storage = folder,
            None => mistakes.note(
                Mistake::new(&place, "no directory for certificates")
                    .remedy("set `acme_storage` to a directory"),
            ),
        }
        let roots = OriginTls {
            ca: self.root.as_ref().map(|(file, _)| file.clone()),
            ..OriginTls::default()
        };
        match roots.load(unix_time()) {
            Ok(ready) => self.tls = Some(ready.config),
            Err(fault) => {
                let place = self.root.as_ref().map_or(&place, |(_, place)| place);
                mistakes.note(at(place, fault));
            }
        }
        self.read_binding(mistakes);
        let is_for_address = self.names.iter().any(|name| name.parse::<IpAddr>().is_ok());
        if is_for_address && self.profile.is_none() && self.directory == DIRECTORY {
            let what =
                "this authority issues certificates for addresses in the profile `shortlived` only";
            let remedy = "add acme_profile = \"shortlived\"";
            mistakes.warn(Mistake::new(&place, what).remedy(remedy));
        }
    }

    fn read_binding(&mut self, mistakes: &mut Mistakes) {
        match (&self.key_id, &self.key_file) {
            (None, None) => {}
            (Some((id, _)), Some((file, place))) => {
                if let Some(fault) = tls::exposed(file) {
                    mistakes.warn(at(place, fault));
                }
                match read_eab_key(file) {
                    Ok(key) => {
                        self.binding = Some(Binding {
                            id: id.clone(),
                            key,
                        });
                    }
                    Err(fault) => mistakes.note(at(place, fault)),
                }
            }
            (Some((_, place)), None) => mistakes.note(
                Mistake::new(place, "`acme_eab_kid` without a key")
                    .remedy("set `acme_eab_key_file` to the file with the key"),
            ),
            (None, Some((_, place))) => mistakes.note(
                Mistake::new(place, "`acme_eab_key_file` without `acme_eab_kid`")
                    .remedy("set `acme_eab_kid` to the key identifier from the authority"),
            ),
        }
    }
}

/// The wildcard address. That of IPv6 accepts IPv4 connections too, if the machine has IPv6.
fn everywhere(port: u16) -> SocketAddr {
    let any: IpAddr = match TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)) {
        Ok(_) => Ipv6Addr::UNSPECIFIED.into(),
        Err(_) => Ipv4Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(any, port)
}

/// Returns the state directory: from systemd, or from XDG variables.
pub(super) fn usual_state(what: &str) -> Option<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    // There may be several, of which the first one is ours.
    let state = named("STATE_DIRECTORY")
        .and_then(|all| std::env::split_paths(&all).next())
        .or_else(|| Some(Path::new(&named("XDG_STATE_HOME")?).join("microcache")))
        .or_else(|| Some(Path::new(&named("HOME")?).join(".local/state/microcache")))?;
    state.is_absolute().then(|| state.join(what))
}

/// Parses a host name or an address that an authority can validate; returns it in lower case.
pub(super) fn parse_name(text: &str) -> Result<String, String> {
    let name = text.trim_end_matches('.').to_ascii_lowercase();
    if name.starts_with("*.") {
        return Err(
            "wildcard certificates need a DNS challenge, which is not supported: list each host, \
             or configure a certificate from elsewhere as `tls`"
                .to_owned(),
        );
    }
    if let Ok(address) = name.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(address.to_string());
    }
    if !name.is_ascii() {
        return Err("write it in ASCII, as in DNS (`xn--…`)".to_owned());
    }
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if name.len() > 253 || !name.split('.').all(is_label) {
        return Err("write a host name, such as example.org".to_owned());
    }
    Ok(name)
}

/// Parses the name of a profile.
pub(super) fn parse_profile(text: &str) -> Result<String, String> {
    let is_name = (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
    is_name
        .then(|| text.to_owned())
        .ok_or_else(|| "write the name of a profile, such as shortlived".to_owned())
}

/// Parses a mail address.
pub(super) fn parse_email(text: &str) -> Result<String, String> {
    let text = text.strip_prefix("mailto:").unwrap_or(text);
    let is_plain = text.bytes().all(|b| b.is_ascii_graphic() && b != b',');
    let parts = text.split_once('@');
    if is_plain && parts.is_some_and(|(user, host)| !user.is_empty() && !host.is_empty()) {
        Ok(text.to_owned())
    } else {
        Err("write one mail address, such as me@example.org".to_owned())
    }
}

/// Parses the URL of a directory; only https is accepted.
pub(super) fn parse_directory(text: &str) -> Result<String, String> {
    let read = text.parse::<http::Uri>().ok();
    let is_secure = |uri: &http::Uri| uri.scheme_str() == Some("https") && uri.host().is_some();
    if read.is_some_and(|uri| is_secure(&uri)) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "write the https URL of its directory, such as {DIRECTORY}"
        ))
    }
}
