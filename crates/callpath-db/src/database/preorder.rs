//! A tree as views show it, in a file: parts of it become trees in memory, as much as a question needs.

use std::cmp::Ordering;

use super::costs::{Costs, place};
use super::layout::{SectionKind, TreePart, ViewTree, u32_at};
use super::{Database, DatabaseError};
use crate::query::{Counted, among_equals};
use crate::{NodeId, Scope, Strings};

/// A tree of a file.
pub(crate) struct Preorder<'a> {
    database: &'a Database,
    scopes: &'a [Scope],
    len: u32,
    parents: &'a [u8],
    ends: &'a [u8],
    scope_of: &'a [u8],
    recursion: &'a [u8],
    /// By metric.
    costs: Vec<Costs<'a>>,
}

/// Which nodes' callees are wanted; loops are parts of what they are in.
pub(crate) enum Expand<'s> {
    /// Those of nodes that cost so much, by metric 0.
    From(f64),
    /// Those of the costliest child, and of its costliest.
    Costliest(&'s Strings),
}

/// A node of the file whose children are to be read.
struct Open {
    node: u32,
    end: u32,
    here: NodeId,
    /// With [`Expand::Costliest`], whether the path goes through it.
    is_on_path: bool,
}

impl<'a> Preorder<'a> {
    /// With `scopes` by their numbers. Sections are looked at as far as they are needed: parents in [`Preorder::paths`] alone.
    pub(crate) fn of(database: &'a Database, which: ViewTree, scopes: &'a [Scope]) -> Result<Self, DatabaseError> {
        let kind = |part| SectionKind::Tree(which, part);
        let ends = database.bytes_of_kind(kind(TreePart::Ends), 0)?;
        let scope_of = database.bytes_of_kind(kind(TreePart::ScopeOf), 0)?;
        let costs = database.metrics().iter().enumerate().map(|(metric, of)| {
            let bytes = |part| database.bytes_of_kind(kind(part), metric);
            let (contexts, inclusive) = (TreePart::SummaryContexts, TreePart::InclusiveContexts);
            let rule = of.rule();
            let values = if rule.is_integer_sum() { TreePart::SummarySums } else { TreePart::SummaryValues };
            let inclusive = (bytes(inclusive)?, bytes(TreePart::InclusiveValues)?);
            Ok(Costs { rule, contexts: bytes(contexts)?, values: bytes(values)?, inclusive })
        });
        let costs = costs.collect::<Result<_, DatabaseError>>()?;
        let len = u32::try_from(ends.len().min(scope_of.len()) / 4).unwrap_or(u32::MAX - 1);
        let recursion = database.bytes_of_kind(kind(TreePart::Recursion), 0)?;
        Ok(Preorder { database, scopes, len, parents: &[], ends, scope_of, recursion, costs })
    }

    /// What everything costs by metric 0.
    pub(crate) fn total(&self) -> u64 {
        self.costs.first().map_or(0, |costs| costs.with_below(0, self.len))
    }

    /// The same by each metric.
    pub(crate) fn totals(&self) -> Vec<u64> {
        self.costs.iter().map(|costs| costs.with_below(0, self.len)).collect()
    }

    /// The part of the tree that `expand` wants. What is not wanted stands in the outermost node that is not, which costs itself what it costs
    /// with all below.
    pub(crate) fn part(&self, expand: &Expand<'_>) -> Result<Counted, DatabaseError> {
        let mut to = Counted::by_rules(self.costs.iter().map(|costs| costs.rule));
        self.add_own(&mut to, NodeId::ROOT, 0);
        let mut open = vec![Open { node: 0, end: self.len, here: NodeId::ROOT, is_on_path: true }];
        // Children that are calls: from, behind the end, here, weight.
        let mut calls: Vec<(u32, u32, NodeId, u64)> = Vec::new();
        while let Some(Open { node, end, here, is_on_path }) = open.pop() {
            calls.clear();
            let mut costliest: Option<(u64, NodeId)> = None;
            let mut bodies = Vec::new();
            let mut child = node + 1;
            while child < end {
                let behind = u32_at(self.ends, child as usize).clamp(child + 1, end);
                let scope = self.scope(child)?;
                let there = to.append(here, *scope);
                to.recursion[there.index()] = self.recursion(child);
                let weight = self.costs.first().map_or(0, |costs| costs.with_below(child, behind));
                match scope.kind.is_body() {
                    true => bodies.push((child, behind, there)),
                    false => calls.push((child, behind, there, weight)),
                }
                if let Expand::Costliest(strings) = expand
                    && costliest.is_none_or(|(most, other)| {
                        let by_cost = weight.cmp(&most);
                        let among = || among_equals(to.tree.scope(other), to.tree.scope(there), strings);
                        by_cost.then_with(among) == Ordering::Greater
                    })
                {
                    costliest = Some((weight, there));
                }
                child = behind;
            }
            let is_next = |there: NodeId| is_on_path && costliest.is_some_and(|(_, node)| node == there);
            for &(child, behind, there, weight) in &calls {
                let is_wanted = match expand {
                    Expand::From(threshold) => weight as f64 >= *threshold,
                    Expand::Costliest(_) => is_next(there),
                };
                match is_wanted {
                    true => {
                        self.add_own(&mut to, there, child);
                        open.push(Open { node: child, end: behind, here: there, is_on_path: true });
                    }
                    false => {
                        for (metric, costs) in self.costs.iter().enumerate() {
                            to.tree.add_one(there, metric, costs.with_below(child, behind));
                        }
                    }
                }
            }
            for (child, behind, there) in bodies {
                self.add_own(&mut to, there, child);
                open.push(Open { node: child, end: behind, here: there, is_on_path: is_next(there) });
            }
        }
        Ok(to)
    }

    /// Adds the paths to `nodes` to a tree, and their own costs.
    pub(crate) fn add_paths(
        &mut self,
        which: ViewTree,
        nodes: impl Iterator<Item = u32>,
        to: &mut Counted,
    ) -> Result<(), DatabaseError> {
        let kind = SectionKind::Tree(which, TreePart::Parents);
        self.parents = self.database.bytes_of_kind(kind, 0)?;
        // By node its place in `to`; 0 where it has none yet, and of the root.
        let mut known = vec![0u32; self.len as usize];
        let mut way = Vec::new();
        let (mut last, mut froms) = (0, vec![0; self.costs.len()]);
        for node in nodes {
            if node < last {
                froms.fill(0);
            }
            last = node;
            let mut at = node;
            let mut here = loop {
                let parent = u32_at(self.parents, at as usize);
                match known.get(at as usize) {
                    Some(here) if at == 0 || *here != 0 => break NodeId::at(*here as usize),
                    Some(_) if parent < at => way.push(at),
                    _ => return Err(self.database.nonsense_in(kind, "parent of a row")),
                }
                at = parent;
            };
            while let Some(at) = way.pop() {
                here = to.append(here, *self.scope(at)?);
                to.recursion[here.index()] = self.recursion(at);
                known[at as usize] = here.index() as u32;
            }
            for ((metric, costs), from) in self.costs.iter().enumerate().zip(&mut froms) {
                to.tree.add_one(here, metric, costs.next_own(node, from));
            }
        }
        Ok(())
    }

    fn scope(&self, node: u32) -> Result<&'a Scope, DatabaseError> {
        let scope = self.scopes.get(u32_at(self.scope_of, node as usize) as usize);
        scope.ok_or_else(|| self.database.nonsense_in(SectionKind::ViewScopes, "scope of a row"))
    }

    fn recursion(&self, node: u32) -> u32 {
        let (nodes, times) = self.recursion.split_at(self.recursion.len() / 8 * 4);
        let place = place(nodes, node);
        match place * 4 < nodes.len() && u32_at(nodes, place) == node {
            true => u32_at(times, place).max(1),
            false => 1,
        }
    }

    fn add_own(&self, to: &mut Counted, here: NodeId, node: u32) {
        for (metric, costs) in self.costs.iter().enumerate() {
            to.tree.add_one(here, metric, costs.own(node));
        }
    }
}
