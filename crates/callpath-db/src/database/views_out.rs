//! Writing what a view of the whole needs, so that it can be shown without loading the tree.

use std::io::{self, Write};

use callpath_schema::{Metric, MetricType};
use rustc_hash::FxHashMap;

use super::layout::{SectionKind, TablePart, TreePart, ViewTable, ViewTree};
use super::scope_record;
use super::sections_out::{SectionsOut, SummaryKinds};
use super::union::Order;
use crate::query::whole::{self, Shown, Table};
use crate::rows::Rows;
use crate::{Inlined, NodeId, Profile, Scope, Tree};

/// The contexts that views are of.
pub(crate) struct Whole<'a> {
    pub(crate) order: &'a Order,
    /// By place in the order.
    pub(crate) scope_of: &'a [u32],
    pub(crate) scopes: &'a [Scope],
    /// What each context costs itself, over all profiles.
    pub(crate) sums: Rows,
    pub(crate) metrics: &'a [Metric],
}

/// Sections that stand for sections of contexts where nothing is folded.
const SAME: [(SectionKind, TreePart); 8] = [
    (SectionKind::Parents, TreePart::Parents),
    (SectionKind::Ends, TreePart::Ends),
    (SectionKind::ScopeOf, TreePart::ScopeOf),
    (SectionKind::SummaryContexts, TreePart::SummaryContexts),
    (SectionKind::SummarySums, TreePart::SummarySums),
    (SectionKind::SummaryValues, TreePart::SummaryValues),
    (SectionKind::InclusiveContexts, TreePart::InclusiveContexts),
    (SectionKind::InclusiveValues, TreePart::InclusiveValues),
];

/// Whether sums over ranges are what adding up gives: real numbers are rounded, and integers stop at the greatest.
fn are_exact(metrics: &[Metric], sums: &Rows) -> bool {
    metrics.iter().enumerate().all(|(metric, of)| match (of.rule().is_integer_sum(), of.value) {
        (true, value_type) => {
            let size = |value: u64| match value_type {
                MetricType::Signed => (value as i64).unsigned_abs(),
                _ => value,
            };
            let sum = sums.column(metric).iter().try_fold(0u64, |sum, (_, value)| sum.checked_add(size(*value)));
            sum.is_some_and(|sum| sum <= i64::MAX as u64)
        }
        (false, MetricType::Real) => sums.column(metric).is_empty(),
        (false, _) => true,
    })
}

/// Adds the sections of views, unless what they say would not be exact.
pub(crate) fn add<W: Write>(out: &mut SectionsOut<'_, W>, whole: Whole<'_>) -> io::Result<()> {
    let Whole { order, scope_of, scopes, sums, metrics } = whole;
    if !are_exact(metrics, &sums) {
        return Ok(());
    }
    let mut tree = Tree::with_rules(metrics.iter().map(Metric::rule));
    for (parent, scope) in order.parents.iter().zip(scope_of).skip(1) {
        tree.append(NodeId::at(*parent as usize), scopes[*scope as usize]);
    }
    let mut profile = Profile::new(metrics.to_vec());
    profile.tree = tree.with_costs(sums);
    let mut views =
        ViewsOut { out, metrics, numbers: FxHashMap::default(), first_number: scopes.len(), scopes: Vec::new() };
    for (number, scope) in scopes.iter().enumerate() {
        views.numbers.insert(*scope, number as u32);
    }
    match whole::folded(&profile) {
        Some(folded) => {
            profile.tree = Tree::new(&[]);
            views.tree(ViewTree::Folded, &folded)?;
            profile.tree = folded.tree;
        }
        None => {
            SAME.into_iter().for_each(|(of, part)| views.out.share(of, SectionKind::Tree(ViewTree::Folded, part)));
            views.first_level(ViewTree::Folded, &profile.tree, None)?;
        }
    }
    views.table(ViewTable::Code, whole::code(&profile.tree))?;
    views.table(ViewTable::Procedures, whole::procedures(&profile.tree, Inlined::InTheirProcedures))?;
    views.table(ViewTable::WithInlined, whole::procedures(&profile.tree, Inlined::Apart))?;
    match whole::collapsed(&profile) {
        Some(collapsed) => {
            profile.tree = Tree::new(&[]);
            views.tree(ViewTree::Collapsed, &collapsed)?;
        }
        None => views.collapsed_is_folded(),
    }
    let ViewsOut { out, scopes, .. } = views;
    out.add(SectionKind::ViewScopes, 0, scopes.iter().map(|scope| scope_record::bytes(scope).to_vec()))
}

struct ViewsOut<'o, 'w, 'm, W: Write> {
    out: &'o mut SectionsOut<'w, W>,
    metrics: &'m [Metric],
    /// By scope, its number.
    numbers: FxHashMap<Scope, u32>,
    /// Of the first of `scopes`.
    first_number: usize,
    scopes: Vec<Scope>,
}

impl<W: Write> ViewsOut<'_, '_, '_, W> {
    fn number(&mut self, scope: Scope) -> u32 {
        let next = (self.first_number + self.scopes.len()) as u32;
        let number = *self.numbers.entry(scope).or_insert(next);
        if number == next {
            self.scopes.push(scope);
        }
        number
    }

    fn tree(&mut self, which: ViewTree, shown: &Shown) -> io::Result<()> {
        let tree = &shown.tree;
        let kind = |part| SectionKind::Tree(which, part);
        let mut places = vec![0u32; tree.len()];
        let mut nodes = Vec::with_capacity(tree.len());
        let mut ends = vec![0u32; tree.len()];
        tree.walk(|node, entering| match entering {
            true => {
                places[node.index()] = nodes.len() as u32;
                nodes.push(node);
            }
            false => ends[places[node.index()] as usize] = nodes.len() as u32,
        });
        let parent = |node: &NodeId| tree.parent(*node).map_or(0, |parent| places[parent.index()]);
        let parents: Vec<u32> = nodes.iter().map(parent).collect();
        self.out.add_u32(kind(TreePart::Parents), 0, parents.iter().copied())?;
        self.out.add_u32(kind(TreePart::Ends), 0, ends.into_iter())?;
        let scope_of: Vec<u32> = nodes.iter().map(|node| self.number(*tree.scope(*node))).collect();
        self.out.add_u32(kind(TreePart::ScopeOf), 0, scope_of.into_iter())?;
        let recursive = |(place, node): (usize, &NodeId)| (place as u32, shown.recursion[node.index()]);
        let recursive: Vec<(u32, u32)> =
            nodes.iter().enumerate().map(recursive).filter(|(_, times)| *times > 1).collect();
        let (at, times) = (recursive.iter().map(|of| of.0), recursive.iter().map(|of| of.1));
        self.out.add_u32(kind(TreePart::Recursion), 0, at.chain(times))?;
        drop(nodes);
        for (metric, of) in self.metrics.iter().enumerate() {
            let mut own = tree.own().column(metric);
            own.iter_mut().for_each(|(node, _)| *node = places[*node as usize]);
            own.sort_unstable();
            let kinds = SummaryKinds {
                contexts: kind(TreePart::SummaryContexts),
                sums: kind(TreePart::SummarySums),
                values: kind(TreePart::SummaryValues),
                inclusive_contexts: kind(TreePart::InclusiveContexts),
                inclusive_values: kind(TreePart::InclusiveValues),
            };
            self.out.add_summary(kinds, (metric, of.rule()), (&own, &parents))?;
        }
        self.first_level(which, tree, Some(&places))
    }

    /// `places`: of nodes, where these are not their numbers.
    fn first_level(&mut self, which: ViewTree, tree: &Tree, places: Option<&[u32]>) -> io::Result<()> {
        let whole::FirstLevel { scopes, totals, mut origins } = whole::first_level(tree);
        if let Some(places) = places {
            origins.iter_mut().for_each(|(_, node)| *node = places[*node as usize]);
        }
        origins.sort_unstable();
        let start = |row: usize| origins.partition_point(|(of, _)| (*of as usize) < row) as u32;
        let starts: Vec<u32> = (0..=scopes.len()).map(start).collect();
        let kind = |part| SectionKind::Tree(which, part);
        self.out.add_u32(kind(TreePart::Origins), 0, origins.iter().map(|(_, node)| *node))?;
        self.out.add_u32(kind(TreePart::OriginStarts), 0, starts.into_iter())?;
        let table = match which {
            ViewTree::Folded => ViewTable::Folded,
            ViewTree::Collapsed => ViewTable::Collapsed,
        };
        let inclusive = totals.zeros_like(0);
        self.table(table, Table { scopes, parents: Vec::new(), own: totals, inclusive })
    }

    fn table(&mut self, which: ViewTable, table: Table) -> io::Result<()> {
        let Table { scopes, parents, own, inclusive } = table;
        let kind = |part| SectionKind::Table(which, part);
        let scope_of: Vec<u32> = scopes.into_iter().map(|scope| self.number(scope)).collect();
        self.out.add_u32(kind(TablePart::ScopeOf), 0, scope_of.into_iter())?;
        if !parents.is_empty() {
            self.out.add_u32(kind(TablePart::Parents), 0, parents.into_iter())?;
        }
        for metric in 0..self.metrics.len() {
            for (part, rows) in [(TablePart::Own, &own), (TablePart::Inclusive, &inclusive)] {
                let cells = rows.column(metric);
                if !cells.is_empty() {
                    self.out.add_cells(kind(part), metric, &cells)?;
                }
            }
        }
        Ok(())
    }

    /// Without recursion, both are one.
    fn collapsed_is_folded(&mut self) {
        let trees = SAME.map(|(_, part)| part).into_iter();
        for part in trees.chain([TreePart::Recursion, TreePart::Origins, TreePart::OriginStarts]) {
            self.out.share(SectionKind::Tree(ViewTree::Folded, part), SectionKind::Tree(ViewTree::Collapsed, part));
        }
        for part in [TablePart::ScopeOf, TablePart::Own] {
            let kind = |of| SectionKind::Table(of, part);
            self.out.share(kind(ViewTable::Folded), kind(ViewTable::Collapsed));
        }
    }
}
