//! TLS with clients: the options, and the contents of their files.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::ServerConfig;

use super::Config;
use super::mistake::{Mistake, Mistakes, Report};
use super::place::Place;
use super::raw::Table;
use crate::tls::{
    self, CertificateFiles, CertificateReport, Certificates, ClientAuthorities, IssuedCertificates,
    Tickets, TlsFileError,
};
use crate::upstream::settings::OriginProtocol;

/// The default address of TLS.
const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8443);

/// The configuration of TLS with clients.
#[derive(Clone, Debug, Default)]
pub struct TlsConfig {
    /// The addresses to listen on.
    pub listen: Vec<SocketAddr>,
    /// The certificates, and their places.
    pub(super) certificates: Vec<(CertificateFiles, Place)>,
    /// The file with the secrets of session tickets.
    pub(super) ticket_keys: Option<(PathBuf, Place)>,
    /// The file with the authorities of clients' certificates.
    pub(super) client_ca: Option<(PathBuf, Place)>,
    /// HTTP is redirected to HTTPS.
    pub(super) redirect: bool,
    /// The Strict-Transport-Security of HTTPS responses.
    pub(crate) strict: Option<String>,
    /// The TLS configuration; `None` until the files are read.
    pub(crate) ready: Option<Arc<ServerConfig>>,
    /// The authorities of clients' certificates; `None` if none are asked for.
    pub(crate) authorities: Option<ClientAuthorities>,
    /// The names and expiry of the certificates read.
    pub(crate) read: Vec<CertificateReport>,
}

impl TlsConfig {
    /// Returns whether TLS is enabled.
    pub const fn is_on(&self) -> bool {
        !self.listen.is_empty()
    }

    /// Returns every configured file.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        let certificates = self.certificates.iter().flat_map(|(files, _)| {
            let others = [&files.key, &files.ocsp].into_iter().flatten();
            std::iter::once(&files.certificate).chain(others)
        });
        let others = self.ticket_keys.iter().chain(&self.client_ca);
        certificates
            .chain(others.map(|(file, _)| file))
            .map(PathBuf::as_path)
    }

    /// Returns the port to redirect to, if the redirect is on.
    pub(crate) fn secure_port(&self) -> Option<u16> {
        let first = self.listen.first().filter(|_| self.redirect);
        first.map(SocketAddr::port)
    }

    /// Sets the default address, and notes options that have no effect without certificates.
    pub(super) fn settle(
        &mut self,
        listen: &[SocketAddr],
        has_acme: bool,
        table: &Table<'_>,
        mistakes: &mut Mistakes,
    ) {
        if !self.certificates.is_empty() || has_acme {
            if self.listen.is_empty() && table.get("tls_listen").is_none() {
                self.listen.push(ADDRESS);
            }
            if let Some(value) = table.get("tls_listen").or(table.get("listen")) {
                let both = |address: &&SocketAddr| address.port() != 0 && listen.contains(address);
                if let Some(address) = self.listen.iter().find(both) {
                    let what = format!("{address} is both in `listen` and in `tls_listen`");
                    mistakes.note(
                        Mistake::new(&value.place, what).remedy("change the port of one of them"),
                    );
                }
            }
            return;
        }
        let names = [
            "tls_listen",
            "redirect_http",
            "strict_transport_security",
            "tls_ticket_keys",
            "client_ca",
        ];
        if table.get("tls").or(table.get("acme")).is_some() {
            return;
        }
        self.listen.clear();
        for name in names {
            if let Some(value) = table.get(name) {
                let what = format!("`{name}` has no effect without a certificate");
                mistakes.note(
                    Mistake::new(&value.place, what).remedy("add `tls` or `acme`, or remove it"),
                );
            }
        }
    }
}

impl Config {
    /// Reads the configured files. Mistakes in them are reported at the place of the option.
    pub(super) fn with_files(mut self) -> Result<Self, Report> {
        let mut mistakes = Mistakes::default();
        self.read_for_origins(&mut mistakes);
        self.acme.read_files(&mut mistakes);
        self.admin.check_files(&self.settings, &mut mistakes);
        self.push.read_files(&mut mistakes);
        self.read_users(&mut mistakes);
        self.read_content(&mut mistakes);
        if self.tls.is_on() {
            self.read_for_clients(&mut mistakes);
        }
        let warnings = mistakes.report(&self.texts)?;
        self.warnings = self.warnings.and(warnings);
        Ok(self)
    }

    fn read_for_clients(&mut self, mistakes: &mut Mistakes) {
        let certificates = self.read_certificates(mistakes);
        let tickets = self.tls.tickets(mistakes);
        let is_on = self.acme.is_on();
        let issued = is_on.then(|| {
            (
                IssuedCertificates::of_this_process(),
                self.acme.names.clone(),
            )
        });
        self.tls.read = certificates.iter().map(|one| one.report()).collect();
        let certificates = Arc::new(Certificates::new(&certificates, issued));
        let authorities = self.tls.client_ca.as_ref().and_then(|(file, place)| {
            let read = ClientAuthorities::read(file, unix_time());
            mistakes.ok(read.map_err(|fault| at(place, fault)))
        });
        match tls::for_clients(certificates, tickets, authorities.as_ref(), is_on) {
            Ok(ready) => self.tls.ready = Some(ready),
            Err(error) => {
                let named = self.tls.certificates.first().map(|(_, place)| place);
                let place = named.or(self.acme.place.as_ref());
                let what = format!("TLS cannot be used: {error}");
                mistakes.note(Mistake::new(place.unwrap_or(&Place::Urls), what));
            }
        }
        self.tls.authorities = authorities;
    }

    fn read_for_origins(&mut self, mistakes: &mut Mistakes) {
        for group in &mut self.upstreams {
            if !group
                .servers
                .iter()
                .any(|server| server.protocol == OriginProtocol::Https)
            {
                continue;
            }
            let place = |option| self.settings.place_of(&group.name, option);
            let certificate = group.tls.certificate.as_ref();
            if let Some(fault) = certificate.and_then(|files| tls::exposed(files.key_file())) {
                mistakes.warn(at(&place("origin_certificate"), fault));
            }
            let about = |fault: &TlsFileError| match certificate {
                Some(files) if fault.is_about(files) => "origin_certificate",
                _ => "origin_ca",
            };
            match group.tls.load(unix_time()) {
                Ok(ready) => group.tls.ready = Some(ready),
                Err(fault) => mistakes.note(at(&place(about(&fault)), fault)),
            }
        }
    }

    fn read_certificates(&self, mistakes: &mut Mistakes) -> Vec<Arc<tls::Certificate>> {
        let provider = tls::provider();
        let mut certificates = Vec::new();
        for (files, place) in &self.tls.certificates {
            match files.load(&provider, unix_time()) {
                Ok(certificate) => certificates.push(Arc::new(certificate)),
                Err(fault) => mistakes.note(at(place, fault)),
            }
            if let Some(fault) = tls::exposed(files.key_file()) {
                mistakes.warn(at(place, fault));
            }
        }
        certificates
    }
}

impl TlsConfig {
    fn tickets(&self, mistakes: &mut Mistakes) -> Arc<Tickets> {
        let Some((file, place)) = &self.ticket_keys else {
            return Tickets::of_this_process();
        };
        if let Some(fault) = tls::exposed(file) {
            mistakes.warn(at(place, fault));
        }
        let secrets = match tls::read_secrets(file) {
            Ok(secrets) => secrets,
            Err(fault) => {
                mistakes.note(at(place, fault));
                Vec::new()
            }
        };
        Arc::new(Tickets::of_fleet(secrets.iter().map(Vec::as_slice)))
    }
}

pub(super) fn at(place: &Place, fault: TlsFileError) -> Mistake {
    Mistake::new(place, fault.what).remedy(fault.remedy)
}

/// Returns the seconds since 1970.
pub(super) fn unix_time() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs().cast_signed()
}
