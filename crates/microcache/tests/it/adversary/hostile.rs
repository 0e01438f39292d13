//! The hostile client, who spells the same in other ways, and goes away in the middle.

use super::honest::bytes;
use super::model::{Chance, HONEST_SECRET, HOST, all, hostile};
use super::site::Site;
use crate::support::Proxy;

/// One request; perhaps only half of it, perhaps two in one go.
pub(super) fn attack(proxy: &Proxy, site: &Site, chance: &mut Chance, seed: u64) {
    let page = site.any_page(chance);
    let mut requested = hostile(chance, page, seed as usize);
    let is_front = page.path == site.front().path;
    if is_front && matches!(requested.method.as_str(), "POST" | "DELETE") {
        requested.method = "GET".to_owned();
    }
    let is_edit = matches!(requested.method.as_str(), "POST" | "DELETE");
    let host = chance.pick(&[
        "site.example",
        "site.example",
        "SITE.example",
        "site.example:80",
        "evil.example",
    ]);
    // An edit under another host is none of this page's.
    let host = if is_edit { HOST } else { host };
    requested.fields[0].1 = host.to_owned();
    let path = requested.target.clone();
    if chance.one_in(6) {
        let scheme = chance.pick(&["http", "HTTP"]);
        requested.target = format!("{scheme}://{host}{path}");
    }
    let sent = bytes(&requested);
    let mut client = proxy.connect();
    match chance.below(if is_edit { 1 } else { 8 }) {
        1 => return client.send(&sent[..chance.below(sent.len())]),
        2 => return client.send(&sent),
        3 if !requested.has_body => client.send([&sent[..], &sent].concat()),
        _ => client.send(&sent),
    }
    let answer = if requested.method == "HEAD" {
        client.try_response_to_head()
    } else {
        client.try_response()
    };
    let Ok(response) = answer else { return };
    let fields = &response.head.fields;
    assert!(
        !response.text().contains(HONEST_SECRET)
            && !fields
                .iter()
                .any(|(_, value)| value.contains(HONEST_SECRET)),
        "seed {seed}: {}\ngot {response:?}",
        requested.text()
    );
    if let Some(edit) = all(fields, "x-edit").next() {
        site.note_edit(&path, edit.parse().expect("the site counts"));
    }
}
