//! The operator's changes to the fields of responses. They are made when a response is written: what decides about
//! caching is what the application said.

use std::ops::RangeInclusive;

use crate::field_template::{FieldTemplate, TemplateValues};
use crate::fields::{FieldLine, Fields, FieldsBuf};
use crate::patterns::FieldPatterns;

/// Changes to the fields of responses with certain status codes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldEdits {
    /// The status codes.
    pub statuses: RangeInclusive<u16>,
    /// Fields to remove.
    pub removed: FieldPatterns,
    /// Fields to replace, or to append if there is none of the name.
    pub set: Vec<FieldEdit>,
    /// Fields to append.
    pub added: Vec<FieldEdit>,
    /// Fields to append if there is none of the name.
    pub defaults: Vec<FieldEdit>,
}

/// A field that the operator writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldEdit {
    /// The name.
    pub name: String,
    /// The value.
    pub value: FieldTemplate,
}

impl Default for FieldEdits {
    fn default() -> Self {
        Self {
            statuses: 100..=599,
            removed: FieldPatterns::default(),
            set: Vec::new(),
            added: Vec::new(),
            defaults: Vec::new(),
        }
    }
}

impl FieldEdits {
    /// Returns true if a response with this status is changed.
    pub fn take(&self, status: u16) -> bool {
        self.statuses.contains(&status)
    }

    /// Returns the changed fields.
    pub fn applied(&self, fields: Fields<'_>, values: &TemplateValues<'_>) -> FieldsBuf {
        let mut edited = FieldsBuf::with_capacity(fields.as_block().len());
        edited.extend_lines(fields, |line| !self.drops(line));
        for edit in self.set.iter().chain(&self.added) {
            edited.push_joined(edit.name.as_bytes(), &edit.value.resolve(values));
        }
        for edit in &self.defaults {
            if !edited.fields().contains(&edit.name) {
                edited.push_joined(edit.name.as_bytes(), &edit.value.resolve(values));
            }
        }
        edited
    }

    fn drops(&self, line: FieldLine<'_>) -> bool {
        let name = line.name();
        let mut replaced = self.set.iter();
        replaced.any(|edit| name.eq_ignore_ascii_case(edit.name.as_bytes()))
            || self.removed.matches(name)
    }

    /// Returns these edits without those of fields that `others` change too.
    #[must_use]
    pub fn without_those_of(self, others: &[Self]) -> Self {
        let named = |edits: &Self, name: &str| {
            let mut all = edits.set.iter().chain(&edits.added).chain(&edits.defaults);
            edits.removed.matches(name.as_bytes())
                || all.any(|edit| edit.name.eq_ignore_ascii_case(name))
        };
        let keep = |edits: Vec<FieldEdit>| {
            let kept = edits.into_iter();
            let kept = kept.filter(|edit| !others.iter().any(|other| named(other, &edit.name)));
            kept.collect()
        };
        Self {
            set: keep(self.set),
            added: keep(self.added),
            defaults: keep(self.defaults),
            ..self
        }
    }

    /// Returns whether a value has the identifier of the request.
    pub fn has_request_id(&self) -> bool {
        let mut all = self.set.iter().chain(&self.added).chain(&self.defaults);
        all.any(|edit| edit.value.has_request_id())
    }

    /// Returns true if nothing is changed.
    pub const fn is_empty(&self) -> bool {
        self.removed.is_empty()
            && self.set.is_empty()
            && self.added.is_empty()
            && self.defaults.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edits(all: &[(&str, &str)]) -> Vec<FieldEdit> {
        let edit = |&(name, value): &(&str, &str)| FieldEdit {
            name: name.to_owned(),
            value: FieldTemplate::parse(value).expect("a value"),
        };
        all.iter().map(edit).collect()
    }

    fn applied(edits: &FieldEdits, fields: &str) -> String {
        let values = TemplateValues {
            client_address: b"192.0.2.1",
            host: b"a",
            scheme: "http",
            request_id: b"",
            certificate_subject: "",
            certificate_fingerprint: "",
        };
        let edited = edits.applied(Fields::new(fields.as_bytes()), &values);
        String::from_utf8(edited.into_block()).expect("text")
    }

    #[test]
    fn fields_are_removed_set_added_and_supplied() {
        let edits = FieldEdits {
            removed: ["Server", "X-Internal-*"].into_iter().collect(),
            set: edits(&[("X-Frame-Options", "DENY")]),
            added: edits(&[("Link", "</a>; rel=preload")]),
            defaults: edits(&[("Referrer-Policy", "same-origin"), ("X-From", "{host}")]),
            ..FieldEdits::default()
        };
        assert_eq!(
            applied(
                &edits,
                "server: x\r\nx-frame-options: A\r\nLink: b\r\nX-FRAME-OPTIONS: B\r\nX-internal-1: c\r\nreferrer-policy: d\r\n"
            ),
            "Link: b\r\nreferrer-policy: d\r\nX-Frame-Options: DENY\r\nLink: </a>; rel=preload\r\nX-From: a\r\n"
        );
    }

    #[test]
    fn edits_of_the_same_field_take_the_place_of_inherited_ones() {
        let inherited = FieldEdits {
            removed: ["Server"].into_iter().collect(),
            set: edits(&[("X-Frame-Options", "DENY"), ("X-A", "1")]),
            defaults: edits(&[("X-B", "2")]),
            ..FieldEdits::default()
        };
        let own = [FieldEdits {
            removed: ["x-frame-options"].into_iter().collect(),
            set: edits(&[("x-b", "3")]),
            ..FieldEdits::default()
        }];
        let left = inherited.without_those_of(&own);
        assert_eq!(applied(&left, "Server: a\r\n"), "X-A: 1\r\n");
    }
}
