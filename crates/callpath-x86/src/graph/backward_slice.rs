//! Backward slices of indirect jumps: the linear expression of a target, followed back along every path to the jump.
//!
//! The target is `outer`, or `outer + load(address)`, both sums of registers and memory words with factors. An
//! instruction that defines one of these is substituted for it, as Cifuentes and Van Emmerik 1999 do in a slice. Here
//! paths are kept apart, so that `base` and `table` of different paths never mix. A word with a factor above one is the
//! index: a comparison of it on the path bounds the table.
//!
//! The work grows with the procedure's length, not with its square: once the index is resolved, all jumps whose tables'
//! addresses come from one register share the rest of the path. A budget bounds the total.

mod back_substitution;
mod linear_expression;
mod query;

use std::ops::Range;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use query::{Known, Limit, Query};
pub(super) use query::{Source, Table};

use crate::graph::stack_heights::BlockCode;
use crate::instruction::{Control, Instruction};

/// The blocks of a procedure and the ways between them.
pub(super) trait Ways: BlockCode {
    /// The predecessors of a block; for those that end with a branch, whether it is taken.
    fn predecessors(&self, block: u32) -> &[(u32, Option<bool>)];
    /// Whether control comes here from an unknown origin.
    fn is_root(&self, block: u32) -> bool;
}

/// One jump may use this fraction of the remaining budget, and at least `LEAST_SHARE` if that much is left: no jump
/// uses up what others need.
const SHARE_OF_JUMP: usize = 4;
const LEAST_SHARE: usize = 10_000;
/// At how many ends of blocks one jump's index bound is searched for. Beyond them the index counts as unbounded: the
/// rest of the query is then mostly shared with other jumps.
const MAX_OPEN: usize = 1000;

/// All queries of one procedure. Results for one jump are reused for the others.
pub(super) struct BackwardSlices<'w, W: Ways> {
    ways: &'w W,
    instructions: FxHashMap<u32, Vec<(u64, Instruction)>>,
    /// Distinct queries, which are few, by number.
    queries: Vec<Query>,
    query_numbers: FxHashMap<Query, u32>,
    /// By block and query.
    numbers: FxHashMap<(u32, u32), u32>,
    nodes: Vec<Node>,
    edges: Vec<Edge>,
    /// Results of nodes that jumps share.
    behind: FxHashMap<Vec<u32>, Rc<[Source]>>,
    /// By node: the last search that reached it.
    seen: Vec<u32>,
    searches: u32,
    /// How many more instructions, and ways between blocks, may be traced back.
    budget: usize,
}

/// A query at the end of a block: its result, and the queries at the ends of the preceding blocks.
#[derive(Clone, Default)]
struct Node {
    source: Option<Source>,
    /// A range in [`BackwardSlices::edges`].
    before: Range<u32>,
}

/// The query at a preceding block.
struct Edge {
    node: u32,
    /// What is known of the table from here backwards. It is not part of the node's query, so jumps through different
    /// tables share the node: most of the path leads to where a register got the address.
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

    /// The remaining budget.
    pub(super) fn left(&self) -> usize {
        self.budget
    }

    /// The instruction at the end of a block, and the address of its end.
    pub(super) fn last(&mut self, block: u32) -> Option<(u64, Instruction)> {
        let ways = self.ways;
        self.instructions.entry(block).or_insert_with(|| ways.instructions(block)).last().copied()
    }

    /// The distinct sources of the target of the jump at the end of `block`.
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

    /// Collects the distinct sources of all queries that those of `pending` turned into. Queries without what is known
    /// of a table are added to `tables` instead, by what is known.
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

    /// The distinct sources of all queries that those of `nodes` turned into; they have been followed.
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

    /// The number of a query, which is added if it is new.
    fn query(&mut self, query: Query) -> u32 {
        let new = self.queries.len() as u32;
        let queries = &mut self.queries;
        *self.query_numbers.entry(query).or_insert_with_key(|query| {
            queries.push(query.clone());
            new
        })
    }

    /// The number of a query at the end of a block; if it is new, it is added to `pending`.
    fn node(&mut self, block: u32, query: u32, pending: &mut Vec<Pending>) -> u32 {
        let new = self.nodes.len() as u32;
        let node = *self.numbers.entry((block, query)).or_insert(new);
        if node == new {
            self.nodes.push(Node::default());
            pending.push(Pending { node, block, query });
        }
        node
    }

    /// Traces a query back over a block. `open` counts the blocks where an index's bound was searched for.
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
        // The last instruction is the jump, or the branch that control came along.
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
