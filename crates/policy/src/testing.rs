//! Helpers of the tests.

use http::Method;

use crate::explain::{LifetimeSource, ResponseExplanation, StaleWindowSource};
use crate::fields::{Fields, FieldsBuf};
use crate::lifetime::{HAS_VALIDATOR, Lifetime, MUST_VALIDATE};
use crate::origin_view::OriginView;
use crate::request::RequestFacts;
use crate::response::ResponseFacts;
use crate::rules::Rules;
use crate::storable::{NotStorable, Storable, storable};
use crate::stored_fields::fields_to_store;
use crate::time::{Time, Times};

/// The time at which the responses of the tests are received: Sun, 06 Nov 1994 08:49:37 GMT.
pub(crate) const RECEIVED: Time = Time::from_secs(784_111_777);

/// The field block of these lines.
pub(crate) fn fields(lines: &str) -> FieldsBuf {
    let mut block = Vec::new();
    for line in lines.lines() {
        block.extend_from_slice(line.trim().as_bytes());
        block.extend_from_slice(b"\r\n");
    }
    FieldsBuf::from(Fields::new(&block))
}

/// The facts of a GET without body.
pub(crate) fn get(request: &FieldsBuf, rules: &Rules) -> RequestFacts {
    RequestFacts::read(&Method::GET, request.fields(), false, rules)
}

/// The decision on a response that was received at once.
pub(crate) fn judge(
    rules: &Rules,
    request: &str,
    status: u16,
    response: &str,
) -> Result<Lifetime, NotStorable> {
    let (request, response) = (fields(request), fields(response));
    let facts = get(&request, rules);
    let response = ResponseFacts::read(response.fields(), rules);
    let verdict = storable(&facts, status, &response, Times::at(RECEIVED));
    check_account(&facts, status, &response, verdict);
    match verdict {
        Storable::Yes(lifetime) => Ok(lifetime),
        Storable::No(reason) => Err(reason),
    }
}

/// Checks that the explanation of a response agrees with the decision.
fn check_account(
    facts: &RequestFacts,
    status: u16,
    response: &ResponseFacts<'_>,
    verdict: Storable,
) {
    let account = ResponseExplanation::of(facts, status, response, Times::at(RECEIVED));
    assert_eq!(account.verdict, verdict, "{response:?}");
    let Storable::Yes(lifetime) = verdict else {
        return;
    };
    let by = account
        .source
        .expect("nothing is stored without a lifetime");
    let own = matches!(
        by,
        LifetimeSource::AnonymousTtl
            | LifetimeSource::ForcedTtl
            | LifetimeSource::StatusTtl
            | LifetimeSource::Ttl
    );
    let left = account.fresh_for.cast_signed()
        - if own {
            0
        } else {
            lifetime.initial_age.cast_signed()
        };
    assert_eq!(lifetime.ttl(RECEIVED), left, "{account:?} {response:?}");
    let window = lifetime.stale_while_revalidate;
    match account.window_source {
        StaleWindowSource::Response => assert_eq!(
            Some(window),
            response.said.directives.stale_while_revalidate
        ),
        StaleWindowSource::Route => assert_eq!(window, response.rules.stale_while_revalidate),
        StaleWindowSource::Forbidden | StaleWindowSource::Zero => {
            assert_eq!(window, 0, "{account:?} {response:?}");
        }
    }
    assert_eq!(
        account.must_validate,
        lifetime.has(MUST_VALIDATE),
        "{response:?}"
    );
    assert_eq!(
        account.has_validator,
        lifetime.has(HAS_VALIDATOR),
        "{response:?}"
    );
}

/// The fields that are stored of a response.
pub(crate) fn to_store(response: &FieldsBuf, rules: &Rules) -> FieldsBuf {
    fields_to_store(&ResponseFacts::read(response.fields(), rules))
}

/// The lifetime of a plain 200 under the default rules.
pub(crate) fn lifetime(response: &str) -> Lifetime {
    judge(&Rules::default(), "", 200, response).expect(response)
}

/// The origin's view of a request from an untrusted client.
pub(crate) fn view<'a>(request: Fields<'a>, rules: &'a Rules) -> OriginView<'a> {
    OriginView {
        fields: request,
        rules,
        address: "192.0.2.1",
        is_trusted: false,
    }
}
