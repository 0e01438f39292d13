//! A real browser keeps the version that it gets, says so, and decodes what differs from it: RFC 9842.

use std::sync::atomic::Ordering;

use sha2::{Digest, Sha256};

use super::dictionaries::{base64_of_hash, changing_for, page};
use crate::operators::Operator;
use crate::support::{Browser, CertificateFile, Origin, Proxy, Reply, eventually};

/// Fetches the page, which is fresh for a second, until the browser has got little for it, and reports the version, the
/// length and the hash of what it has decoded. One failure may be the browser's own (a change of the machine's network);
/// the second is reported.
const SCRIPT: &str = "<script type=module>
    const wait = milliseconds => new Promise(done => setTimeout(done, milliseconds));
    const round = async () => {
        performance.clearResourceTimings();
        const answer = await fetch('/page');
        const body = await answer.arrayBuffer();
        await wait(1100);
        // A busy browser may record the transfer later than it gives the body.
        const [entry] = performance.getEntriesByName(answer.url);
        if (!entry || entry.encodedBodySize >= 2000) {
            await fetch('/change');
            return;
        }
        const hash = new Uint8Array(await crypto.subtle.digest('SHA-256', body));
        const hex = [...hash].map(byte => byte.toString(16).padStart(2, '0')).join('');
        return [answer.headers.get('x-second'), entry.decodedBodySize, hex].join();
    };
    let report, failures = 0;
    while (!report) report = await round().catch(error => failures++ && `0,${encodeURIComponent(error)}`);
    await fetch('/told?' + report);
    </script>";

#[test]
fn chromium_decodes_the_delta_to_its_page() {
    for (compress, coding) in [("zstd", "dcz"), ("br", "dcb")] {
        let origin = Origin::start();
        let html = Reply::new(200).with("Content-Type: text/html");
        origin.on("/").reply(html.body(SCRIPT));
        let clock = changing_for("max-age=1, stale-while-revalidate=86400", &origin, "/page");
        origin.on("/change").answer(move |_| {
            clock.fetch_add(1, Ordering::SeqCst);
            Reply::ok(&["Cache-Control: no-store"], "later")
        });
        let certificate = CertificateFile::new(&["localhost"]);
        let tls = ["--tls", certificate.name(), "--tls-listen", "127.0.0.1:0"];
        let flags = ["--compress", compress, "--dictionaries"];
        let (proxy, admin) = Proxy::operated(&origin, &[&tls[..], &flags].concat());
        let url = format!("https://localhost:{}/", proxy.tls_address().port());
        // It keeps no dictionary where it only overlooks that it does not trust the certificate.
        let trusted = base64_of_hash(&certificate.public_key());
        let trusted = format!("--ignore-certificate-errors-spki-list={trusted}");
        let Some(_browser) = Browser::open(&url, &[&trusted], "dictionaries") else {
            return;
        };
        let reported = eventually("what Chromium has decoded", || {
            let requests = origin.requests();
            let reported = requests
                .iter()
                .find_map(|seen| seen.target.strip_prefix("/told?"));
            reported.map(str::to_owned)
        });
        let (second, rest) = reported.split_once(',').expect("what came");
        let page = page(second.parse().expect("a second"));
        let hash = hex::encode(Sha256::digest(&page));
        assert_eq!(rest, format!("{},{hash}", page.len()));
        let sent = &Operator::at(admin).get("/v1/stats")["compression"]["sent"];
        assert!(sent[coding].as_u64() > Some(0), "{sent}");
    }
}
