//! Routes that require a client certificate, over real TLS connections.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
    date_time_ymd,
};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, HandshakeKind, RootCertStore, SupportedProtocolVersion};
use serde_json::json;

use crate::operators::Operator;
use crate::support::{
    CertificateFile, Client, Folder, Origin, Proxy, Reply, Response, Signal, eventually,
    is_installed, request,
};

const HOST: &str = "example.com";
const FRESH: &str = "Cache-Control: max-age=1000, public";

/// An authority that issues certificates to clients.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = params(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let made = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key"));
        Self(made.expect("an authority"))
    }

    /// Writes a certificate of this subject with its key.
    fn issue(&self, folder: &Folder, name: &str, year: i32) -> Identity {
        let key = KeyPair::generate().expect("a key");
        let mut params = params(name);
        params.not_after = date_time_ymd(year, 1, 1);
        let made = params.signed_by(&key, &self.0).expect("a certificate");
        let file = folder.write(
            &format!("{name}-{year}.pem"),
            format!("{}{}", made.pem(), key.serialize_pem()),
        );
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        let chain = vec![made.der().clone()];
        let key = CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider());
        Identity {
            file: file.into(),
            key: Arc::new(key.expect("a pair")),
        }
    }
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::OrganizationName, "Example");
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = date_time_ymd(2000, 1, 1);
    params
}

/// A client's certificate with its key, also in a file.
struct Identity {
    file: PathBuf,
    key: Arc<CertifiedKey>,
}

/// A proxy that asks clients for certificates.
struct Site {
    proxy: Proxy,
    certificate: CertificateFile,
    origin: Origin,
    /// The file with the authorities.
    authorities: PathBuf,
    folder: Folder,
}

impl Site {
    fn start(authority: &Authority) -> Self {
        let (origin, folder) = (Origin::start(), Folder::new());
        for target in ["/", "/staff/a", "/ann/a", "/own/a"] {
            origin.on(target).reply(Reply::ok(&[FRESH], "page"));
        }
        let certificate = CertificateFile::new(&[HOST]);
        let authorities: PathBuf = folder.write("clients.pem", authority.0.pem()).into();
        let proxy = Proxy::with_config(&format!(
            r#"
            origin = "{}"
            tls = "{}"
            tls_listen = "127.0.0.1:0"
            client_ca = "{}"
            request_headers = {{ set = {{ X-Client = "{{client_certificate_subject}}", X-Print = "{{client_certificate_fingerprint}}" }} }}
            response_headers = {{ set = {{ X-You = "{{client_certificate_subject}}" }} }}
            [[routes]]
            match = {{ path = "/staff/*" }}
            client_certificate = "required"
            [[routes]]
            match = {{ path = "/ann/*" }}
            client_certificate = ["CN=ann", "email=*@example.org"]
            [[routes]]
            match = {{ path = "/own/*" }}
            client_certificate = "required"
            pass = true
            "#,
            origin.url(),
            certificate.name(),
            authorities.display()
        ));
        Self {
            proxy,
            certificate,
            origin,
            authorities,
            folder,
        }
    }

    /// A client that remembers its sessions, with this certificate or none.
    fn client(
        &self,
        version: &'static SupportedProtocolVersion,
        identity: Option<&Identity>,
    ) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.der()).expect("a root");
        let builder = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into())
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_root_certificates(roots);
        Arc::new(match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let key = Arc::clone(&identity.key);
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(key)))
            }
        })
    }

    fn connect(&self, config: &Arc<ClientConfig>) -> Client {
        Client::connect_by_tls(self.proxy.tls_address(), config, HOST).expect("a session")
    }

    /// Connects once with this certificate, and sends a request.
    fn get(&self, identity: Option<&Identity>, target: &str) -> Response {
        self.connect(&self.client(&TLS13, identity)).get(target)
    }

    /// Returns true if a client with this certificate gets a response at all.
    fn accepts(&self, version: &'static SupportedProtocolVersion, identity: &Identity) -> bool {
        let config = self.client(version, Some(identity));
        let client = Client::connect_by_tls(self.proxy.tls_address(), &config, HOST);
        // With TLS 1.3, a client learns of the refusal after its handshake.
        client.is_ok_and(|mut client| client.try_get("/").is_ok())
    }

    fn reload(&self, authorities: &[&Authority]) {
        let text: String = authorities.iter().map(|one| one.0.pem()).collect();
        fs::write(&self.authorities, text).expect("written");
        let count = || {
            self.proxy
                .output()
                .matches("configuration reloaded")
                .count()
        };
        let before = count();
        self.proxy.signal(Signal::HUP);
        eventually("the reload", || (count() > before).then_some(()));
    }
}

#[test]
fn a_route_is_for_clients_with_a_certificate() {
    let authority = Authority::new("authority");
    let site = Site::start(&authority);
    let [ann, bob] = ["ann", "bob"].map(|name| authority.issue(&site.folder, name, 2100));
    site.get(None, "/").assert_is(200, "page");
    site.get(Some(&bob), "/").assert_hit();
    for target in ["/staff/a", "/ann/a", "/own/a"] {
        for refused in [site.get(None, target), site.proxy.get(target)] {
            assert_eq!(refused.status, 403, "{target}");
            let detail = refused.cache().get("detail").map(str::to_owned);
            assert_eq!(detail.as_deref(), Some("certificate-required"));
        }
    }
    assert_eq!(site.get(Some(&bob), "/ann/a").status, 403);
    site.get(Some(&ann), "/ann/a").assert_is(200, "page");
    site.get(Some(&bob), "/staff/a").assert_is(200, "page");
    let hit = site.get(Some(&ann), "/staff/a");
    hit.assert_hit();
    assert_eq!(hit.field("cache-control"), Some("private, max-age=1000"));
    assert_eq!(hit.field("x-you"), Some("CN=ann,O=Example"));
    // Neither a stored page nor one of its forms is for the others.
    assert_eq!(site.get(None, "/staff/a").status, 403);
    let mut stranger = site.connect(&site.client(&TLS13, None));
    for (method, target, field, status) in [
        ("GET", "/staff/a", "X-Client: CN=ann", 403),
        ("GET", "/staff/a", "Range: bytes=0-1", 403),
        ("OPTIONS", "/staff/a", "Accept: */*", 403),
        ("GET", "/x/..%2fstaff/a", "Accept: */*", 400),
    ] {
        stranger.send(request(method, target, &[field]));
        assert_eq!(
            stranger.response().status,
            status,
            "{method} {target} {field}"
        );
    }
    assert_eq!(site.origin.count("/staff/a"), 1);
    assert!(
        site.proxy
            .output()
            .contains("it has no certificate that the route requires")
    );
}

#[test]
fn the_application_sees_the_certificate_on_requests_of_one_client_only() {
    let authority = Authority::new("authority");
    let site = Site::start(&authority);
    let ann = authority.issue(&site.folder, "ann", 2100);
    site.get(Some(&ann), "/staff/a").assert_is(200, "page");
    let shared = &site.origin.seen("/staff/a")[0];
    assert_eq!(
        (shared.field("x-client"), shared.field("x-print")),
        (None, None)
    );
    let spoofed = ["X-Client: CN=eve", "X_Client: CN=eve", "x-print: 00"];
    let mut client = site.connect(&site.client(&TLS13, Some(&ann)));
    client.send(request("GET", "/own/a", &spoofed));
    client.response().assert_is(200, "page");
    let own = &site.origin.seen("/own/a")[0];
    assert_eq!(own.head.all("x-client"), ["CN=ann,O=Example"]);
    assert_eq!(own.field("x-print").map(str::len), Some(64));
    assert_eq!(own.field("x_client"), None);
    // A client without one cannot claim it.
    site.origin.on("/login").reply(Reply::ok(&[], "page"));
    let mut client = site.connect(&site.client(&TLS13, None));
    client.send(request(
        "POST",
        "/login",
        &[&spoofed[..], &["Content-Length: 0"]].concat(),
    ));
    assert_eq!(client.response().status, 200);
    let stranger = &site.origin.seen("/login")[0];
    assert_eq!(stranger.head.all("x-client").concat(), "");
    assert_eq!(
        (
            stranger.field("x_client"),
            stranger.head.all("x-print").concat()
        ),
        (None, String::new())
    );
}

#[test]
fn a_resumed_session_keeps_its_certificate_until_the_authorities_change() {
    let [authority, other] = ["first", "second"].map(Authority::new);
    for version in [&TLS12, &TLS13] {
        let site = Site::start(&authority);
        let ann = authority.issue(&site.folder, "ann", 2100);
        let (with, without) = (site.client(version, Some(&ann)), site.client(version, None));
        let visit = |config| {
            let mut client = site.connect(config);
            let status = client.get("/staff/a").status;
            (client.session().conn.handshake_kind(), status)
        };
        for expected in [HandshakeKind::Full, HandshakeKind::Resumed] {
            assert_eq!(visit(&with), (Some(expected), 200), "{version:?}");
            assert_eq!(visit(&without), (Some(expected), 403), "{version:?}");
        }
        let mut open = site.connect(&with);
        assert_eq!(open.get("/staff/a").status, 200);
        site.reload(&[&authority, &other]);
        assert_eq!(open.get("/staff/a").status, 200);
        assert_eq!(
            visit(&with),
            (Some(HandshakeKind::Full), 200),
            "{version:?}"
        );
        site.reload(&[&other]);
        // Neither an open connection nor a ticket outlives the authority.
        assert_eq!(open.get("/staff/a").status, 403);
        assert_eq!(open.get("/").status, 200);
        assert!(!site.accepts(version, &ann));
        let carol = other.issue(&site.folder, "carol", 2100);
        assert_eq!(site.get(Some(&carol), "/staff/a").status, 200);
    }
}

#[test]
fn an_unusable_certificate_ends_the_handshake() {
    let [authority, other] = ["first", "second"].map(Authority::new);
    let site = Site::start(&authority);
    let folder = &site.folder;
    for version in [&TLS12, &TLS13] {
        assert!(site.accepts(version, &authority.issue(folder, "ann", 2100)));
        assert!(!site.accepts(version, &authority.issue(folder, "ann", 2001)));
        assert!(!site.accepts(version, &other.issue(folder, "ann", 2100)));
    }
}

#[test]
fn curl_presents_its_certificate_over_http2() {
    if !is_installed("curl", "client certificates over HTTP/2") {
        return;
    }
    let authority = Authority::new("authority");
    let site = Site::start(&authority);
    let ann = authority.issue(&site.folder, "ann", 2100);
    let port = site.proxy.tls_address().port();
    let curl = |version: &str, identity: Option<&Path>| {
        let written = "%{http_version} %{http_code};";
        let to = format!("{HOST}:{port}:127.0.0.1");
        let url = format!("https://{HOST}:{port}");
        let mut curl = Command::new("curl");
        curl.args([
            "-sS",
            version,
            "-o",
            "/dev/null",
            "-w",
            written,
            "--resolve",
            &to,
        ])
        .args(["--cacert", site.certificate.name()])
        .args([&format!("{url}/staff/a"), "-o", "/dev/null", &url])
        .stdin(Stdio::null());
        if let Some(file) = identity {
            curl.arg("--cert").arg(file);
        }
        let output = curl.output().expect("curl");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(curl("--http2", Some(&ann.file)), "2 200;2 200;");
    assert_eq!(curl("--http2", None), "2 403;2 200;");
    assert_eq!(curl("--http1.1", Some(&ann.file)), "1.1 200;1.1 200;");
}

#[test]
fn unusable_authorities_are_refused_with_a_remedy() {
    let folder = Folder::new();
    let certificate = CertificateFile::new(&[HOST]);
    let tls = ["--tls", certificate.name()];
    let refusal = |flags: &[&str]| {
        let (code, said) = Proxy::refusal(&[flags, &["http://127.0.0.1:9"]].concat());
        assert_eq!(code, Some(2), "{flags:?}: {said}");
        said
    };
    let old = Authority::new("authority").issue(&folder, "old", 2001);
    let old = old.file.display().to_string();
    for (file, reported) in [
        ("/absent.pem", "cannot read /absent.pem: No such file"),
        (&*folder.write("empty.pem", ""), "contains no certificate"),
        (&*folder.write("text.pem", "x"), "contains no certificate"),
        (&old, "expired on 2001-01-01"),
    ] {
        let said = refusal(&[&tls[..], &["--client-ca", file]].concat());
        assert!(
            said.contains(reported) && said.contains("--client-ca"),
            "{said}"
        );
    }
    let said = refusal(&["--client-ca", "/absent.pem"]);
    assert!(
        said.contains("`client_ca` has no effect without a certificate"),
        "{said}"
    );
    let required = ["--client-certificate", "required"];
    let said = refusal(&[&tls[..], &required].concat());
    assert!(said.contains("add client_ca = "), "{said}");
    let said = refusal(&[&tls[..], &["--client-certificate", "ann"]].concat());
    assert!(said.contains("\"CN=ann\""), "{said}");
}

#[test]
fn explain_says_that_a_certificate_is_required() {
    let authority = Authority::new("authority");
    let (origin, folder) = (Origin::start(), Folder::new());
    let certificate = CertificateFile::new(&[HOST]);
    let file = folder.write("clients.pem", authority.0.pem());
    let (_proxy, admin) = Proxy::operated_by_file(&format!(
        "origin = \"{}\"\ntls = \"{}\"\ntls_listen = \"127.0.0.1:0\"\nclient_ca = \"{file}\"\nclient_certificate = \"required\"\n",
        origin.url(),
        certificate.name(),
    ));
    let asked = json!({"url": "https://example.com/"});
    let reported = Operator::at(admin).post("/v1/explain", &asked).to_string();
    assert!(reported.contains("certificate-required"), "{reported}");
    assert!(reported.contains("client_ca"), "{reported}");
}
