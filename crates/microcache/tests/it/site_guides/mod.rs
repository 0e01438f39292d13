//! Configurations of real sites for nginx and Varnish beside their translations in docs/guides/sites. The same
//! requests go to the original and to Microcache, each before an application of its own that answers with recorded heads;
//! `sites/NAME.txt` says what both answer, and what reaches the application.
//!
//! The originals are written for this test: they behave as the published ones in what is compared.

mod application;
pub(crate) mod comparison;
mod exchange;
pub(crate) mod original;
mod page;

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use crate::support::Proxy;
use application::Application;
use comparison::{Case, Comparison, Expected};
use original::Original;

#[test]
fn wordpress() {
    compare("wordpress");
}

#[test]
fn laravel() {
    compare("laravel");
}

#[test]
fn magento() {
    compare("magento");
}

#[test]
fn discourse() {
    compare("discourse");
}

#[test]
fn gitlab() {
    compare("gitlab");
}

#[test]
fn magento_varnish() {
    compare("magento-varnish");
}

#[test]
fn mastodon() {
    compare("mastodon");
}

#[test]
fn varnish_template() {
    compare("varnish-template");
}

#[test]
fn woocommerce() {
    compare("woocommerce");
}

/// Runs all cases of a site against both, and reports all that fail.
fn compare(name: &str) {
    let comparison = Comparison::read(&read(&format!("sites/{name}.txt")));
    let page = page::Page::read(name);
    page.assert_differences(&comparison.reasons());
    let Some(before) = Application::start(&comparison) else {
        return;
    };
    let text = read(&comparison.original_file(name));
    let Some(original) = Original::start(comparison.server, &before.places().fill(&text)) else {
        return;
    };
    let behind = Application::start(&comparison).expect("it started before");
    let proxy = Proxy::with_config(&page.configuration(&comparison, behind.places()));
    let sides = [
        Side::new(original.address(), &before, &comparison),
        Side::new(proxy.address(), &behind, &comparison),
    ];
    let mut failures = String::new();
    for case in &comparison.cases {
        let [one, other] = sides.each_ref().map(|side| side.transcript(case));
        let (expected_one, expected_other) = match &case.expected {
            Expected::Both(text) => (text, text),
            Expected::Differs { original, here, .. } => (original, here),
        };
        if (&one, &other) != (expected_one, expected_other) {
            write!(failures, "\n# {}\n", case.name).expect("memory");
            let shown = if one == other {
                format!("both:\n{one}")
            } else {
                format!("original:\n{one}here:\n{other}")
            };
            failures.push_str(&shown);
        }
    }
    assert!(failures.is_empty(), "{name}: these gave:\n{failures}");
}

/// A server under test, and the application behind it.
struct Side<'a> {
    address: SocketAddr,
    application: &'a Application,
    comparison: &'a Comparison,
}

impl<'a> Side<'a> {
    fn new(address: SocketAddr, application: &'a Application, comparison: &'a Comparison) -> Self {
        Self {
            address,
            application,
            comparison,
        }
    }

    /// Each response, and what reached the application for it.
    fn transcript(&self, case: &Case) -> String {
        let mut text = String::new();
        let show = [&self.comparison.show[..], &case.show].concat();
        let sent = [&self.comparison.sent[..], &case.sent].concat();
        for request in &case.requests {
            let seen = self.application.arrivals().len();
            let response = request.send(self.address);
            text.push_str(&response.show(&show));
            for arrival in &self.application.arrivals()[seen..] {
                text.push_str(&arrival.show(&sent));
            }
        }
        text
    }
}

/// The text of a file of this test.
fn read(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/site_guides");
    fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}
