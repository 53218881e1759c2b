//! Reaching definitions: which instructions may have given a register its value at an instruction.
//!
//! Forward, along the edges of a procedure's graph (Aho et al., "Compilers", section 9.2.4), for one register at a
//! time. A call may define every caller-saved register, and preserves the others.

use callpath_format::address::LinkAddr;

use crate::dataflow::{Analysis, Direction, solve};
use crate::graph::{ModuleFlow, ProcedureGraph};
use crate::instruction::{Control, Instruction, Operation};
use crate::state::CALL_CLOBBERED;

const RAX: usize = 0;

/// An origin of a register's value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Definition {
    /// The procedure's caller, or code that is not visible.
    Entry,
    /// The instruction at this address; if it is a call, its callee; if a system call, the kernel.
    At(LinkAddr),
}

/// The definitions of one register that reach each block of a procedure.
pub struct ReachingDefinitions<'g> {
    graph: &'g ProcedureGraph,
    register: usize,
    /// At the start of each block, sorted.
    starts: Vec<Option<Vec<Definition>>>,
}

impl<'g> ReachingDefinitions<'g> {
    /// Analyses a general-purpose register, by its number in the processor's order. `graph` is one of `flow`.
    pub fn of(flow: &ModuleFlow<'_>, graph: &'g ProcedureGraph, register: usize) -> ReachingDefinitions<'g> {
        let seeds: Vec<(u32, Vec<Definition>)> =
            graph.roots.iter().map(|&root| (root, vec![Definition::Entry])).collect();
        let starts = solve(graph, &mut OfRegister { flow, graph, register }, seeds);
        ReachingDefinitions { graph, register, starts }
    }

    /// The definitions that reach the instruction at `at`, sorted. Empty if control does not reach it.
    pub fn at(&self, flow: &ModuleFlow<'_>, at: LinkAddr) -> Vec<Definition> {
        let Some(block) = self.graph.block_at(at) else { return Vec::new() };
        let (Some(code), Some(Some(start))) = (self.graph.blocks.get(block as usize), self.starts.get(block as usize))
        else {
            return Vec::new();
        };
        let mut known = start.clone();
        for (address, instruction) in flow.instructions(&(code.code.start..at)) {
            define(&mut known, address, &instruction, self.register);
        }
        known
    }
}

/// Updates the definitions from before an instruction to after it.
fn define(known: &mut Vec<Definition>, at: LinkAddr, instruction: &Instruction, register: usize) {
    let is_call = instruction.operation() == Operation::Call && instruction.control() != Control::Next;
    // The processor leaves rax alone; the kernel returns a result in it.
    let is_result = instruction.operation() == Operation::SystemCall && register == RAX;
    let is_lost = is_call && CALL_CLOBBERED.contains(&register) || is_result;
    if is_lost || instruction.replaces().has_general(register) && !is_call {
        known.clear();
    }
    let is_written = instruction.writes().has_general(register) && !is_call;
    if (is_lost || is_written)
        && let Err(index) = known.binary_search(&Definition::At(at))
    {
        known.insert(index, Definition::At(at));
    }
}

struct OfRegister<'f, 'g, 'a> {
    flow: &'f ModuleFlow<'a>,
    graph: &'g ProcedureGraph,
    register: usize,
}

impl Analysis for OfRegister<'_, '_, '_> {
    type Fact = Vec<Definition>;
    const DIRECTION: Direction = Direction::Forward;

    fn transfer(&mut self, block: u32, start: &Vec<Definition>) -> Vec<Definition> {
        let mut known = start.clone();
        let code = self.graph.blocks.get(block as usize).map(|block| &block.code);
        for (at, instruction) in code.map(|code| self.flow.instructions(code)).unwrap_or_default() {
            define(&mut known, at, &instruction, self.register);
        }
        known
    }

    fn join(&self, known: &mut Vec<Definition>, new: &Vec<Definition>) -> bool {
        let before = known.len();
        known.extend(new);
        known.sort_unstable();
        known.dedup();
        known.len() > before
    }
}
