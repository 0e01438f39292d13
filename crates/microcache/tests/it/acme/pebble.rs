//! The authority of the tests: pebble, which looks at this machine's own addresses, and the names that it looks up.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::support::{
    CertificateFile, Client, Process, config_file, free_port, left_out, trusting,
};

/// What the authority is like.
#[derive(Default)]
pub(super) struct Settings<'a> {
    /// Customers have to be known to it, by this key.
    pub(super) binding: Option<(&'a str, &'a str)>,
    /// It offers the profiles `default` and `shortlived`.
    pub(super) profiles: bool,
    /// It connects elsewhere than to us where it should look over HTTP.
    pub(super) sees_no_http: bool,
    /// Where names lead at first, if not to us.
    pub(super) names_lead_to: Option<&'a str>,
    pub(super) environment: &'a [(&'a str, &'a str)],
}

/// A running authority.
pub(super) struct Pebble {
    processes: Vec<Process>,
    program: Command,
    certificate: CertificateFile,
    listens: SocketAddr,
    management: SocketAddr,
    names: SocketAddr,
    /// Where it connects to, over HTTP and by TLS.
    pub(super) http: SocketAddr,
    pub(super) tls: SocketAddr,
}

impl Pebble {
    /// Starts it, if it is installed.
    pub(super) fn start(settings: &Settings<'_>) -> Option<Self> {
        let program = |variable: &str, usual: &str| {
            std::env::var(variable).unwrap_or_else(|_| usual.to_owned())
        };
        let [listens, management, http, tls, dns, names, nobody] =
            [(); 7].map(|()| SocketAddr::from(([127, 0, 0, 1], free_port())));
        let dns_address = dns.to_string();
        let names_address = names.to_string();
        let lead_to = settings.names_lead_to.unwrap_or("127.0.0.1");
        let mut resolver = Command::new(program("CHALLTESTSRV", "pebble-challtestsrv"));
        resolver
            .args(["-dnsserver", &dns_address, "-management", &names_address])
            .args(["-defaultIPv4", lead_to, "-defaultIPv6", ""])
            .args(["-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", ""]);
        let Some(mut resolver) = Process::start(&mut resolver) else {
            left_out("certificates from an authority: pebble is not there (make pebble)");
            return None;
        };
        let certificate = CertificateFile::new(&["localhost", "127.0.0.1"]);
        let looks_at = if settings.sees_no_http { nobody } else { http };
        let config = config_of(
            &certificate,
            settings,
            (listens, management),
            (looks_at, tls),
        );
        let mut authority = Command::new(program("PEBBLE", "pebble"));
        authority
            .args(["-strict", "-config", config.to_str().expect("a path")])
            .args(["-dnsserver", &dns_address])
            .env("PEBBLE_VA_NOSLEEP", "1")
            .env("PEBBLE_WFE_NONCEREJECT", "0")
            .env("PEBBLE_AUTHZREUSE", "0")
            .envs(settings.environment.iter().copied());
        resolver.listens(names.port());
        let mut pebble = Self {
            processes: vec![resolver],
            program: authority,
            certificate,
            listens,
            management,
            names,
            http,
            tls,
        };
        pebble.begin();
        Some(pebble)
    }

    /// Starts it, or another one that knows nothing of the one before.
    pub(super) fn begin(&mut self) {
        let process = Process::start(&mut self.program);
        let mut process = process.expect("it comes with the other one");
        process.listens(self.listens.port());
        process.listens(self.management.port());
        self.processes.push(process);
    }

    /// Ends it.
    pub(super) fn end(&mut self) {
        self.processes.pop().expect("it was started").kill();
    }

    pub(super) fn directory(&self) -> String {
        format!("https://localhost:{}/dir", self.listens.port())
    }

    /// What vouches for the authority itself.
    pub(super) fn root(&self) -> &str {
        self.certificate.name()
    }

    /// Clients who believe what it has issued.
    pub(super) fn believed(&self) -> Arc<ClientConfig> {
        let root = self.manage("GET", "/roots/0", "");
        let root = CertificateDer::from_pem_slice(&root).expect("a certificate");
        let mut roots = RootCertStore::empty();
        roots.add(root).expect("a root");
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Arc::new(config)
    }

    /// Has it say that a certificate is to be renewed within this window.
    pub(super) fn wants_renewal(&self, certificate: &str, start: &str, end: &str) {
        let window = serde_json::json!({"suggestedWindow": {"start": start, "end": end}});
        let said = serde_json::json!({
            "Certificate": certificate,
            "ARIResponse": window.to_string(),
        });
        self.manage("POST", "/set-renewal-info/", &said.to_string());
    }

    fn manage(&self, method: &str, target: &str, content: &str) -> Vec<u8> {
        let trusted = trusting(&[&self.certificate]);
        let client = Client::connect_by_tls(self.management, &trusted, "localhost");
        answered(client.expect("a session"), method, target, content)
    }

    /// Has all names lead here from now on.
    pub(super) fn lead_to(&self, address: &str) {
        let said = serde_json::json!({ "ip": address }).to_string();
        let client = Client::connect(self.names);
        answered(client, "POST", "/set-default-ipv4", &said);
    }

    /// Has one name lead elsewhere.
    pub(super) fn lead_astray(&self, name: &str) {
        let said = serde_json::json!({"host": format!("{name}."), "addresses": ["127.0.0.2"]});
        answered(
            Client::connect(self.names),
            "POST",
            "/add-a",
            &said.to_string(),
        );
    }
}

fn answered(mut client: Client, method: &str, target: &str, content: &str) -> Vec<u8> {
    let length = content.len();
    client.send(format!(
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: tests\r\nContent-Length: {length}\r\n\r\n{content}"
    ));
    let answer = client.response();
    assert_eq!(answer.status, 200, "{target}: {answer:?}");
    answer.body
}

fn config_of(
    certificate: &CertificateFile,
    settings: &Settings<'_>,
    (listens, management): (SocketAddr, SocketAddr),
    (http, tls): (SocketAddr, SocketAddr),
) -> PathBuf {
    let keys = settings.binding.iter().copied();
    let profile = |days: u64| serde_json::json!({"validityPeriod": days * 86_400});
    let profiles = serde_json::json!({"default": profile(90), "shortlived": profile(6)});
    let config = serde_json::json!({"pebble": {
        "listenAddress": listens.to_string(),
        "managementListenAddress": management.to_string(),
        "certificate": certificate.name(),
        "privateKey": certificate.name(),
        "httpPort": http.port(),
        "tlsPort": tls.port(),
        "externalAccountBindingRequired": settings.binding.is_some(),
        "externalAccountMACKeys": keys.collect::<std::collections::BTreeMap<_, _>>(),
        "retryAfter": {"authz": 1, "order": 1},
        "keyAlgorithm": "ecdsa",
        "profiles": settings.profiles.then_some(profiles),
    }});
    let path = config_file("").with_extension("json");
    let mut file = fs::File::create(&path).expect("a file");
    write!(file, "{config}").expect("it can be written");
    path
}
