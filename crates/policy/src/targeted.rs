//! Targeted cache control (RFC 9213): fields such as `CDN-Cache-Control` for one class of caches. `Surrogate-Control` (Edge
//! Architecture Specification 1.0) is read as one of them where the operator names it.

use sfv::{BareItem, Dictionary, ListEntry, Parser};

use crate::directives::DirectiveArgument;
use crate::fields::Fields;

/// Name of the field for surrogates.
pub const SURROGATE_CONTROL: &str = "Surrogate-Control";

/// The members of a targeted field, which is a Dictionary.
type TargetedField = Dictionary;

/// The first of the `targeted` fields that is present, valid and not empty. It replaces `Cache-Control` and `Expires`.
pub(crate) fn select(response: Fields<'_>, targeted: &[String]) -> Option<TargetedField> {
    targeted.iter().find_map(|name| members(response, name))
}

/// The members of a targeted field as directives.
pub(crate) fn arguments(
    members: &TargetedField,
) -> impl Iterator<Item = (&[u8], DirectiveArgument<'_>)> {
    members
        .iter()
        .filter_map(|(key, entry)| Some((key.as_str().as_bytes(), argument(entry)?)))
}

fn members(response: Fields<'_>, name: &str) -> Option<TargetedField> {
    let mut value = Vec::new();
    for line in response.all(name) {
        if !value.is_empty() {
            value.extend_from_slice(b", ");
        }
        value.extend_from_slice(line);
    }
    if value.is_empty() {
        return None;
    }
    let is_surrogate = name.eq_ignore_ascii_case(SURROGATE_CONTROL);
    if is_surrogate {
        value = with_stale_window(&value);
    }
    let mut members: TargetedField = Parser::new(&value).parse().ok()?;
    if is_surrogate {
        // A parameter names the surrogate that a directive is for, and this is another one.
        members.retain(|_, entry| matches!(entry, ListEntry::Item(item) if item.params.is_empty()));
    }
    let well_typed = members
        .iter()
        .all(|(key, entry)| well_typed(key.as_str(), entry));
    (!members.is_empty() && well_typed).then_some(members)
}

/// Writes the `max-age=60+30` of `Surrogate-Control` with the directive for the time that a response may be served
/// stale.
fn with_stale_window(value: &[u8]) -> Vec<u8> {
    let mut written = Vec::with_capacity(value.len());
    for (at, &byte) in value.iter().enumerate() {
        let is_digit = |at: usize| value.get(at).is_some_and(u8::is_ascii_digit);
        if byte == b'+' && at > 0 && is_digit(at - 1) && is_digit(at + 1) {
            written.extend_from_slice(b", stale-while-revalidate=");
        } else {
            written.push(byte);
        }
    }
    written
}

/// Returns true if a lifetime is an Integer (RFC 9213 §2.1); with another type, the field is invalid.
fn well_typed(key: &str, entry: &ListEntry) -> bool {
    match key {
        "max-age" | "s-maxage" | "stale-while-revalidate" | "stale-if-error" => {
            matches!(entry, ListEntry::Item(item) if matches!(item.bare_item, BareItem::Integer(_)))
        }
        _ => true,
    }
}

/// The argument of a directive; `None` for a directive that is off, as in `no-store=?0`.
fn argument(entry: &ListEntry) -> Option<DirectiveArgument<'_>> {
    let ListEntry::Item(item) = entry else {
        return Some(DirectiveArgument::Malformed);
    };
    match &item.bare_item {
        BareItem::Boolean(holds) => holds.then_some(DirectiveArgument::None),
        BareItem::Integer(number) => Some(DirectiveArgument::Number(i64::from(*number))),
        BareItem::String(text) => Some(DirectiveArgument::Text(text.as_str().as_bytes())),
        BareItem::Token(text) => Some(DirectiveArgument::Text(text.as_str().as_bytes())),
        _ => Some(DirectiveArgument::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use crate::directives::{Directive, ResponseDirectives};
    use crate::response::ResponseFacts;
    use crate::rules::Rules;
    use crate::testing::fields;

    fn selected(lines: &str) -> Option<ResponseDirectives> {
        let names = ["Microcache-Control", "CDN-Cache-Control"].map(str::to_owned);
        let rules = Rules {
            targeted: names.to_vec(),
            ..Rules::default()
        };
        let fields = fields(lines);
        let facts = ResponseFacts::read(fields.fields(), &rules);
        facts.is_targeted.then_some(facts.said.directives)
    }

    /// Checks that a field is valid, and its `max-age` in seconds.
    fn check(lines: &str, expected: Option<u64>) {
        let max_age = selected(lines).expect(lines).max_age;
        assert_eq!(max_age, expected.map(|seconds| seconds * 1000), "{lines}");
    }

    #[test]
    fn the_first_valid_field_counts() {
        const CDN: &str = "CDN-Cache-Control: max-age=5";
        check(CDN, Some(5));
        check(&format!("{CDN}\nMicrocache-Control: max-age=7"), Some(7));
        check(&format!("{CDN}\nMicrocache-Control: max-age=7,,"), Some(5));
        check(&format!("CDN-Cache-Control: foo\n{CDN}"), Some(5));
        check("CDN-Cache-Control: max-age=5;x=1, foo=(a b)", Some(5));
        check("CDN-Cache-Control: no-store", None);
    }

    #[test]
    fn an_invalid_or_empty_field_is_not_there() {
        for value in [
            "",
            "&&&&&",
            "max-age=10, &&&&&",
            "max-age =5",
            "max-age= 5",
            "max-age=\"5\"",
            "max-age=5.5",
            "max-age",
            "MaX-aGe=5",
            "max-age=9999999999999999",
        ] {
            let line = format!("CDN-Cache-Control: {value}");
            assert_eq!(selected(&line), None, "{value}");
        }
    }

    #[test]
    fn numbers_saturate_and_negative_ones_are_stale() {
        check("CDN-Cache-Control: max-age=99999999999", Some(1 << 31));
        check("CDN-Cache-Control: max-age=-5", Some(0));
        check("CDN-Cache-Control: max-age=3, max-age=5", Some(5));
    }

    #[test]
    fn surrogate_control_counts_only_where_it_is_named() {
        let lines = "Surrogate-Control: max-age=60+30, content=\"ESI/1.0\", no-store;edge";
        assert_eq!(selected(lines), None);
        let rules = Rules {
            targeted: vec!["surrogate-control".to_owned()],
            ..Rules::default()
        };
        let fields = fields(lines);
        let said = ResponseFacts::read(fields.fields(), &rules).said.directives;
        assert_eq!(
            (
                said.max_age,
                said.stale_while_revalidate,
                said.says(Directive::NoStore)
            ),
            (Some(60_000), Some(30_000), false)
        );
    }

    #[test]
    fn directives_without_value_are_booleans() {
        use Directive::{MustRevalidate, NoCache, NoStore, Private};
        let line = "CDN-Cache-Control: no-store=?0, private=\"x-a\", no-cache, must-revalidate=?1";
        let all = selected(line).expect(line);
        let said = [NoStore, Private, NoCache, MustRevalidate].map(|one| all.says(one));
        assert_eq!(said, [false, false, true, true]);
    }
}
