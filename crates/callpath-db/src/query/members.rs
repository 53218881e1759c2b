//! What each process and thread costs, of those that a query selects.

use rustc_hash::FxHashMap;

use super::question::{Query, QueryError};
use super::reshape::{met, of_paths};
use super::select::{Selected, inside, select};
use crate::rows::Moves;
use crate::{Name, NodeId, Profile, ScopeKind};

/// One process of those selected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessCost {
    /// The program's name; empty for threads outside of all processes.
    pub name: Name,
    /// The number of its run.
    pub run: u32,
    /// Its rank, if it is of one.
    pub rank: Option<u32>,
    /// The process id; 0 for threads outside of all processes.
    pub id: u64,
    /// What is selected of it, one value per metric; metrics that are computed of others are not.
    pub cost: Vec<u64>,
    /// Its threads, in descending order of metric 0.
    pub threads: Vec<ThreadCost>,
}

/// One thread of those selected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadCost {
    /// Its name.
    pub name: Name,
    /// The thread id.
    pub id: u64,
    /// What is selected of it, one value per metric; metrics that are computed of others are not.
    pub cost: Vec<u64>,
}

impl Profile {
    /// The processes and threads that `query` selects, also by the procedures on their paths, in descending order of
    /// metric 0.
    pub fn processes(&self, query: &Query) -> Result<Vec<ProcessCost>, QueryError> {
        let tree = &self.tree;
        let inside = inside(&self.strings, tree, query)?;
        let by_path = !query.focus.is_empty() || !query.ignore.is_empty() || query.procedure.is_some();
        // A worker's region is on the paths through its caller.
        let met = if by_path { met(self, query)? } else { None };
        let chosen = match &met {
            Some(met) => select(self, &met.tree, &of_paths(query))?,
            None => select(self, tree, query)?,
        };
        let place = |node: NodeId| met.as_ref().map_or(node, |met| met.places[node.index()]);
        // By process and thread a row of costs.
        let mut rows: Vec<(NodeId, NodeId)> = Vec::new();
        let mut index: FxHashMap<(NodeId, NodeId), usize> = FxHashMap::default();
        let mut moves = Moves::new();
        let mut members: Vec<(NodeId, NodeId)> = Vec::with_capacity(tree.len());
        for node in tree.nodes() {
            let (process, thread) = tree.parent(node).map_or((node, node), |parent| members[parent.index()]);
            let of = match tree.scope(node).kind {
                ScopeKind::Process => (node, NodeId::ROOT),
                ScopeKind::Thread => (process, node),
                _ => (process, thread),
            };
            members.push(of);
            let is_selected = inside[node.index()] && chosen.selected[place(node).index()] == Selected::Whole;
            let has_cost = is_selected && !tree.values(node).is_zero();
            // Those without any cost are there unless it is about paths.
            let is_one = matches!(tree.scope(node).kind, ScopeKind::Process | ScopeKind::Thread);
            let is_way = chosen.selected[place(node).index()] != Selected::No;
            if !has_cost && (by_path || !is_one || !is_way) {
                continue;
            }
            let row = *index.entry(of).or_insert_with(|| {
                rows.push(of);
                rows.len() - 1
            });
            if has_cost {
                moves.push((node.index() as u32, row as u32));
            }
        }
        let mut costs = tree.own().zeros_like(rows.len());
        costs.take(tree.own(), &moves);
        // Of each process its own row, which is that of no thread, and those of its threads.
        let rules: Vec<_> = costs.rules().collect();
        let mut found: Vec<ProcessCost> = Vec::new();
        let mut numbers: FxHashMap<NodeId, usize> = FxHashMap::default();
        for (row, (process, thread)) in rows.into_iter().enumerate() {
            let number = *numbers.entry(process).or_insert_with(|| {
                let scope = tree.scope(process);
                let cost = vec![0; rules.len()];
                let (name, run, id) = (scope.name, scope.run(), scope.unit_id());
                let above = tree.parent(process).map(|above| tree.scope(above));
                let rank = above.filter(|above| above.kind == ScopeKind::Rank).map(|rank| rank.discriminator as u32);
                found.push(ProcessCost { name, run, rank, id, cost, threads: Vec::new() });
                found.len() - 1
            });
            let cost = costs.row(row).to_vec();
            let of = &mut found[number];
            for ((sum, value), rule) in of.cost.iter_mut().zip(&cost).zip(&rules) {
                *sum = rule.combine(*sum, *value);
            }
            if thread != NodeId::ROOT {
                let scope = tree.scope(thread);
                of.threads.push(ThreadCost { name: scope.name, id: scope.unit_id(), cost });
            }
        }
        let first = |cost: &[u64]| cost.first().copied().unwrap_or(0);
        for process in &mut found {
            process.threads.sort_by(|a, b| first(&b.cost).cmp(&first(&a.cost)).then(a.id.cmp(&b.id)));
        }
        found.sort_by(|a, b| {
            first(&b.cost).cmp(&first(&a.cost)).then((a.run, a.rank, a.id).cmp(&(b.run, b.rank, b.id)))
        });
        Ok(found)
    }
}
