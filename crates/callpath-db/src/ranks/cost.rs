//! What contexts and procedures cost in each rank.

use rustc_hash::FxHashMap;

use crate::{
    Metric, MetricKind, MetricType, Name, NodeId, Profile, Query, QueryError, Scope, ScopeKind, Tree, View, ViewKind,
};

/// A cost in each rank that has any: the rank's place in [`OverRanks::ranks`], and the cost.
pub type RankCosts = Vec<(u32, u64)>;

/// One metric over all ranks. A rank without a cost counts as 0.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spread {
    /// The least, and the first rank that has it.
    pub min: (u64, u32),
    /// The most, and the first rank that has it.
    pub max: (u64, u32),
    /// The sum divided by the number of ranks.
    pub mean: f64,
    /// Standard deviation of the ranks, which are all there are.
    pub deviation: f64,
}

impl Spread {
    /// What the rank that takes most takes more than the mean: so long others wait, on average, where ranks meet.
    pub fn excess(&self) -> f64 {
        self.max.0 as f64 - self.mean
    }
}

/// A context, or a procedure in all its contexts.
#[derive(Clone, PartialEq, Debug)]
pub struct RankRow {
    /// What it is.
    pub scope: Scope,
    /// Index of the context above; none of the root, and of procedures.
    pub parent: Option<usize>,
    /// With all that it calls, by rank.
    pub inclusive: RankCosts,
    /// Its own body with loops and lines, by rank.
    pub self_cost: RankCosts,
}

impl RankRow {
    fn new(scope: Scope, parent: Option<usize>) -> RankRow {
        RankRow { scope, parent, inclusive: Vec::new(), self_cost: Vec::new() }
    }
}

/// Contexts and procedures with what they cost in each rank by one metric.
#[derive(Clone, Debug)]
pub struct OverRanks {
    /// The numbers of the ranks, ascending: those that have a cost, and those of which it is known that they ran.
    pub ranks: Vec<u32>,
    /// The contexts, parents before children; the first is the root, all that was selected.
    pub contexts: Vec<RankRow>,
    /// The procedures, in descending order of self cost over all ranks. What is inlined counts for the procedure that it is in.
    pub procedures: Vec<RankRow>,
}

impl OverRanks {
    /// Of what `query` selects, by the metric with this number, an integer that adds up. None if the profile has no ranks.
    pub fn of(profile: &Profile, query: &Query, metric: usize) -> Result<Option<OverRanks>, QueryError> {
        let ranks = ranks_of(profile);
        if ranks.is_empty() {
            return Ok(None);
        }
        let view = |added: &[ScopeKind]| {
            let kept = query.fold.iter().filter(|kind| **kind != ScopeKind::Rank);
            let fold = kept.chain(&[ScopeKind::Process, ScopeKind::Thread]).chain(added).copied().collect();
            // Seen from a procedure, there would be no ranks above it: what it costs is what paths through it do.
            let focus = query.focus.iter().chain(&query.procedure).cloned().collect();
            let query = Query { view: ViewKind::Context, focus, procedure: None, fold, ..query.clone() };
            profile.view(&Query { min_share: 0.0, max_depth: None, ..query })
        };
        let whole = contexts(&view(&[])?, metric, &ranks);
        let bodies = contexts(&view(&[ScopeKind::Loop, ScopeKind::Inlined])?, metric, &ranks);
        let mut procedures = procedures(&bodies);
        let weight = |row: &RankRow| row.self_cost.iter().fold(0u64, |sum, (_, cost)| sum.saturating_add(*cost));
        procedures.sort_by_key(|row| std::cmp::Reverse(weight(row)));
        Ok(Some(OverRanks { ranks, contexts: whole, procedures }))
    }

    /// The same without procedures, and of the contexts the root alone: this takes no view.
    pub fn of_whole(profile: &Profile, query: &Query, metric: usize) -> Result<Option<OverRanks>, QueryError> {
        let ranks = ranks_of(profile);
        if ranks.is_empty() {
            return Ok(None);
        }
        let mut every = vec![0u64; ranks.len()];
        for process in profile.processes(query)? {
            if let Some(place) = process.rank.and_then(|rank| ranks.binary_search(&rank).ok()) {
                every[place] = every[place].saturating_add(process.cost.get(metric).copied().unwrap_or(0));
            }
        }
        let mut root = RankRow::new(*profile.tree.scope(NodeId::ROOT), None);
        root.inclusive = (0..).zip(every).filter(|(_, cost)| *cost != 0).collect();
        Ok(Some(OverRanks { ranks, contexts: vec![root], procedures: Vec::new() }))
    }

    /// The first metric that can be put beside each other: an integer that adds up.
    pub fn metric_of(profile: &Profile) -> Option<usize> {
        let adds_up = |metric: &Metric| metric.value == MetricType::Integer && metric.kind == MetricKind::Sum;
        profile.metrics.iter().position(adds_up)
    }

    /// Costs over all ranks.
    pub fn spread(&self, costs: &RankCosts) -> Spread {
        let every = self.every(costs);
        let count = every.len() as f64;
        let at = |place: usize| (every[place], self.ranks[place]);
        // Of equal ones the first.
        let min = (0..every.len()).min_by_key(|place| every[*place]).unwrap_or(0);
        let max = (0..every.len()).rev().max_by_key(|place| every[*place]).unwrap_or(0);
        let mean = every.iter().map(|cost| *cost as f64).sum::<f64>() / count;
        let squares = every.iter().map(|cost| (*cost as f64 - mean).powi(2)).sum::<f64>();
        Spread { min: at(min), max: at(max), mean, deviation: (squares / count).sqrt() }
    }

    /// The cost in each rank, in the order of [`OverRanks::ranks`].
    pub fn every(&self, costs: &RankCosts) -> Vec<u64> {
        let mut every = vec![0; self.ranks.len()];
        for (place, cost) in costs {
            every[*place as usize] = *cost;
        }
        every
    }

    /// What call paths cost on which procedures with these names call each other, the last with all that it calls. An error if one
    /// names no procedure; nothing if they do not call each other.
    pub fn along(&self, profile: &Profile, names: &[String]) -> Result<RankCosts, QueryError> {
        let meant = profile.meant(&Query { focus: names.to_vec(), ..Query::default() })?;
        let mut costs = Vec::new();
        let mut is_inside = vec![false; self.contexts.len()];
        for (at, row) in self.contexts.iter().enumerate() {
            // What is inside is in its cost already.
            is_inside[at] = row.parent.is_some_and(|parent| is_inside[parent]);
            if is_inside[at] || !row.scope.kind.is_frame() {
                continue;
            }
            let mut frames = self.outwards(at).filter(|at| self.contexts[*at].scope.kind.is_frame());
            let is_it = |meant: &crate::Meant| {
                let is_called = |at: usize| meant.is(&profile.strings, &self.contexts[at].scope, self.module(at));
                frames.next().is_some_and(is_called)
            };
            if meant.iter().rev().all(is_it) {
                is_inside[at] = true;
                add(&mut costs, &row.inclusive);
            }
        }
        Ok(costs)
    }

    /// A context and those that it stands in, outwards.
    fn outwards(&self, at: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(at), |&at| self.contexts[at].parent)
    }

    /// The module of a context's code; what is inlined is in that of the code around it.
    fn module(&self, at: usize) -> Option<Name> {
        self.outwards(at).find_map(|at| self.contexts[at].scope.module)
    }
}

/// The ranks that have a cost or of which it is known that they ran, ascending.
fn ranks_of(profile: &Profile) -> Vec<u32> {
    let in_tree =
        profile.tree.nodes().map(|node| profile.tree.scope(node)).filter(|scope| scope.kind == ScopeKind::Rank);
    let known = profile.info.jobs.iter().flat_map(|job| &job.ranks).map(|rank| rank.rank);
    let mut ranks: Vec<u32> = in_tree.map(|scope| scope.discriminator as u32).chain(known).collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}

/// Adds up costs by rank.
fn add(costs: &mut RankCosts, more: &RankCosts) {
    let mut sum: RankCosts = Vec::with_capacity(costs.len() + more.len());
    let (mut mine, mut theirs) = (costs.iter().copied().peekable(), more.iter().copied().peekable());
    while let (Some(a), Some(b)) = (mine.peek().copied(), theirs.peek().copied()) {
        match a.0.cmp(&b.0) {
            std::cmp::Ordering::Less => sum.extend(mine.next()),
            std::cmp::Ordering::Greater => sum.extend(theirs.next()),
            std::cmp::Ordering::Equal => {
                sum.push((a.0, a.1.saturating_add(b.1)));
                mine.next();
                theirs.next();
            }
        }
    }
    sum.extend(mine.chain(theirs));
    *costs = sum;
}

/// The contexts of a view with ranks on its first level, those of all ranks as one tree.
fn contexts(view: &View, metric: usize, ranks: &[u32]) -> Vec<RankRow> {
    let mut tree = Tree::new(&[]);
    let mut rows = vec![RankRow::new(*tree.scope(NodeId::ROOT), None)];
    // By node of the view its context, and its rank's place.
    let mut places: Vec<(NodeId, Option<u32>)> = Vec::with_capacity(view.nodes.len());
    for (at, node) in view.nodes.iter().enumerate() {
        let (above, rank) = node.parent.map_or((NodeId::ROOT, None), |parent| places[parent]);
        let (here, rank) = match node.scope.kind {
            ScopeKind::Root => (NodeId::ROOT, None),
            ScopeKind::Rank => {
                let place = ranks.binary_search(&(node.scope.discriminator as u32)).ok();
                (NodeId::ROOT, place.map(|place| place as u32))
            }
            _ => (tree.child(above, node.scope), rank),
        };
        if here.index() == rows.len() {
            rows.push(RankRow::new(node.scope, Some(above.index())));
        }
        places.push((here, rank));
        // What is outside of all ranks is no rank's.
        let Some(rank) = rank else { continue };
        let row = &mut rows[here.index()];
        let (inclusive, own) = (view.inclusive(at).get(metric), view.self_cost(at).get(metric));
        row.inclusive.extend((inclusive != 0).then_some((rank, inclusive)));
        row.self_cost.extend((own != 0).then_some((rank, own)));
    }
    for (at, row) in rows.iter_mut().enumerate() {
        row.scope = *tree.scope(NodeId::at(at));
        row.inclusive.sort_unstable();
        row.self_cost.sort_unstable();
    }
    rows
}

/// The procedures of contexts; each cost counts once, however often the procedure is on the path.
fn procedures(contexts: &[RankRow]) -> Vec<RankRow> {
    type Key = (Name, Option<Name>, Option<Name>, u64, Option<u64>);
    let mut found: Vec<RankRow> = Vec::new();
    let mut index: FxHashMap<Key, usize> = FxHashMap::default();
    // By context, the procedure that it is.
    let mut which: Vec<Option<usize>> = Vec::with_capacity(contexts.len());
    for row in contexts {
        let scope = Scope { call_site: None, ..row.scope };
        if !scope.kind.is_frame() {
            which.push(None);
            continue;
        }
        let unnamed = if scope.name == Name::EMPTY { scope.address } else { None };
        let key = (scope.name, scope.module, scope.file, scope.discriminator, unnamed);
        let here = *index.entry(key).or_insert_with(|| {
            found.push(RankRow::new(scope, None));
            found.len() - 1
        });
        which.push(Some(here));
        add(&mut found[here].self_cost, &row.self_cost);
        let mut above = std::iter::successors(row.parent, |&at| contexts[at].parent);
        if !above.any(|at| which[at] == Some(here)) {
            add(&mut found[here].inclusive, &row.inclusive);
        }
    }
    found
}
