//! The upstream groups of a configuration.

use std::net::IpAddr;
use std::sync::Arc;

use microcache_engine::Origin;

use super::group::{Group, GroupSnapshot};
use super::php::PhpOrigin;
use super::settings::GroupSettings;
use crate::config::Cidr;
use crate::metrics::Metrics;
use crate::observe::Notices;

/// All groups, in the order of the configuration.
#[derive(Clone, Default)]
pub(crate) struct Groups(Arc<[Arc<Group>]>);

impl Groups {
    /// Starts the groups on the current runtime.
    pub(crate) fn start(
        settings: &[GroupSettings],
        notices: &Notices,
        metrics: &Arc<Metrics>,
    ) -> Self {
        Self::default().renewed(settings, notices, metrics)
    }

    /// Returns the groups of another configuration. Unchanged groups continue; the others are started on the
    /// current runtime.
    pub(crate) fn renewed(
        &self,
        settings: &[GroupSettings],
        notices: &Notices,
        metrics: &Arc<Metrics>,
    ) -> Self {
        let groups = settings.iter().map(|settings| {
            let before = self.0.iter().find(|group| group.name() == settings.name);
            match before {
                Some(before) if before.settings() == settings => Arc::clone(before),
                Some(before) => before.succeeded_by(settings.clone()),
                None => Group::start(settings.clone(), notices.clone(), metrics),
            }
        });
        Self(groups.collect())
    }

    /// Returns the origins of the groups. Scripts see the visitor that a trusted proxy names, and `address` as that of
    /// this server.
    pub(crate) fn origins(
        &self,
        trusted_proxies: &[Cidr],
        address: IpAddr,
    ) -> Vec<Arc<dyn Origin>> {
        let origin = |group: &Arc<Group>| -> Arc<dyn Origin> {
            let group = Arc::clone(group);
            match &group.settings().php.root {
                Some(root) if group.settings().runs_scripts() => {
                    let root = root.clone();
                    Arc::new(PhpOrigin::new(group, root, trusted_proxies, address))
                }
                _ => group,
            }
        };
        self.0.iter().map(origin).collect()
    }

    /// Retires those that are not part of `new`: they end with their last request.
    pub(crate) fn retire_unless_in(&self, new: &Self) {
        for group in self.0.iter() {
            if !new.0.iter().any(|stays| Arc::ptr_eq(stays, group)) {
                group.retire();
            }
        }
    }

    pub(crate) fn snapshots(&self) -> Vec<GroupSnapshot> {
        self.0.iter().map(|group| group.snapshot()).collect()
    }
}
