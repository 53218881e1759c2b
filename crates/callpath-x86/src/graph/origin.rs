//! Where the target of an indirect jump comes from: its formula, followed backwards along every way to the jump.
//! Knows nothing of what lies in tables.
//!
//! The target is `outer`, or `outer + load(address)`, both sums of registers and memory words with factors. An
//! instruction that defines one of them is put in its place, as Cifuentes and Van Emmerik 1999 do in a slice; here
//! several ways to the jump are kept apart, so that `base` and `table` of one way never meet those of another. A word
//! with a factor above one is the index: what compares it on the way bounds the table.

mod formula;
mod query;
mod undo;

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpKind};
use rustc_hash::FxHashMap;

use query::Query;
pub(super) use query::{Source, Table};

/// One block on the way, with its predecessors and how control comes from them.
pub(super) trait Ways {
    /// The instructions of a block, in order.
    fn instructions(&self, block: u32) -> Vec<Instruction>;
    /// The blocks that lead to a block; where a branch does, whether it is taken.
    fn predecessors(&self, block: u32) -> &[(u32, Option<bool>)];
    /// Control comes here from nowhere that is known.
    fn is_root(&self, block: u32) -> bool;
}

/// All queries of one procedure. What was found for one jump holds for the others.
pub(super) struct Origins<'w, W: Ways> {
    ways: &'w W,
    infos: InstructionInfoFactory,
    instructions: FxHashMap<u32, Vec<Instruction>>,
    numbers: FxHashMap<(u32, Query), u32>,
    nodes: Vec<Node>,
    /// So many instructions may still be gone back over.
    budget: usize,
}

/// A query at the end of a block: what it came to, and what it turned into at the ends of the blocks before.
#[derive(Default)]
struct Node {
    sources: Vec<Source>,
    before: Vec<u32>,
}

impl<'w, W: Ways> Origins<'w, W> {
    pub(super) fn new(ways: &'w W, budget: usize) -> Origins<'w, W> {
        Origins {
            ways,
            infos: InstructionInfoFactory::new(),
            instructions: FxHashMap::default(),
            numbers: FxHashMap::default(),
            nodes: Vec::new(),
            budget,
        }
    }

    /// What the budget has left.
    pub(super) fn left(&self) -> usize {
        self.budget
    }

    /// The instruction at the end of a block.
    pub(super) fn last(&mut self, block: u32) -> Option<Instruction> {
        let ways = self.ways;
        self.instructions.entry(block).or_insert_with(|| ways.instructions(block)).last().copied()
    }

    /// Where the target of the jump at the end of `block` comes from: distinct sources.
    pub(super) fn of_jump(&mut self, block: u32) -> Vec<Source> {
        let Some(query) = self.last(block).and_then(|jump| Query::of_jump(&jump)) else { return Vec::new() };
        if let Some(source) = query.answer() {
            return vec![source];
        }
        let mut pending = Vec::new();
        let first = self.node(block, query, &mut pending);
        while let Some((node, block, query)) = pending.pop() {
            self.follow(node, block, query, &mut pending);
        }
        let mut sources = Vec::new();
        let mut seen = vec![first];
        let mut is_seen = rustc_hash::FxHashSet::from_iter([first]);
        while let Some(node) = seen.pop() {
            self.budget = self.budget.saturating_sub(1);
            let Some(node) = self.nodes.get(node as usize) else { continue };
            sources.extend(&node.sources);
            seen.extend(node.before.iter().filter(|&&before| is_seen.insert(before)));
        }
        let mut distinct = Vec::new();
        for source in sources {
            if !distinct.contains(&source) {
                distinct.push(source);
            }
        }
        distinct
    }

    /// The number of a query at the end of a block; it is to be followed if it is new.
    fn node(&mut self, block: u32, query: Query, pending: &mut Vec<(u32, u32, Query)>) -> u32 {
        let new = self.nodes.len() as u32;
        let number = *self.numbers.entry((block, query.clone())).or_insert(new);
        if number == new {
            self.nodes.push(Node::default());
            pending.push((new, block, query));
        }
        number
    }

    fn follow(&mut self, node: u32, block: u32, mut query: Query, pending: &mut Vec<(u32, u32, Query)>) {
        let ways = self.ways;
        let instructions = self.instructions.entry(block).or_insert_with(|| ways.instructions(block));
        let mut source = None;
        // The last is the jump, or the branch that was come along.
        let skipped = usize::from(instructions.last().is_some_and(|last| last.op0_kind() == OpKind::NearBranch64))
            .max(usize::from(instructions.last().is_some_and(|last| last.mnemonic() == Mnemonic::Jmp)));
        for instruction in instructions.iter().rev().skip(skipped) {
            if self.budget == 0 {
                source = Some(query.clone().give_up());
                break;
            }
            self.budget -= 1;
            source = query.step_back(instruction, &mut self.infos);
            if source.is_some() {
                break;
            }
        }
        let mut found = Node::default();
        match source {
            Some(source) => found.sources.push(source),
            None => {
                let before = ways.predecessors(block);
                if ways.is_root(block) || before.is_empty() {
                    found.sources.push(query.clone().give_up());
                }
                let has_index = query.index().is_some();
                for &(block, is_taken) in before {
                    let condition = |is_taken| Some((self.last(block)?.condition_code(), is_taken));
                    let query = query.clone().through(is_taken.filter(|_| has_index).and_then(condition));
                    found.before.push(self.node(block, query, pending));
                }
            }
        }
        if let Some(node) = self.nodes.get_mut(node as usize) {
            *node = found;
        }
    }
}
