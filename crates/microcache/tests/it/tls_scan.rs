//! What is offered to clients who come by TLS, as a scanner finds it: testssl, from the packages of Debian.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{CertificateFile, Folder, Origin, Proxy, Reply, is_installed};

/// What a scanner calls right, or has no opinion on.
const HARMLESS: [&str; 2] = ["OK", "INFO"];

#[test]
fn only_safe_parameters_are_offered() {
    if !is_installed("testssl", "a scan of what TLS offers") {
        return;
    }
    let origin = Origin::start();
    origin.on("/").reply(Reply::new(200).body("page"));
    let certificate = CertificateFile::new(&["example.com"]);
    let proxy = Proxy::start(
        &origin,
        &["--tls", certificate.name(), "--tls-listen", "127.0.0.1:0"],
    );
    let found = scanned(&proxy.tls_address().to_string());
    let said = |id: &str| {
        let of_id = found.iter().find(|one| one["id"] == id);
        of_id
            .and_then(|one| one["finding"].as_str())
            .unwrap_or_else(|| panic!("nothing of {id} in {found:#?}"))
    };
    for version in ["SSLv2", "SSLv3", "TLS1", "TLS1_1"] {
        assert_eq!(said(version), "not offered", "{version}");
    }
    assert!(said("TLS1_2").starts_with("offered"));
    assert!(said("TLS1_3").starts_with("offered"));
    let mut suites: Vec<_> = said("PFS_ciphers").split_whitespace().collect();
    suites.sort_unstable();
    // All that there are with this kind of key: each has forward secrecy and is authenticated.
    let wanted = [
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
    ];
    assert_eq!(suites, wanted);
    for weak in ["NULL", "aNULL", "EXPORT", "LOW", "3DES_IDEA", "AVERAGE"] {
        assert_eq!(said(&format!("cipherlist_{weak}")), "not offered", "{weak}");
    }
    assert_eq!(
        said("PFS_ECDHE_curves").trim(),
        "prime256v1 secp384r1 X25519"
    );
    assert!(said("heartbleed").starts_with("not vulnerable"));
    let wrong = |one: &&Value| {
        // Problems of its own tools are none of the server.
        let is_own = one["id"] == "engine_problem";
        !is_own && !HARMLESS.contains(&one["severity"].as_str().unwrap_or_default())
    };
    let wrong: Vec<_> = found.iter().filter(wrong).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Everything that testssl finds about versions, suites, forward secrecy and known faults.
fn scanned(address: &str) -> Vec<Value> {
    let folder = Folder::new();
    let file = folder.file("scan.json");
    let scan = Command::new("testssl")
        .args(["--quiet", "--color", "0", "--warnings", "off", "--jsonfile"])
        .arg(&file)
        .args(["-p", "-s", "-f", "-U", address])
        .stdin(Stdio::null())
        .output()
        .expect("testssl");
    let text = fs::read_to_string(&file).unwrap_or_else(|_| panic!("{scan:?}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}
