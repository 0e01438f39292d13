//! Options of the user context.

use super::super::mistake::{Mistake, Mistakes};
use super::super::option::Form::{Duration, List, Text};
use super::super::option::{Opt, opt, optional};
use super::super::raw::Value;
use super::super::user_context::UserContext;
use super::names::name_pattern;
use super::route::RouteDraft;
use super::{LIFETIME, WAIT, set_defaults};

/// Options of the user context.
pub(in crate::config) const USER_CONTEXT: &[Opt<UserContext>] = &[
    optional("url", Text("PATH"), "/_fos_user_context_hash")
        .unset("required")
        .help("Path of the application that answers with the hash")
        .sets(|c, v, m| m.put(&mut c.target, v.parse(target))),
    optional("cookies", List("NAME"), r#"["PHPSESSID"]"#)
        .unset("none: `Authorization` only")
        .help("Cookies by which the application knows its users")
        .more("A `*` at the end matches any suffix. Only they and `Authorization` are sent to that path.")
        .sets(|c, v, m| c.cookies = v.each(m, |item| item.parse(name_pattern))),
    opt("ttl", Duration, "1m")
        .example("10m")
        .help("Time for which a hash is kept")
        .more("A request with an unsafe method and the same cookies ends it.")
        .sets(|c, v, m| m.put(&mut c.kept_for, v.duration(&LIFETIME))),
    opt("timeout", Duration, "2s")
        .help("Maximum wait for a hash; after it the request passes")
        .sets(|c, v, m| m.put(&mut c.timeout, v.duration(&WAIT))),
];

pub(super) fn set_user_context(draft: &mut RouteDraft, value: &Value, mistakes: &mut Mistakes) {
    if value.text() == Ok("off") {
        draft.route.user_context = None;
        return;
    }
    let Some(table) = mistakes.ok(value.table()) else {
        return;
    };
    let mut context = UserContext::new(value.place.clone());
    set_defaults(USER_CONTEXT, &mut context);
    table.apply(USER_CONTEXT, &mut context, mistakes);
    table.refuse_rest_inside("user_context", mistakes);
    if value.entry("url").is_none() {
        let remedy = "add url = \"/_fos_user_context_hash\"";
        mistakes.note(Mistake::new(&value.place, "`user_context` has no `url`").remedy(remedy));
    }
    draft.route.user_context = Some(context);
}

fn target(text: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"#\"<>".contains(&byte);
    if text.starts_with('/') && text.bytes().all(is_plain) {
        Ok(text.to_owned())
    } else {
        Err("write a path of the application, such as \"/_fos_user_context_hash\"".to_owned())
    }
}
