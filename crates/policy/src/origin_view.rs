//! What the origin sees of a request that is sent on for everyone.
//!
//! A response that varies was chosen by what reached the origin, not by what the client wrote: some
//! fields are written anew on the way, some are left out. Whatever is compared for `Vary` is
//! therefore read through this view.

use smallvec::{Array, SmallVec};

use crate::cookies;
use crate::encoding::{push_component, push_field, push_with_len};
use crate::fields::Fields;
use crate::rules::Rules;
use crate::trust::{Fate, fate};
use crate::validate::is_conditional_field;

/// A request, seen from the origin.
#[derive(Clone, Copy, Debug)]
pub struct OriginView<'a> {
    /// The client's field lines.
    pub fields: Fields<'a>,
    /// The rules of the route that it takes.
    pub rules: &'a Rules,
    /// The address of the client, as the origin is told it.
    pub address: &'a str,
    /// The client is a proxy that is believed what it says of its own clients.
    pub vouched: bool,
}

impl OriginView<'_> {
    /// Appends what the origin sees of one field, such that two different things never look the
    /// same.
    pub(crate) fn push<A: Array<Item = u8>>(&self, out: &mut SmallVec<A>, name: &str) {
        match self.fate(name) {
            Fate::Removed => out.push(0),
            Fate::Rewritten => self.push_forwarding(out, name),
            // `Via` is the same for all.
            Fate::Travels if name == "via" || !goes_with_fill(name.as_bytes(), self.rules) => {
                out.push(0);
            }
            Fate::Travels if name == "cookie" => self.push_cookies(out),
            Fate::Travels => push_field(out, self.fields, name),
        }
    }

    pub(crate) fn fate(&self, name: &str) -> Fate {
        if name == "accept-encoding" && self.rules.compress.is_on() {
            // Everybody's is written anew, and says the same.
            return Fate::Removed;
        }
        fate(name.as_bytes(), self.vouched, &self.rules.request)
    }

    /// Fields that tell the origin who has asked. Scheme and host are in the key already.
    fn push_forwarding<A: Array<Item = u8>>(&self, out: &mut SmallVec<A>, name: &str) {
        if self.vouched {
            push_field(out, self.fields, name);
        }
        if matches!(name, "forwarded" | "x-forwarded-for") {
            push_component(out, self.address.as_bytes());
        }
    }

    /// The cookies that may change what a page says.
    fn push_cookies<A: Array<Item = u8>>(&self, out: &mut SmallVec<A>) {
        push_with_len(out, |out| {
            for cookie in cookies::counting(self.fields, self.rules) {
                push_component(out, cookie);
            }
        });
    }
}

/// Whether a request that fills sends this field: nothing that asks for a part, for another client's
/// condition, or past the caches of the origin. Where the client is the program itself it decides about the last.
pub fn goes_with_fill(name: &[u8], rules: &Rules) -> bool {
    let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
    let commands_caches = || is("cache-control") || is("pragma");
    !is_conditional_field(name) && !is("expect") && (rules.obeys_client || !commands_caches())
}
