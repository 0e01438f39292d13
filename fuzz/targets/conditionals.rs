//! What a client asks of a stored response: preconditions, ranges, and the fields it varies on.

#![no_main]

use libfuzzer_sys::fuzz_target;
use microcache_fuzz::fields::two_sections;
use microcache_policy::trust::{self, FieldForwarding};
use microcache_policy::vary::{self, Selection, Vary, VaryNames};
use microcache_policy::{
    FieldName, Fields, FieldsBuf, OriginView, Precondition, RangeVerdict, RequestFacts, Rules,
    Time, add_validators, is_conditional_field, precondition, range, same_representation,
};

const NOW: Time = Time::from_secs(784_111_777);

fuzz_target!(|input: &[u8]| {
    let (request, stored) = two_sections(input);
    let (request, stored) = (request.fields(), stored.fields());
    let rules = Rules::default();
    let facts = RequestFacts::read(&http::Method::GET, request, false, &rules);
    preconditions(request, &facts, stored);
    for length in [0, 1, 10, 1000, u64::MAX] {
        parts_lie_within(request, &facts, stored, length);
    }
    our_own_condition_is_met(stored, &rules);
    selections(request, stored);
});

fn preconditions(request: Fields<'_>, facts: &RequestFacts, stored: Fields<'_>) {
    let verdict = precondition(request, facts, 200, stored, NOW);
    let conditions = [
        "if-match",
        "if-none-match",
        "if-modified-since",
        "if-unmodified-since",
    ];
    let any = conditions.iter().any(|name| request.contains(name));
    assert_eq!(facts.is_conditional(), any);
    assert!(any || verdict == Precondition::Send);
    assert_eq!(
        precondition(request, facts, 404, stored, NOW),
        Precondition::Send
    );
    let star = |name| request.all(name).eq([b"*"]);
    if star("if-none-match")
        && !request.contains("if-match")
        && !request.contains("if-unmodified-since")
    {
        assert_eq!(verdict, Precondition::NotModified);
    }
}

fn parts_lie_within(request: Fields<'_>, facts: &RequestFacts, stored: Fields<'_>, length: u64) {
    match range(request, facts, 200, stored, length, NOW) {
        RangeVerdict::Full => {}
        RangeVerdict::Part { first, last } => {
            assert!(first <= last && last < length);
            assert!(facts.range().is_some());
        }
        RangeVerdict::Unsatisfiable => assert!(facts.range().is_some()),
    }
    assert_eq!(
        range(request, facts, 206, stored, length, NOW),
        RangeVerdict::Full
    );
}

/// A request conditional on the stored response finds it unchanged, or the condition could not be
/// expressed.
fn our_own_condition_is_met(stored: Fields<'_>, rules: &Rules) {
    let mut condition = FieldsBuf::new();
    let conditional = add_validators(stored, &mut condition);
    assert_eq!(conditional, condition.fields().iter().next().is_some());
    assert!(
        condition
            .fields()
            .iter()
            .all(|(name, _)| is_conditional_field(FieldName::of(name)))
    );
    let facts = RequestFacts::read(&http::Method::GET, condition.fields(), false, rules);
    assert_eq!(facts.is_conditional(), conditional);
    let _ = precondition(condition.fields(), &facts, 200, stored, NOW);
    let tags = stored.all("etag").count();
    let weak = stored.get("etag").is_some_and(|tag| tag.starts_with(b"W/"));
    if tags <= 1 && !weak && stored.all("last-modified").count() <= 1 {
        assert!(same_representation(stored, stored));
    }
}

fn selections(request: Fields<'_>, response: Fields<'_>) {
    let Vary::Names(names) = vary::of_response(response, &[]) else {
        return;
    };
    let rules = Rules::default();
    let select = |request: Fields<'_>| selection_of(&names, request, &rules);
    let selection = select(request);
    assert_eq!(VaryNames::from_bytes(names.as_bytes()), Some(names.clone()));

    // What the origin gets selects the same response as what the client said.
    let mut sent = FieldsBuf::from(request);
    vary::normalise(&mut sent, &rules);
    assert_eq!(select(sent.fields()), selection);

    // Any other value of a field that the origin sees as it stands selects another response.
    let as_it_stands = |name: &&str| {
        let compared_otherwise = ["cookie", "cache-control", "expect", "pragma", "via"];
        trust::field_forwarding(FieldName::of(name.as_bytes()), false, &rules.request)
            == FieldForwarding::Forwarded
            && !is_conditional_field(FieldName::of(name.as_bytes()))
            && !compared_otherwise.contains(name)
            && !name.starts_with("accept-")
    };
    for name in names.iter().filter(as_it_stands) {
        let mut other = FieldsBuf::from(request);
        other.push(name, "another value");
        assert_ne!(select(other.fields()), selection);
    }
}

fn selection_of(names: &VaryNames, request: Fields<'_>, rules: &Rules) -> Selection {
    let view = OriginView {
        fields: request,
        rules,
        address: "192.0.2.1",
        is_trusted: false,
    };
    let mut selection = Selection::new();
    vary::select(names, &view, &mut selection);
    selection
}
