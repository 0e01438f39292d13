//! Certificates that are got from an authority: from pebble, and from a malicious one.

mod malicious;
mod pebble;

use std::fs;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ClientConfig;

use crate::support::{Client, Folder, Origin, Proxy, Reply, Signal, config_file, eventually};
use pebble::{Pebble, Settings};

const HOST: &str = "shop.example";
const OTHER: &str = "blog.example";
const ADDRESS: &str = "127.0.0.1";

/// Who gets certificates for these names from pebble, and keeps them there.
fn flags(pebble: &Pebble, names: &[&str], storage: &Path) -> Vec<String> {
    let listens = [pebble.http.to_string(), pebble.tls.to_string()];
    let storage = storage.to_str().expect("a path").to_owned();
    let mut flags = Vec::new();
    for (flag, value) in [
        ("--listen", &listens[0]),
        ("--tls-listen", &listens[1]),
        ("--acme", &names.join(",")),
        ("--acme-email", &"me@shop.example".to_owned()),
        ("--acme-directory", &pebble.directory()),
        ("--acme-root", &pebble.root().to_owned()),
        ("--acme-storage", &storage),
    ] {
        flags.extend([flag.to_owned(), value.clone()]);
    }
    flags
}

fn start(origin: &Origin, flags: &[String]) -> Proxy {
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    Proxy::start(origin, &flags)
}

fn site() -> Origin {
    let origin = Origin::start();
    origin.on("/").reply(Reply::new(200).body("page"));
    origin
}

/// The certificate that clients are shown who name this host, if they believe it.
fn shown(address: SocketAddr, believed: &Arc<ClientConfig>, host: &str) -> Option<Vec<u8>> {
    let mut client = Client::connect_by_tls(address, believed, host).ok()?;
    let chain = client.session().conn.peer_certificates()?;
    Some(chain.first()?.to_vec())
}

/// Waits for it.
fn wait_for(proxy: &Proxy, believed: &Arc<ClientConfig>, host: &str) -> Vec<u8> {
    eventually("a certificate", || {
        shown(proxy.tls_address(), believed, host)
    })
}

/// The one directory in the storage, which is the authority's.
fn kept(storage: &Path) -> PathBuf {
    let mut entries = fs::read_dir(storage).expect("it was made");
    entries
        .next()
        .expect("there is one")
        .expect("an entry")
        .path()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path)
        .expect("it is there")
        .permissions()
        .mode()
        & 0o777
}

#[test]
fn a_certificate_is_got_over_http_kept_and_used_again_without_the_authority() {
    let Some(mut pebble) = Pebble::start(&Settings::default()) else {
        return;
    };
    let (origin, folder) = (site(), Folder::absent());
    let storage = folder.path();
    let flags = flags(&pebble, &[HOST], storage);
    let believed = pebble.believed();
    let proxy = start(&origin, &flags);
    let first = wait_for(&proxy, &believed, HOST);
    let mut client = Client::connect_by_tls(proxy.tls_address(), &believed, HOST).expect("TLS");
    client.get("/").assert_is(200, "page");
    // Names in capitals are the same, and others are shown this one too, which is not for them.
    assert!(shown(proxy.tls_address(), &believed, "SHOP.example").is_some());
    assert_eq!(shown(proxy.tls_address(), &believed, OTHER), None);
    // A challenge that is not pending is left to the application.
    let target = "/.well-known/acme-challenge/unknown";
    origin.on(target).reply(Reply::new(200).body("its own"));
    proxy.get(target).assert_is(200, "its own");
    let requested = origin.count(target) + origin.count("/");
    assert_eq!(
        origin.requests().len(),
        requested,
        "no challenge went there"
    );
    let folder = kept(storage);
    let file = folder.join(format!("{HOST}.pem"));
    eventually("it to be kept", || file.exists().then_some(()));
    assert_eq!((mode(storage), mode(&folder)), (0o700, 0o700));
    for file in [format!("{HOST}.pem"), "account.json".to_owned()] {
        assert_eq!(mode(&folder.join(&file)), 0o600, "{file}");
    }
    drop(proxy);
    pebble.end();
    let proxy = start(&origin, &flags);
    let again = shown(proxy.tls_address(), &believed, HOST);
    assert_eq!(again, Some(first), "it is there from the first moment");
}

#[test]
fn where_it_is_not_seen_over_http_it_is_seen_in_a_handshake() {
    let settings = Settings {
        sees_no_http: true,
        ..Settings::default()
    };
    let Some(pebble) = Pebble::start(&settings) else {
        return;
    };
    let (origin, folder) = (site(), Folder::absent());
    let storage = folder.path();
    let believed = pebble.believed();
    let proxy = start(&origin, &flags(&pebble, &[HOST], storage));
    wait_for(&proxy, &believed, HOST);
    // That protocol is for challenges only.
    let mut config = (*believed).clone();
    config.alpn_protocols = vec![b"acme-tls/1".to_vec()];
    let refused = Client::connect_by_tls(proxy.tls_address(), &Arc::new(config), HOST);
    assert_eq!(
        refused.err().map(|error| error.kind()),
        Some(ErrorKind::InvalidData)
    );
    // Along with another one it is nothing (RFC 8737 §3).
    let mut config = (*believed).clone();
    config.alpn_protocols = vec![b"acme-tls/1".to_vec(), b"http/1.1".to_vec()];
    let client = Client::connect_by_tls(proxy.tls_address(), &Arc::new(config), HOST);
    client.expect("TLS").get("/").assert_is(200, "page");
}

#[test]
fn renewal_follows_the_authority_and_nonces_may_be_refused() {
    let settings = Settings {
        environment: &[("PEBBLE_WFE_NONCEREJECT", "30")],
        ..Settings::default()
    };
    let Some(pebble) = Pebble::start(&settings) else {
        return;
    };
    let (origin, folder) = (site(), Folder::absent());
    let storage = folder.path();
    let believed = pebble.believed();
    let proxy = start(&origin, &flags(&pebble, &[HOST], storage));
    // With bad luck it is refused too often in a row, and retried on the next request for it.
    let first = eventually("a certificate", || {
        proxy
            .output()
            .contains("no certificate from")
            .then(|| proxy.signal(Signal::HUP));
        shown(proxy.tls_address(), &believed, HOST)
    });
    let file = kept(storage).join(format!("{HOST}.pem"));
    let before = eventually("it to be kept", || fs::read_to_string(&file).ok());
    let certificate = before.find("-----BEGIN CERTIFICATE").expect("one");
    pebble.wants_renewal(
        &before[certificate..],
        "2020-01-01T00:00:00Z",
        "2020-01-02T00:00:00Z",
    );
    // It is queried once a day, and when a check is requested.
    let second = eventually("another certificate", || {
        proxy.signal(Signal::HUP);
        let now = shown(proxy.tls_address(), &believed, HOST).expect("there is always one");
        (now != first).then_some(now)
    });
    eventually("it to be kept", || {
        (fs::read_to_string(&file).expect("it is kept") != before).then_some(())
    });
    // Who knows the first one only goes on.
    assert_eq!(shown(proxy.tls_address(), &believed, HOST), Some(second));
}

#[test]
fn an_external_account_binding_identifies_the_account() {
    let key = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";
    let settings = Settings {
        binding: Some(("kid-1", key)),
        ..Settings::default()
    };
    let Some(pebble) = Pebble::start(&settings) else {
        return;
    };
    let (origin, folder) = (site(), Folder::absent());
    let storage = folder.path();
    let unknown = flags(&pebble, &[HOST], storage);
    let proxy = start(&origin, &unknown);
    eventually("a refusal", || {
        let reported = proxy.output();
        (reported.contains("the account: ") && reported.contains("externalAccountRequired"))
            .then_some(())
    });
    drop(proxy);
    let file = storage.with_extension("eab");
    fs::write(&file, format!("{key}\n")).expect("it can be written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("it is ours");
    let known = [
        "--acme-eab-kid",
        "kid-1",
        "--acme-eab-key-file",
        file.to_str().expect("a path"),
    ];
    let known = [unknown, known.map(str::to_owned).to_vec()].concat();
    let proxy = start(&origin, &known);
    wait_for(&proxy, &pebble.believed(), HOST);
    assert!(!proxy.output().contains(key));
}

#[test]
fn an_unreachable_or_forgetful_authority_is_retried() {
    let Some(mut pebble) = Pebble::start(&Settings::default()) else {
        return;
    };
    let (origin, folder) = (site(), Folder::absent());
    let storage = folder.path();
    let flags = flags(&pebble, &[HOST], storage);
    pebble.end();
    let proxy = start(&origin, &flags);
    eventually("a failure", || {
        let reported = proxy.output();
        (reported.contains(HOST) && reported.contains("its TLS connections are refused"))
            .then_some(())
    });
    proxy.get("/").assert_is(200, "page");
    pebble.begin();
    proxy.signal(Signal::HUP);
    wait_for(&proxy, &pebble.believed(), HOST);
    let file = kept(storage).join(format!("{HOST}.pem"));
    eventually("it to be kept", || file.exists().then_some(()));
    drop(proxy);
    // The next one knows neither the account nor the certificate.
    pebble.end();
    pebble.begin();
    fs::remove_file(&file).expect("it was kept");
    let proxy = start(&origin, &flags);
    wait_for(&proxy, &pebble.believed(), HOST);
}

#[test]
fn a_name_that_fails_keeps_no_other_one_waiting_and_is_got_when_it_leads_here() {
    let Some(pebble) = Pebble::start(&Settings::default()) else {
        return;
    };
    pebble.lead_astray(HOST);
    let (origin, folder) = (site(), Folder::absent());
    let storage = folder.path();
    let believed = pebble.believed();
    let flags = flags(&pebble, &[HOST, OTHER], storage);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let (proxy, admin) = Proxy::operated(&origin, &flags);
    wait_for(&proxy, &believed, OTHER);
    let reported = eventually("a failure", || {
        let reported = proxy.output();
        reported
            .contains("until then its TLS connections are refused")
            .then_some(reported)
    });
    assert!(reported.contains("(http-01, port 80)"), "{reported}");
    assert!(reported.contains("(tls-alpn-01, port 443)"), "{reported}");
    let ask = |target: &str| {
        let mut client = Client::connect(admin);
        client.send(format!("GET {target} HTTP/1.1\r\nHost: {admin}\r\n\r\n"));
        client.response()
    };
    let stats = ask("/v1/stats");
    let stats: serde_json::Value = serde_json::from_slice(&stats.body).expect("JSON");
    let [failing, good] = [0, 1].map(|at| &stats["certificates"][at]);
    assert_eq!(failing["names"][0], HOST);
    assert_eq!(
        (&failing["state"], &failing["failed"]),
        (&"failed".into(), &1.into())
    );
    assert!(
        failing["expires"].is_null() && failing["next"].is_number(),
        "{failing}"
    );
    assert!(
        failing["last_error"]
            .as_str()
            .expect("why")
            .contains("http-01")
    );
    assert_eq!(
        (&good["state"], &good["ordered"]),
        (&"valid".into(), &1.into())
    );
    assert!(
        good["expires"].is_number() && good["last_error"].is_null(),
        "{good}"
    );
    let health = String::from_utf8_lossy(&ask("/v1/health").body).into_owned();
    assert!(
        health.contains(&format!("{HOST}: no certificate yet")),
        "{health}"
    );
    let metrics = ask("/metrics");
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    for line in [
        format!("microcache_certificate_expiry_timestamp_seconds{{name=\"{OTHER}\"}} "),
        format!("microcache_acme_orders_total{{name=\"{OTHER}\",result=\"ok\"}} 1"),
        format!("microcache_acme_orders_total{{name=\"{HOST}\",result=\"failed\"}} 1"),
    ] {
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
}

#[test]
fn a_name_that_points_elsewhere_is_retried_on_request() {
    let settings = Settings {
        names_lead_to: Some("127.0.0.2"),
        ..Settings::default()
    };
    let Some(pebble) = Pebble::start(&settings) else {
        return;
    };
    let (origin, folder) = (site(), Folder::absent());
    let storage = folder.path();
    let proxy = start(&origin, &flags(&pebble, &[HOST], storage));
    eventually("a failure", || {
        proxy
            .output()
            .contains("its TLS connections are refused")
            .then_some(())
    });
    pebble.lead_to("127.0.0.1");
    proxy.signal(Signal::HUP);
    wait_for(&proxy, &pebble.believed(), HOST);
}

#[test]
fn a_process_killed_during_an_order_places_another() {
    let settings = Settings {
        environment: &[("PEBBLE_VA_NOSLEEP", "0"), ("PEBBLE_VA_SLEEPTIME", "3")],
        ..Settings::default()
    };
    let Some(pebble) = Pebble::start(&settings) else {
        return;
    };
    let (origin, folder) = (site(), Folder::absent());
    let storage = folder.path();
    let flags = flags(&pebble, &[HOST], storage);
    let proxy = start(&origin, &flags);
    // The account is kept, and the authority takes its time to look.
    eventually("an order", || {
        let authority = fs::read_dir(storage).ok()?.next()?.ok()?.path();
        authority.join("account.json").exists().then_some(())
    });
    proxy.signal(Signal::KILL);
    drop(proxy);
    let proxy = start(&origin, &flags);
    wait_for(&proxy, &pebble.believed(), HOST);
}

#[test]
fn nothing_is_ordered_that_could_not_be_kept() {
    let Some(pebble) = Pebble::start(&Settings::default()) else {
        return;
    };
    let (origin, folder) = (site(), Folder::absent());
    let storage = folder.path();
    // The disk is full: files may not grow beyond a few kilobytes. And there is a file where the directory should be.
    let flags = flags(&pebble, &[HOST], storage);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let full = ["sh", "-c", "trap '' XFSZ; ulimit -f 4 && exec \"$@\"", "sh"];
    let proxy = Proxy::through(&full, &origin, &flags);
    proxy.output_with("storing it: ");
    proxy.get("/").assert_is(200, "page");
    drop(proxy);
    fs::remove_dir_all(storage).expect("it was made");
    fs::write(storage, "").expect("it can be written");
    let proxy = Proxy::start(&origin, &flags);
    proxy.output_with("storing it: ");
    fs::remove_file(storage).expect("it is a file");
    proxy.signal(Signal::HUP);
    wait_for(&proxy, &pebble.believed(), HOST);
}

#[test]
fn a_reload_adds_and_removes_names_and_refuses_invalid_ones() {
    let Some(pebble) = Pebble::start(&Settings::default()) else {
        return;
    };
    let (origin, folder) = (site(), Folder::absent());
    let storage = folder.path();
    let believed = pebble.believed();
    let text = |names: &str| {
        format!(
            "origin = \"{}\"\nlisten = \"{}\"\ntls_listen = \"{}\"\nadmin = \"off\"\nacme = {names}\n\
             acme_directory = \"{}\"\nacme_root = \"{}\"\nacme_storage = \"{}\"\n",
            origin.url(),
            pebble.http,
            pebble.tls,
            pebble.directory(),
            pebble.root(),
            storage.display()
        )
    };
    let file = config_file(&text(&format!("[\"{HOST}\"]")));
    let write = |names: &str| fs::write(&file, text(names)).expect("it can be written");
    let proxy = Proxy::by_file(&file);
    wait_for(&proxy, &believed, HOST);
    write(&format!("[\"{HOST}\", \"*.{OTHER}\"]"));
    proxy.signal(Signal::HUP);
    eventually("a refusal", || {
        let reported = proxy.output();
        (reported.contains("not reloaded") && reported.contains(&format!("*.{OTHER}")))
            .then_some(())
    });
    let kept = kept(storage).join(format!("{HOST}.pem"));
    eventually("it to be kept", || kept.exists().then_some(()));
    write(&format!("[\"{OTHER}\"]"));
    proxy.signal(Signal::HUP);
    wait_for(&proxy, &believed, OTHER);
    assert_eq!(shown(proxy.tls_address(), &believed, HOST), None);
    // What was got is still there for the day on which it is wanted again.
    write(&format!("[\"{OTHER}\", \"{HOST}\"]"));
    pebble.lead_to("127.0.0.2");
    proxy.signal(Signal::HUP);
    wait_for(&proxy, &believed, HOST);
}

#[test]
fn an_address_has_a_short_lived_certificate_by_its_reverse_name() {
    let settings = Settings {
        profiles: true,
        sees_no_http: true,
        ..Settings::default()
    };
    let Some(pebble) = Pebble::start(&settings) else {
        return;
    };
    let (origin, folder, believed) = (site(), Folder::absent(), pebble.believed());
    let mut all = flags(&pebble, &[HOST, ADDRESS], folder.path());
    all.extend(["--acme-profile", "shortlived"].map(str::to_owned));
    let flags: Vec<&str> = all.iter().map(String::as_str).collect();
    let (proxy, admin) = Proxy::operated(&origin, &flags);
    wait_for(&proxy, &believed, HOST);
    // Its clients send no server name.
    wait_for(&proxy, &believed, ADDRESS);
    let mut client = Client::connect(admin);
    client.send(format!("GET /metrics HTTP/1.1\r\nHost: {admin}\r\n\r\n"));
    let metrics = client.response().text();
    let lifetime = format!("microcache_certificate_lifetime_seconds{{name=\"{ADDRESS}\"}} 518");
    assert!(metrics.contains(&lifetime), "{metrics}");
    drop(proxy);
    let folder = Folder::absent();
    let mut all = self::flags(&pebble, &[HOST], folder.path());
    all.extend(["--acme-profile", "tiny"].map(str::to_owned));
    let proxy = start(&origin, &all);
    proxy.output_with("no profile `tiny` (acme_profile): it offers default, shortlived");
}
