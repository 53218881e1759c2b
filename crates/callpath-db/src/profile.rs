//! A profile: one tree with all that is needed to read it; and the merging of two.

use crate::database::columns_for;
use crate::rows::Moves;
use crate::{CallSite, Contexts, Metric, Name, NodeId, Quality, RunInfo, Scope, Strings, Tree};

/// What a run, or several merged ones, cost by complete call path.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The columns, metric 0 first. Fixed when the profile is made; [`Profile::merge`] adds to them.
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

    /// Adds `other` to this: equal scopes below equal parents combine their values, other scopes are added. A metric
    /// is the same when name, unit and kind are equal; one that only `other` has becomes a new column.
    ///
    /// Associative, and commutative up to the order of children, columns and notes; totals are conserved.
    pub fn merge(&mut self, other: &Profile) {
        let columns = self.columns_for(&other.metrics);
        let mut names = vec![None; other.strings.len()];
        let mut nodes: Vec<NodeId> = Vec::with_capacity(other.tree.len());
        let mut moves = Moves::with_capacity(other.tree.len());
        for node in other.tree.nodes() {
            let here = match other.tree.parent(node) {
                None => NodeId::ROOT,
                Some(parent) => {
                    let scope = self.adopt(other.tree.scope(node), &other.strings, &mut names);
                    self.tree.child(nodes[parent.index()], scope)
                }
            };
            nodes.push(here);
            moves.push((node.index() as u32, here.index() as u32));
        }
        self.tree.take_over(other.tree.own(), columns.iter().copied(), &moves);
        let Profile { contexts, strings, .. } = self;
        contexts.merge(&other.contexts, &columns, |theirs| adopt_name(strings, theirs, &other.strings, &mut names));
        self.quality.add(&other.quality);
        self.info.merge(&other.info);
    }

    /// For each of `theirs` the column here, made where there is none.
    fn columns_for(&mut self, theirs: &[Metric]) -> Vec<usize> {
        let mine = self.metrics.len();
        let columns = columns_for(&mut self.metrics, theirs);
        let added: Vec<_> = self.metrics[mine..].iter().map(|metric| metric.rule()).collect();
        self.tree.widen(&added);
        self.contexts.widen(&added);
        columns
    }

    /// `scope` of another profile in this one's strings; `names` remembers those already taken over.
    fn adopt(&mut self, scope: &Scope, strings: &Strings, names: &mut [Option<Name>]) -> Scope {
        let mut name = |theirs: Name| adopt_name(&mut self.strings, theirs, strings, names);
        Scope {
            name: name(scope.name),
            module: scope.module.map(&mut name),
            file: scope.file.map(&mut name),
            call_site: scope.call_site.map(|site| CallSite { file: name(site.file), line: site.line }),
            ..*scope
        }
    }
}

/// A name of another profile's `strings` in `mine`; `names` remembers those already taken over.
fn adopt_name(mine: &mut Strings, theirs: Name, strings: &Strings, names: &mut [Option<Name>]) -> Name {
    match names.get(theirs.index()) {
        Some(&Some(known)) => known,
        _ => {
            let name = mine.intern(strings.get(theirs));
            if let Some(slot) = names.get_mut(theirs.index()) {
                *slot = Some(name);
            }
            name
        }
    }
}
