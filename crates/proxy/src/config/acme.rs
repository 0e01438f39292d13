//! Certificates from an authority: for which names, from whom, and where they are kept.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ClientConfig;

use super::mistake::{Mistake, Mistakes, Place};
use super::raw::Table;
use super::tls::{TlsConfig, at, unix_time};
use crate::tls::{self, OriginTls, read_eab_key};

/// Who is asked when nothing is said: the large authority that takes no money.
pub(super) const DIRECTORY: &str = "https://acme-v02.api.letsencrypt.org/directory";
/// The most names. Each has a certificate of its own.
pub(super) const MAX_NAMES: usize = 100;

/// Certificates from an authority.
#[derive(Clone, Debug, Default)]
pub struct AcmeConfig {
    /// The names, each of which has a certificate of its own.
    pub names: Vec<String>,
    /// Whom the authority writes to.
    pub email: Option<String>,
    /// Where the authority says what it offers (RFC 8555 §7.1.1).
    pub directory: String,
    /// Where accounts and certificates are kept.
    pub storage: PathBuf,
    /// By what the authority knows a customer already.
    pub binding: Option<Binding>,
    /// TLS with the authority, once the files were read.
    pub tls: Option<Arc<ClientConfig>>,
    pub(super) place: Option<Place>,
    pub(super) root: Option<(PathBuf, Place)>,
    pub(super) key_id: Option<(String, Place)>,
    pub(super) key_file: Option<(PathBuf, Place)>,
    pub(super) chosen_storage: Option<PathBuf>,
}

/// By what an authority knows a customer already (RFC 8555 §7.3.4).
#[derive(Clone, PartialEq, Eq)]
pub struct Binding {
    /// What it calls the key.
    pub id: String,
    /// The key.
    pub key: Vec<u8>,
}

/// Keys are nobody's to read.
impl fmt::Debug for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Binding({})", self.id)
    }
}

impl AcmeConfig {
    /// Whether certificates are asked for.
    pub const fn is_on(&self) -> bool {
        !self.names.is_empty()
    }

    /// Settles where clients connect when nothing is said of that: everywhere, by TLS, and sent there.
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

    /// Settles the rest, and notes what means nothing.
    pub(super) fn check(&mut self, table: &Table<'_>, mistakes: &mut Mistakes) {
        if !self.is_on() {
            if table.get("acme").is_some() {
                return;
            }
            for name in [
                "acme_email",
                "acme_directory",
                "acme_root",
                "acme_eab_kid",
                "acme_eab_key_file",
                "acme_storage",
            ] {
                if let Some(value) = table.get(name) {
                    let what = format!("`{name}` has no effect without names");
                    mistakes.note(Mistake::new(&value.place, what).remedy("say which as `acme`"));
                }
            }
        }
    }

    /// Finds the place for certificates, and reads what is named.
    pub(super) fn read_files(&mut self, mistakes: &mut Mistakes) {
        let Some(place) = self.place.clone() else {
            return;
        };
        match self.chosen_storage.clone().or_else(|| usual_state("acme")) {
            Some(folder) => self.storage = folder,
            None => mistakes.note(
                Mistake::new(&place, "there is no place to keep certificates in")
                    .remedy("name a directory as `acme_storage`"),
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
                    .remedy("name the file with the key as `acme_eab_key_file`"),
            ),
            (None, Some((_, place))) => mistakes.note(
                Mistake::new(place, "`acme_eab_key_file` without its name")
                    .remedy("say what the authority calls the key as `acme_eab_kid`"),
            ),
        }
    }
}

/// All addresses of this machine. A socket for those of IPv6 takes connections by IPv4 too, where there is IPv6.
fn everywhere(port: u16) -> SocketAddr {
    let any: IpAddr = match TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)) {
        Ok(_) => Ipv6Addr::UNSPECIFIED.into(),
        Err(_) => Ipv4Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(any, port)
}

/// Where services keep what is theirs, this among it: as systemd says, or as users have it.
pub(super) fn usual_state(what: &str) -> Option<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    // There may be several, of which the first one is ours.
    let state = named("STATE_DIRECTORY")
        .and_then(|all| std::env::split_paths(&all).next())
        .or_else(|| Some(Path::new(&named("XDG_STATE_HOME")?).join("microcache")))
        .or_else(|| Some(Path::new(&named("HOME")?).join(".local/state/microcache")))?;
    state.is_absolute().then(|| state.join(what))
}

/// A name that an authority can look at, in lower case.
pub(super) fn parse_name(text: &str) -> Result<String, String> {
    let name = text.trim_end_matches('.').to_ascii_lowercase();
    if name.starts_with("*.") {
        return Err(
            "a certificate with `*.` is given only to who can change the name's DNS: name each host, \
             or get it elsewhere and name its files as `tls`"
                .to_owned(),
        );
    }
    if name.parse::<IpAddr>().is_ok() {
        return Err("name a host, not an address".to_owned());
    }
    if !name.is_ascii() {
        return Err("write it as DNS has it, with `xn--`".to_owned());
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
        return Err("write a host's name alone, such as example.org".to_owned());
    }
    Ok(name)
}

/// An address that mail is sent to.
pub(super) fn parse_email(text: &str) -> Result<String, String> {
    let text = text.strip_prefix("mailto:").unwrap_or(text);
    let is_plain = text.bytes().all(|b| b.is_ascii_graphic() && b != b',');
    let parts = text.split_once('@');
    if is_plain && parts.is_some_and(|(who, host)| !who.is_empty() && !host.is_empty()) {
        Ok(text.to_owned())
    } else {
        Err("write one address, such as me@example.org".to_owned())
    }
}

/// A url that answers are believed from.
pub(super) fn parse_directory(text: &str) -> Result<String, String> {
    let read = text.parse::<http::Uri>().ok();
    let is_secure = |uri: &http::Uri| uri.scheme_str() == Some("https") && uri.host().is_some();
    if read.is_some_and(|uri| is_secure(&uri)) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "write the url of its directory, such as {DIRECTORY}"
        ))
    }
}
