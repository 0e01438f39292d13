//! The origin's view of a shared request.
//!
//! A response that varies was selected by the fields that reached the origin, not by those that the client sent: some
//! are rewritten on the way, some removed. So everything compared for `Vary` is read through this view.

use smallvec::{Array, SmallVec};

use crate::cookies;
use crate::encoding::{push_component, push_field, push_with_len};
use crate::field_name::FieldName;
use crate::fields::Fields;
use crate::known_name::names;
use crate::name_set::NameSet;
use crate::rules::Rules;
use crate::trust::{FieldForwarding, field_forwarding};

/// A request as the origin sees it.
#[derive(Clone, Copy, Debug)]
pub struct OriginView<'a> {
    /// The client's field lines.
    pub fields: Fields<'a>,
    /// The rules of its route.
    pub rules: &'a Rules,
    /// The client's address in forwarding fields.
    pub address: &'a str,
    /// The peer is a trusted proxy, and its forwarding fields count.
    pub is_trusted: bool,
}

impl OriginView<'_> {
    /// Appends one field as the origin sees it. Different views have different encodings.
    pub(crate) fn push<A: Array<Item = u8>>(&self, out: &mut SmallVec<A>, name: &str) {
        match self.forwarding(name) {
            FieldForwarding::Removed => out.push(0),
            FieldForwarding::Rewritten => self.push_forwarding(out, name),
            // These are the same for all clients.
            FieldForwarding::Forwarded
                if matches!(name, "via" | "cdn-loop")
                    || !goes_with_fill(FieldName::of(name.as_bytes()), self.rules) =>
            {
                out.push(0);
            }
            FieldForwarding::Forwarded if name == "cookie" => self.push_cookies(out),
            FieldForwarding::Forwarded => push_field(out, self.fields, name),
        }
    }

    pub(crate) fn forwarding(&self, name: &str) -> FieldForwarding {
        if name == "accept-encoding" && self.rules.ask_for_identity() {
            // It is rewritten to one value for all clients.
            return FieldForwarding::Removed;
        }
        let name = FieldName::of(name.as_bytes());
        field_forwarding(name, self.is_trusted, &self.rules.request)
    }

    /// Appends fields that identify the client to the origin. Scheme and host are in the key already.
    fn push_forwarding<A: Array<Item = u8>>(&self, out: &mut SmallVec<A>, name: &str) {
        if self.is_trusted {
            push_field(out, self.fields, name);
        }
        if matches!(name, "forwarded" | "x-forwarded-for") {
            push_component(out, self.address.as_bytes());
        }
    }

    /// Appends the cookies that may select a response.
    fn push_cookies<A: Array<Item = u8>>(&self, out: &mut SmallVec<A>) {
        push_with_len(out, |out| {
            for cookie in cookies::counting(self.fields, self.rules) {
                push_component(out, cookie);
            }
        });
    }
}

/// Returns true if a shared fetch sends this field: no range, no condition of the client, no bypass of the origin's
/// caches. If the client is the program itself, it decides about the last.
pub fn goes_with_fill(name: FieldName<'_>, rules: &Rules) -> bool {
    let commands_caches = || name.is(names::CACHE_CONTROL) || name.is(names::PRAGMA);
    !is_conditional_field(name)
        && !name.is(names::EXPECT)
        && (rules.obeys_client || !commands_caches())
}

/// Returns true if a client's field makes a request conditional or partial, so that a shared fetch must not send it.
/// `Request-Range` is Netscape's name of `Range`, which Apache still honours.
pub fn is_conditional_field(name: FieldName<'_>) -> bool {
    name.known().is_some_and(|name| CONDITIONAL.contains(name))
}

/// Returns true if a client makes its request conditional or partial.
pub fn is_conditional_or_partial(request: Fields<'_>) -> bool {
    request.may_have(CONDITIONAL)
        && request
            .lines()
            .any(|line| is_conditional_field(line.field_name()))
}

const CONDITIONAL: NameSet = NameSet::of(&[
    names::IF_MATCH,
    names::IF_MODIFIED_SINCE,
    names::IF_NONE_MATCH,
    names::IF_RANGE,
    names::IF_UNMODIFIED_SINCE,
    names::RANGE,
    names::REQUEST_RANGE,
]);
