//! What an export is made from, and the costs that it shows.

use callpath_db::{Profile, ScopeKind, View};

/// What an export is made from: the selected tree, and the metric that it shows.
pub(super) struct Exported<'a> {
    pub(super) profile: &'a Profile,
    pub(super) view: &'a View,
    /// A column whose values are integers that add up.
    pub(super) metric: usize,
}

impl Exported<'_> {
    pub(super) fn total(&self) -> u64 {
        self.view.inclusive(0).get(self.metric)
    }

    pub(super) fn inclusive(&self, node: usize) -> u64 {
        self.view.inclusive(node).get(self.metric)
    }

    pub(super) fn exclusive(&self, node: usize) -> u64 {
        self.view.exclusive(node).get(self.metric)
    }

    pub(super) fn kind(&self, node: usize) -> ScopeKind {
        self.view.nodes[node].scope.kind
    }

    pub(super) fn unit(&self) -> &str {
        &self.profile.metrics[self.metric].unit
    }

    pub(super) fn metric_name(&self) -> &str {
        &self.profile.metrics[self.metric].name
    }
}

/// Who wrote it.
pub(super) const CREATOR: &str = concat!("callpath ", env!("CARGO_PKG_VERSION"));
