//! Backward slices of indirect jumps: the linear expression of a target, followed back along every way to the jump.
//!
//! The target is `outer`, or `outer + load(address)`, both sums of registers and memory words with factors. An
//! instruction that defines one of them is put in its place, as Cifuentes and Van Emmerik 1999 do in a slice; here
//! several ways to the jump are kept apart, so that `base` and `table` of one way never meet those of another. A word
//! with a factor above one is the index: what compares it on the way bounds the table.
//!
//! What is gone back over grows with the procedure's length, not with its square: once the index is done with, all jumps
//! whose tables' addresses come from one register have the rest of the way in common, and a budget bounds all of it.

mod back_substitution;
mod linear_expression;
mod query;

use std::ops::Range;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use query::{Known, Limit, Query};
pub(super) use query::{Source, Table};

use crate::instruction::{Control, Instruction};

/// One block on the way, with its predecessors and how control comes from them.
pub(super) trait Ways {
    /// The instructions of a block, in order, with the addresses where they end.
    fn instructions(&self, block: u32) -> Vec<(u64, Instruction)>;
    /// The blocks that lead to a block; where a branch does, whether it is taken.
    fn predecessors(&self, block: u32) -> &[(u32, Option<bool>)];
    /// Control comes here from nowhere that is known.
    fn is_root(&self, block: u32) -> bool;
}

/// One jump may take this part of what the budget has left, and so much if there is: none uses up what others need.
const SHARE_OF_JUMP: usize = 4;
const LEAST_SHARE: usize = 10_000;
/// At so many ends of blocks at most the bound of one jump's index is looked for. Before them it is taken for unbounded: what is
/// left of the query then is most often that of other jumps, too.
const MAX_OPEN: usize = 1000;

/// All queries of one procedure. What was found for one jump holds for the others.
pub(super) struct BackwardSlices<'w, W: Ways> {
    ways: &'w W,
    instructions: FxHashMap<u32, Vec<(u64, Instruction)>>,
    /// Distinct queries, which are few, by their numbers.
    queries: Vec<Query>,
    query_numbers: FxHashMap<Query, u32>,
    /// By block and query.
    numbers: FxHashMap<(u32, u32), u32>,
    nodes: Vec<Node>,
    edges: Vec<Edge>,
    /// What nodes came to that jumps have in common.
    behind: FxHashMap<Vec<u32>, Rc<[Source]>>,
    /// The last search that came to a node.
    seen: Vec<u32>,
    searches: u32,
    /// So many instructions, and ways between blocks, may still be gone back over.
    budget: usize,
}

/// A query at the end of a block: what it came to, and what it turned into at the ends of the blocks before.
#[derive(Clone, Default)]
struct Node {
    source: Option<Source>,
    /// In [`BackwardSlices::edges`].
    before: Range<u32>,
}

/// To what a query turned into.
struct Edge {
    node: u32,
    /// What is known of the table from here on back. The node's query does without, so that jumps through different tables have it
    /// in common: most of the way goes to where a register got the address.
    known: Option<Known>,
}

/// A node to be followed.
struct Pending {
    node: u32,
    block: u32,
    query: u32,
}

impl<'w, W: Ways> BackwardSlices<'w, W> {
    pub(super) fn new(ways: &'w W, budget: usize) -> BackwardSlices<'w, W> {
        BackwardSlices {
            ways,
            instructions: FxHashMap::default(),
            queries: Vec::new(),
            query_numbers: FxHashMap::default(),
            numbers: FxHashMap::default(),
            nodes: Vec::new(),
            edges: Vec::new(),
            behind: FxHashMap::default(),
            seen: Vec::new(),
            searches: 0,
            budget,
        }
    }

    /// What the budget has left.
    pub(super) fn left(&self) -> usize {
        self.budget
    }

    /// The instruction at the end of a block, and the address where it ends.
    pub(super) fn last(&mut self, block: u32) -> Option<(u64, Instruction)> {
        let ways = self.ways;
        self.instructions.entry(block).or_insert_with(|| ways.instructions(block)).last().copied()
    }

    /// Where the target of the jump at the end of `block` comes from: distinct sources.
    pub(super) fn of_jump(&mut self, block: u32) -> Vec<Source> {
        let Some(query) = self.last(block).and_then(|(next, jump)| Query::of_jump(&jump, next)) else {
            return Vec::new();
        };
        if let Some(source) = query.answer() {
            return vec![source];
        }
        let share = (self.budget / SHARE_OF_JUMP).max(LEAST_SHARE).min(self.budget);
        let left_for_others = self.budget - share;
        self.budget = share;
        let mut pending = Vec::new();
        let mut open = 0;
        let query = self.query(query);
        let first = self.node(block, query, &mut pending);
        while let Some(next) = pending.pop() {
            self.follow(&next, &mut open, &mut pending);
        }
        let mut sources = Vec::new();
        let mut tables = Vec::new();
        self.collect(vec![first], &mut sources, &mut tables);
        for (known, nodes) in tables {
            for source in self.behind(nodes).iter().map(|&source| known.of(source)) {
                if !sources.contains(&source) {
                    sources.push(source);
                }
            }
        }
        self.budget += left_for_others;
        sources
    }

    /// The distinct sources of all queries that some turned into. Those that do without what is known of a table are put to
    /// `tables` instead, by what is known.
    fn collect(&mut self, mut pending: Vec<u32>, sources: &mut Vec<Source>, tables: &mut Vec<(Known, Vec<u32>)>) {
        self.searches += 1;
        self.seen.resize(self.nodes.len(), 0);
        while let Some(number) = pending.pop() {
            let Some(seen) = self.seen.get_mut(number as usize) else { continue };
            if std::mem::replace(seen, self.searches) == self.searches {
                continue;
            }
            self.budget = self.budget.saturating_sub(1);
            let Some(node) = self.nodes.get(number as usize) else { continue };
            if let Some(source) = node.source.filter(|source| !sources.contains(source)) {
                sources.push(source);
            }
            for edge in self.edges.get(node.before.start as usize..node.before.end as usize).unwrap_or(&[]) {
                match edge.known {
                    None => pending.push(edge.node),
                    Some(known) => match tables.iter_mut().find(|table| table.0 == known) {
                        Some(table) => table.1.push(edge.node),
                        None => tables.push((known, vec![edge.node])),
                    },
                }
            }
        }
    }

    /// The distinct sources of all queries that some turned into, which have been followed.
    fn behind(&mut self, nodes: Vec<u32>) -> Rc<[Source]> {
        if let Some(known) = self.behind.get(&nodes) {
            return Rc::clone(known);
        }
        let mut sources = Vec::new();
        self.collect(nodes.clone(), &mut sources, &mut Vec::new());
        let sources: Rc<[Source]> = sources.into();
        self.behind.insert(nodes, Rc::clone(&sources));
        sources
    }

    /// The number of a query.
    fn query(&mut self, query: Query) -> u32 {
        let new = self.queries.len() as u32;
        let queries = &mut self.queries;
        *self.query_numbers.entry(query).or_insert_with_key(|query| {
            queries.push(query.clone());
            new
        })
    }

    /// The number of a query at the end of a block; it is to be followed if it is new.
    fn node(&mut self, block: u32, query: u32, pending: &mut Vec<Pending>) -> u32 {
        let new = self.nodes.len() as u32;
        let node = *self.numbers.entry((block, query)).or_insert(new);
        if node == new {
            self.nodes.push(Node::default());
            pending.push(Pending { node, block, query });
        }
        node
    }

    /// Goes back over a block. `open` counts where the bound of an index was looked for.
    fn follow(&mut self, next: &Pending, open: &mut usize, pending: &mut Vec<Pending>) {
        let ways = self.ways;
        let Some(mut query) = self.queries.get(next.query as usize).cloned() else { return };
        let is_known = query.is_closed();
        let mut source = None;
        if query.index().is_some() && !is_known {
            *open += 1;
            if *open > MAX_OPEN && !query.close(None, false) {
                source = Some(Source::Unknown);
            }
        }
        let instructions = self.instructions.entry(next.block).or_insert_with(|| ways.instructions(next.block));
        // The last is the jump, or the branch that was come along.
        let is_way =
            |control| matches!(control, Control::Branch | Control::Jump | Control::JumpIndirect | Control::Call);
        let skipped = usize::from(instructions.last().is_some_and(|(_, last)| is_way(last.control())));
        for (end, instruction) in instructions.iter().rev().skip(skipped) {
            if source.is_some() {
                break;
            }
            source = match self.budget.checked_sub(1) {
                Some(left) => {
                    self.budget = left;
                    query.step_back(instruction, *end)
                }
                None => Some(query.clone().give_up()),
            };
        }
        let first = self.edges.len() as u32;
        if source.is_none() {
            let before = ways.predecessors(next.block);
            self.budget = self.budget.saturating_sub(before.len());
            if ways.is_root(next.block) || before.is_empty() || self.budget == 0 {
                source = Some(query.clone().give_up());
            }
            let before = if self.budget == 0 { &[] } else { before };
            let known = if is_known { None } else { query.forget() };
            let has_index = query.index().is_some();
            for &(block, is_taken) in before {
                let limit = |is_taken| Limit::of(self.last(block)?.1.condition()?, is_taken);
                let query = query.clone().through(is_taken.filter(|_| has_index).and_then(limit));
                let query = self.query(query);
                let node = self.node(block, query, pending);
                self.edges.push(Edge { node, known });
            }
        }
        if let Some(node) = self.nodes.get_mut(next.node as usize) {
            *node = Node { source, before: first..self.edges.len() as u32 };
        }
    }
}
