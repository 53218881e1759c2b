//! The control flow graph of a procedure in which some jumps are not resolved yet.

use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::dataflow::FlowGraph;
use crate::decode::Instructions;
use crate::graph::EdgeKind;
use crate::graph::backward_slice::Ways;
use crate::graph::procedure::{Procedure, RawBlock};
use crate::graph::resolution::Resolution;
use crate::graph::stack_heights::BlockCode;
use crate::instruction::Instruction;

/// The blocks of a procedure, with the ways between them. After the blocks come nodes for the tables of jumps: n copies
/// of a jump with n targets need only 2 * n ways.
pub(super) struct PartialGraph<'b, 'p, 'm, 'a> {
    procedure: &'p Procedure<'m, 'a>,
    blocks: &'b [RawBlock],
    /// For each node its successors.
    successors: Lists<u32>,
    /// For each node its predecessors; for those that end with a branch, whether it is taken.
    predecessors: Lists<(u32, Option<bool>)>,
    /// The block at the entry.
    roots: Vec<u32>,
}

/// A list for each number below a limit.
struct Lists<T> {
    offsets: Vec<u32>,
    items: Vec<T>,
}

impl<T> Lists<T> {
    /// `edges` must be sorted by `number`.
    fn new<E: Copy>(len: usize, edges: &[E], number: impl Fn(E) -> u32, item: impl Fn(E) -> T) -> Lists<T> {
        let mut offsets = vec![0; len + 1];
        for &edge in edges {
            offsets[number(edge) as usize + 1] += 1;
        }
        for at in 1..offsets.len() {
            offsets[at] += offsets[at - 1];
        }
        Lists { offsets, items: edges.iter().map(|&edge| item(edge)).collect() }
    }

    fn of(&self, number: u32) -> &[T] {
        let at = |index: usize| self.offsets.get(index).copied().unwrap_or(0) as usize;
        self.items.get(at(number as usize)..at(number as usize + 1)).unwrap_or(&[])
    }
}

impl<'b, 'p, 'm, 'a> PartialGraph<'b, 'p, 'm, 'a> {
    pub(super) fn new(procedure: &'p Procedure<'m, 'a>, blocks: &'b [RawBlock]) -> Self {
        // `(from, to, whether a branch is taken)`
        let mut edges: Vec<(u32, u32, Option<bool>)> = Vec::with_capacity(blocks.len() * 2);
        let mut targets = Vec::new();
        let mut tables: FxHashMap<*const Resolution, u32> = FxHashMap::default();
        let index = |at: u32| blocks.binary_search_by_key(&at, |block| block.start).ok().map(|index| index as u32);
        for (number, block) in (0u32..).zip(blocks) {
            if let Some((_, resolution)) = procedure.table_of(block) {
                let next = (blocks.len() + tables.len()) as u32;
                let table = *tables.entry(Rc::as_ptr(resolution)).or_insert(next);
                edges.push((number, table, None));
                let cases = if table == next { resolution.table().0 } else { &[] };
                edges.extend(cases.iter().filter_map(|&case| index(case)).map(|case| (table, case, None)));
                continue;
            }
            procedure.ending(block, &mut targets);
            procedure.landings(block, &mut targets);
            for &(target, kind) in &targets {
                let is_taken = match kind {
                    EdgeKind::Taken => Some(true),
                    EdgeKind::NotTaken => Some(false),
                    _ => None,
                };
                edges.extend(index(target).map(|to| (number, to, is_taken)));
            }
        }
        let len = blocks.len() + tables.len();
        edges.sort_by_key(|edge| edge.0);
        let successors = Lists::new(len, &edges, |edge| edge.0, |edge| edge.1);
        edges.sort_unstable_by_key(|edge| (edge.1, edge.0, edge.2));
        let predecessors = Lists::new(len, &edges, |edge| edge.1, |edge| (edge.0, edge.2));
        let roots = index(procedure.entry).into_iter().collect();
        PartialGraph { procedure, blocks, successors, predecessors, roots }
    }
}

impl FlowGraph for PartialGraph<'_, '_, '_, '_> {
    fn len(&self) -> u32 {
        self.predecessors.offsets.len() as u32 - 1
    }

    fn roots(&self) -> &[u32] {
        &self.roots
    }

    fn successors(&self, block: u32) -> &[u32] {
        self.successors.of(block)
    }
}

impl BlockCode for PartialGraph<'_, '_, '_, '_> {
    fn instructions(&self, block: u32) -> Vec<(u64, Instruction)> {
        let Some(block) = self.blocks.get(block as usize) else { return Vec::new() };
        let Some(mut reader) = Instructions::new(&self.procedure.flow.code.code_map, block.start) else {
            return Vec::new();
        };
        let mut instructions = Vec::new();
        while reader.position() < block.end
            && let Some(instruction) = reader.read()
        {
            instructions.push((reader.next_address(), instruction));
        }
        instructions
    }
}

impl Ways for PartialGraph<'_, '_, '_, '_> {
    fn predecessors(&self, block: u32) -> &[(u32, Option<bool>)] {
        self.predecessors.of(block)
    }

    fn is_root(&self, block: u32) -> bool {
        self.roots.contains(&block)
    }
}
