//! The cost of the rules that only a miss applies.

#[path = "../../engine/benches/support/mod.rs"]
mod support;

use std::hint::black_box;

use microcache_policy::network::address;
use microcache_policy::vary::VaryNames;
use microcache_policy::{FieldsBuf, LineStart, Rules, SharedRequest, Time, date};
use support::{BROWSER_FIELDS, Case};

const FOR: LineStart = LineStart::of("X-Forwarded-For: ");

/// Lines of a browser, and that of the proxy.
fn outgoing() -> FieldsBuf {
    let mut fields = FieldsBuf::indexed(BROWSER_FIELDS.len());
    for line in BROWSER_FIELDS.lines() {
        let (name, value) = line.split_once(": ").expect("a field line");
        fields.push(name, value);
    }
    fields.push_line(FOR, [b"192.0.2.1"]);
    fields
}

const CASES: &[Case] = &[
    Case {
        name: "a line that the proxy adds",
        prepare: || {
            let mut fields = FieldsBuf::with_capacity(1_100 * FOR.name().len() * 2);
            Box::new(move || fields.push_line(FOR, [black_box(b"192.0.2.1")]))
        },
    },
    Case {
        name: "the fields of a shared request",
        prepare: || {
            let (outgoing, rules) = (outgoing(), Rules::default());
            Box::new(move || {
                let fields = black_box(&outgoing).fields();
                let shared = SharedRequest::of(fields, &rules, &VaryNames::NONE);
                assert!(shared.leaves_out(), "the cookie");
            })
        },
    },
    Case {
        name: "a date",
        prepare: || {
            Box::new(|| {
                let date =
                    date::parse(black_box(b"Sun, 06 Nov 1994 08:49:37 GMT"), Time::default());
                assert_eq!(date, Some(Time::from_secs(784_111_777)));
            })
        },
    },
    Case {
        name: "an address",
        prepare: || {
            Box::new(|| assert!(address(black_box(b"192.0.2.1")).is_some_and(|it| it.is_ipv4())))
        },
    },
];

fn main() {
    support::main("The rules of a miss", CASES);
}
