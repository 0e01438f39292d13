//! The page of a site in docs/guides/sites: its configuration, and its table of differences.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::application::Places;
use super::comparison::Comparison;

pub(super) struct Page {
    name: String,
    text: String,
}

impl Page {
    pub(super) fn read(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/sites");
        let text = fs::read_to_string(folder.join(format!("{name}.md")));
        Self {
            name: name.to_owned(),
            text: text.expect("a page"),
        }
    }

    /// The whole file of the page, with the addresses and directories of the test.
    pub(super) fn configuration(&self, comparison: &Comparison, places: &Places) -> String {
        let (_, rest) = self.text.split_once("```toml\n").expect("a configuration");
        let (text, _) = rest.split_once("```").expect("its end");
        let is_dropped = |line: &str| {
            let name = line.split(" =").next().unwrap_or_default();
            comparison.drop.iter().any(|it| it == name)
        };
        let kept: Vec<&str> = text.lines().filter(|line| !is_dropped(line)).collect();
        let replaced = comparison.replace.iter();
        replaced.fold(kept.join("\n"), |text, (from, to)| {
            assert!(text.contains(from), "{}: there is no {from}", self.name);
            text.replace(from, &places.fill(to))
        })
    }

    /// Fails the test unless the table of differences has exactly these reasons, in its first column.
    pub(super) fn assert_differences(&self, reasons: &[&str]) {
        let section = self.text.split_once("\n## What differs\n");
        let section = section.map_or("", |(_, rest)| rest);
        let section = section.split("\n## ").next().unwrap_or_default();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| "));
        let cells = rows.filter_map(|row| row.split(" | ").next());
        // The first two lines are the table's head.
        let listed: BTreeSet<&str> = cells.skip(1).collect();
        let reasons: BTreeSet<&str> = reasons.iter().copied().collect();
        assert_eq!(listed, reasons, "{}: listed, and tested", self.name);
    }
}
