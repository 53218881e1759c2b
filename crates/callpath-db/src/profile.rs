//! A profile: one tree with all that is needed to read it. Profiles are merged as databases ([`crate::database`]).

use crate::{Contexts, Metric, MetricId, Quality, RunInfo, Strings, Tree};

/// What a run, or several merged ones, cost by complete call path.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The columns, metric 0 first. Fixed when the profile is made.
    pub metrics: Vec<Metric>,
    /// How every sample was accounted for.
    pub quality: Quality,
    /// What ran.
    pub info: RunInfo,
    /// The strings that the tree's scopes refer to.
    pub strings: Strings,
    /// The calling context tree, with costs by `metrics`.
    pub tree: Tree,
    /// The same costs by calling context, over all processes and threads: (module, offset) where the tree has names.
    pub contexts: Contexts,
}

impl Profile {
    /// An empty profile.
    pub fn new(metrics: Vec<Metric>) -> Self {
        let (tree, contexts) = (Tree::new(&metrics), Contexts::new(&metrics));
        let (quality, info, strings) = (Quality::default(), RunInfo::default(), Strings::default());
        Profile { metrics, quality, info, strings, tree, contexts }
    }

    /// Whether anything was measured by call path: if not, it has no metric but the number of samples, and there are none.
    pub fn is_sampled(&self) -> bool {
        self.metrics.iter().any(|metric| metric.id != Some(MetricId::SAMPLES)) || self.quality.taken > 0
    }
}
