//! A metric: name, type, help, and the subjects that it is read from.

use std::fmt::Write;

use microcache_engine::MadeStats;
use microcache_engine::cache::FleetReport;
use microcache_policy::Coding;
use microcache_proxy::upstream::{GroupSnapshot, ServerSnapshot};
use microcache_proxy::{
    FleetStats, MercureStats, OriginSnapshot, PushStats, RenewalState, RouteSnapshot, TierReport,
    TraceCounts,
};

use super::samples::Samples;
use super::scrape::Scrape;

/// A row of the table of metrics.
pub(super) struct Metric {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    subject: Subject,
}

/// Reads the samples of a metric from one subject.
type Reader<T> = fn(&T, &mut Samples<'_>);

/// The subjects of a metric, and the function that reads the samples of each.
pub(super) enum Subject {
    /// The process.
    Process(fn(&Scrape<'_>, &mut Samples<'_>)),
    /// Each route, by `route`.
    Route(Reader<RouteSnapshot>),
    /// The requests to each origin group, removed ones included, by `upstream`.
    Origin(Reader<OriginSnapshot>),
    /// Each configured origin group, by `upstream`.
    Group(Reader<GroupSnapshot>),
    /// Each server, by `upstream` and `server`.
    Server(Reader<ServerSnapshot>),
    /// Each tier, by `tier`.
    Tier(Reader<TierReport>),
    /// Each coding of stored bodies, by `coding`.
    Coding(Reader<MadeStats>),
    /// Each name with a certificate by ACME, by `name`.
    Renewal(Reader<RenewalState>),
    /// The shared log of purges.
    PurgeLog(Reader<FleetReport>),
    /// Documents and watched pages.
    Push(Reader<PushStats>),
    /// Documents shared through Redis.
    Redis(Reader<FleetStats>),
    /// The Mercure hub.
    Mercure(Reader<MercureStats>),
    /// Export of traces.
    Traces(Reader<TraceCounts>),
}

pub(super) const fn counter(name: &'static str, help: &'static str, subject: Subject) -> Metric {
    Metric {
        name,
        kind: "counter",
        help,
        subject,
    }
}

pub(super) const fn gauge(name: &'static str, help: &'static str, subject: Subject) -> Metric {
    Metric {
        kind: "gauge",
        ..counter(name, help, subject)
    }
}

pub(super) const fn histogram(name: &'static str, help: &'static str, subject: Subject) -> Metric {
    Metric {
        kind: "histogram",
        ..counter(name, help, subject)
    }
}

impl Metric {
    /// Writes help, type and samples, or nothing for a part of the process that is not configured.
    pub(super) fn write(&self, of: &Scrape<'_>, text: &mut String) {
        match self.subject {
            Subject::Process(read) => self.one(text, read, Some(of)),
            Subject::Route(read) => {
                let routes = of.requests.routes.iter();
                self.each(text, read, routes.map(|it| (it, [("route", &*it.name)])));
            }
            Subject::Origin(read) => {
                let origins = of.requests.upstreams.iter();
                let origins = origins.map(|(name, it)| (it, [("upstream", &**name)]));
                self.each(text, read, origins);
            }
            Subject::Group(read) => {
                let groups = of.groups.iter();
                self.each(text, read, groups.map(|it| (it, [("upstream", &*it.name)])));
            }
            Subject::Server(read) => {
                let servers = of.servers();
                let servers = servers.iter().map(|(group, address, it)| {
                    (*it, [("upstream", *group), ("server", &**address)])
                });
                self.each(text, read, servers);
            }
            Subject::Tier(_) if of.tiers.is_empty() => {}
            Subject::Tier(read) => {
                let tiers = of.tiers.iter();
                self.each(text, read, tiers.map(|it| (it, [("tier", it.name)])));
            }
            Subject::Coding(read) => {
                let codings = Coding::ALL.iter().map(|it| [("coding", it.as_str())]);
                self.each(text, read, of.compression.made.iter().zip(codings));
            }
            Subject::Renewal(read) => {
                let named = of.certificates.iter().filter_map(|it| {
                    let name = it.names.first()?;
                    Some((it.renewal.as_ref()?, [("name", &**name)]))
                });
                self.each(text, read, named);
            }
            Subject::PurgeLog(read) => self.one(text, read, of.purge_log.as_ref()),
            Subject::Push(read) => self.one(text, read, of.push.as_ref()),
            Subject::Redis(read) => self.one(text, read, of.redis.as_ref()),
            Subject::Mercure(read) => self.one(text, read, of.mercure.as_ref()),
            Subject::Traces(read) => {
                self.one(text, read, of.traces.as_ref().map(|it| it.counts()));
            }
        }
    }

    fn one<T>(&self, text: &mut String, read: Reader<T>, subject: Option<&T>) {
        if let Some(subject) = subject {
            self.each(text, read, [(subject, [])]);
        }
    }

    /// Writes help and type, and the samples of each subject with its labels.
    fn each<'s, T: 's, const N: usize>(
        &self,
        text: &mut String,
        read: Reader<T>,
        subjects: impl IntoIterator<Item = (&'s T, [(&'static str, &'s str); N])>,
    ) {
        let name = self.name;
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "# HELP {name} {}\n# TYPE {name} {}",
            self.help, self.kind
        );
        for (subject, labels) in subjects {
            read(subject, &mut Samples::new(text, name, &labels));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::super::table::METRICS;
    use super::Metric;

    fn read(file: &str) -> String {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        fs::read_to_string(root.join(file)).expect("the file is there")
    }

    /// The names of metrics in a text.
    fn named(text: &str) -> BTreeSet<&str> {
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let words = text.split(|c| !is_of_name(c));
        words
            .filter(|word| word.starts_with("microcache_"))
            .collect()
    }

    #[test]
    fn a_name_stands_once_and_ends_as_its_type_demands() {
        let names: BTreeSet<_> = METRICS.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), METRICS.len());
        for Metric {
            name, kind, help, ..
        } in METRICS
        {
            assert_eq!(name.ends_with("_total"), *kind == "counter", "{name}");
            assert!(help.ends_with('.') && !help.contains('\n'), "{name}");
        }
    }

    #[test]
    fn every_metric_is_documented_and_every_one_that_is_documented_or_drawn_exists() {
        let names: BTreeSet<_> = METRICS.iter().map(|metric| metric.name).collect();
        assert_eq!(named(&read("docs/api.md")), names);
        for file in [
            "packaging/grafana/microcache.json",
            "packaging/prometheus/microcache.rules.yml",
        ] {
            let text = read(file);
            let drawn = named(&text);
            assert!(drawn.len() > 10, "{file}: {drawn:?}");
            for name in drawn {
                let ends = ["", "_bucket", "_sum", "_count"];
                let mut metrics = ends.iter().filter_map(|end| name.strip_suffix(end));
                assert!(metrics.any(|name| names.contains(name)), "{file}: {name}");
            }
        }
    }

    #[test]
    fn the_board_has_panels() {
        let board: serde_json::Value =
            serde_json::from_str(&read("packaging/grafana/microcache.json")).expect("JSON");
        assert!(
            board["panels"]
                .as_array()
                .is_some_and(|panels| panels.len() > 10)
        );
    }
}
