//! Checks of upstream groups that run PHP scripts.

use super::mistake::{Mistake, Mistakes};
use super::place::Place;
use crate::upstream::settings::{GroupSettings, OriginProtocol};

/// Notes a group whose requests only some of its servers understand, or whose scripts have no document root.
pub(super) fn check_scripts(group: &GroupSettings, place: &Place, mistakes: &mut Mistakes) {
    if !group.runs_scripts() {
        return;
    }
    let mut servers = group.servers.iter();
    if servers.any(|server| server.protocol != OriginProtocol::FastCgi) {
        let what = "a group has servers with FastCGI and others with HTTP";
        mistakes.note(Mistake::new(place, what).remedy("make two groups of them"));
    }
    if group.php.root.is_none() {
        let what = "`fastcgi://` needs the document root of the scripts";
        mistakes.note(Mistake::new(place, what).remedy("add php_root = \"/var/www/html\""));
    }
}
