//! Which registers pass arguments, as far as code shows it: those that a procedure surely takes, and those that may have been set at a call. A
//! call through a pointer leads to no procedure that takes more than it passes.
//!
//! After van der Veen et al. 2016 ("A Tough Call", section 4), with registers one by one. Both err to the side where more calls are possible:
//! a procedure takes what it computes with, not what it only saves (a variadic one saves all); a call passes what may be set on any path. Where
//! a callee leaves a register untouched, a compiler may know that (-fipa-ra): what was set before is still passed behind the call.

use callpath_format::address::LinkAddr;
use rustc_hash::FxHashMap;

use crate::dataflow::{Analysis, Direction, solve};
use crate::graph::{ModuleFlow, ProcedureGraph, Terminator};
use crate::instruction::{Instruction, Operation, Register, RegisterSet};

/// Registers that pass arguments: a bit each for rdi, rsi, rdx, rcx, r8 and r9 (psABI, section 3.2.3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ArgumentSet(u8);

impl ArgumentSet {
    const REGISTERS: [usize; 6] = [7, 6, 2, 1, 8, 9];
    /// No register.
    pub const NONE: ArgumentSet = ArgumentSet(0);
    /// All of them.
    pub const ALL: ArgumentSet = ArgumentSet((1 << ArgumentSet::REGISTERS.len()) - 1);
    /// rdx, in which results come back, too.
    const SECOND_RESULT: ArgumentSet = ArgumentSet(1 << 2);

    /// Those of a set of registers.
    fn of(registers: RegisterSet) -> ArgumentSet {
        let bits = ArgumentSet::REGISTERS
            .iter()
            .enumerate()
            .map(|(at, number)| u8::from(registers.has_general(*number)) << at);
        ArgumentSet(bits.fold(0, |all, bit| all | bit))
    }

    /// The bits.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Those of either.
    #[must_use]
    pub fn with(self, other: ArgumentSet) -> ArgumentSet {
        ArgumentSet(self.0 | other.0)
    }

    fn common(self, other: ArgumentSet) -> ArgumentSet {
        ArgumentSet(self.0 & other.0)
    }

    fn without(self, other: ArgumentSet) -> ArgumentSet {
        ArgumentSet(self.0 & !other.0)
    }
}

/// A procedure's arguments.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Arguments {
    /// Those that it surely takes.
    pub takes: ArgumentSet,
    /// Those that its calls may pass, by where frames at the call have their address.
    pub passes: FxHashMap<LinkAddr, ArgumentSet>,
}

/// Of all procedures of a module. `graphs` are those of `flow`.
pub fn arguments(flow: &ModuleFlow<'_>, graphs: &[ProcedureGraph]) -> Vec<Arguments> {
    let codes: Vec<Code> = graphs.iter().map(|graph| Code::of(flow, graph)).collect();
    let untouched = Untouched::of(graphs, &codes);
    let of_procedure = |(graph, code): (&ProcedureGraph, &Code)| {
        let Some(entry) = graph.block_at(graph.entry) else { return Arguments::default() };
        let mut taken = Taken(code);
        let all = (0..graph.blocks.len() as u32).map(|block| (block, ArgumentSet::NONE));
        let at_ends = solve(graph, &mut taken, all);
        let at_end = at_ends.get(entry as usize).copied().flatten().unwrap_or_default();
        let takes = taken.transfer(entry, &at_end);
        let mut passed = Passed { code, untouched: &untouched, passes: FxHashMap::default() };
        let roots = graph.roots.iter().map(|root| (*root, ArgumentSet::ALL));
        let starts = solve(graph, &mut passed, roots);
        passed.passes.clear();
        for (block, start) in (0u32..).zip(starts) {
            passed.transfer(block, &start.unwrap_or(ArgumentSet::ALL));
        }
        Arguments { takes, passes: passed.passes }
    };
    graphs.iter().zip(&codes).map(of_procedure).collect()
}

/// What instructions do to arguments.
#[derive(Clone, Copy, Debug)]
enum Step {
    Uses {
        takes: ArgumentSet,
        writes: ArgumentSet,
    },
    /// A call that has its frame's address there, of a known procedure.
    Calls {
        site: LinkAddr,
        target: Option<LinkAddr>,
    },
}

/// A procedure's steps, by block.
struct Code {
    blocks: Vec<Vec<Step>>,
    writes: ArgumentSet,
    /// Procedures that it calls or jumps to, if all are known.
    leads_to: Option<Vec<LinkAddr>>,
}

impl Code {
    fn of(flow: &ModuleFlow<'_>, graph: &ProcedureGraph) -> Code {
        let calls: FxHashMap<LinkAddr, (LinkAddr, Option<LinkAddr>)> =
            graph.calls.iter().map(|call| (call.code.start, (call.site(), call.target))).collect();
        let mut writes = ArgumentSet::NONE;
        let mut leads_to = Some(Vec::new());
        let mut lead = |target: Option<LinkAddr>| match (target, &mut leads_to) {
            (Some(target), Some(known)) => known.push(target),
            _ => leads_to = None,
        };
        let mut blocks = Vec::with_capacity(graph.blocks.len());
        for block in &graph.blocks {
            let mut steps = Vec::new();
            for (at, instruction) in flow.instructions(&block.code) {
                if let Some((site, target)) = calls.get(&at) {
                    steps.push(Step::Calls { site: *site, target: *target });
                    lead(*target);
                    continue;
                }
                let written = ArgumentSet::of(instruction.writes());
                let takes = taken_by(&instruction);
                writes = writes.with(written);
                if takes != ArgumentSet::NONE || written != ArgumentSet::NONE {
                    steps.push(Step::Uses { takes, writes: written });
                }
            }
            match block.terminator {
                Terminator::TailCall(target) => lead(target),
                Terminator::BranchOut(target) | Terminator::SharedTail(target) => lead(Some(target)),
                Terminator::Unresolved => lead(None),
                _ => {}
            }
            blocks.push(steps);
        }
        Code { blocks, writes, leads_to }
    }

    fn of_block(&self, block: u32) -> &[Step] {
        self.blocks.get(block as usize).map_or(&[], Vec::as_slice)
    }
}

/// What an instruction computes with, other than to save it or to change it in place.
fn taken_by(instruction: &Instruction) -> ArgumentSet {
    if instruction.operation() == Operation::Push || instruction.is_padding() {
        return ArgumentSet::NONE;
    }
    let saves = |base: Register| base == Register::RSP || base == Register::RBP;
    if instruction.writes_memory_operand() && instruction.memory().is_some_and(|memory| saves(memory.base)) {
        return ArgumentSet::NONE;
    }
    ArgumentSet::of(instruction.reads().without(instruction.writes()))
}

/// Backward: what is taken from a place on, before it is written and before a call.
struct Taken<'c>(&'c Code);

impl Analysis for Taken<'_> {
    type Fact = ArgumentSet;
    const DIRECTION: Direction = Direction::Backward;

    fn transfer(&mut self, block: u32, fact: &ArgumentSet) -> ArgumentSet {
        self.0.of_block(block).iter().rev().fold(*fact, |live, step| match step {
            Step::Uses { takes, writes } => live.without(*writes).with(*takes),
            Step::Calls { .. } => ArgumentSet::NONE,
        })
    }

    fn join(&self, known: &mut ArgumentSet, new: &ArgumentSet) -> bool {
        join(known, *new)
    }
}

/// Forward: what may be set.
struct Passed<'c> {
    code: &'c Code,
    untouched: &'c Untouched,
    passes: FxHashMap<LinkAddr, ArgumentSet>,
}

impl Analysis for Passed<'_> {
    type Fact = ArgumentSet;
    const DIRECTION: Direction = Direction::Forward;

    fn transfer(&mut self, block: u32, fact: &ArgumentSet) -> ArgumentSet {
        let mut set = *fact;
        for step in self.code.of_block(block) {
            match step {
                Step::Uses { writes, .. } => set = set.with(*writes),
                Step::Calls { site, target } => {
                    let passed = self.passes.entry(*site).or_default();
                    *passed = passed.with(set);
                    set = set.common(self.untouched.by(*target)).with(ArgumentSet::SECOND_RESULT);
                }
            }
        }
        set
    }

    fn join(&self, known: &mut ArgumentSet, new: &ArgumentSet) -> bool {
        join(known, *new)
    }
}

fn join(known: &mut ArgumentSet, new: ArgumentSet) -> bool {
    let joined = known.with(new);
    std::mem::replace(known, joined) != joined
}

/// The registers that each procedure leaves untouched, with all that it calls.
struct Untouched(FxHashMap<LinkAddr, ArgumentSet>);

impl Untouched {
    fn of(graphs: &[ProcedureGraph], codes: &[Code]) -> Untouched {
        let mut touched: FxHashMap<LinkAddr, ArgumentSet> =
            graphs.iter().zip(codes).map(|(graph, code)| (graph.entry, code.writes)).collect();
        loop {
            let mut is_changed = false;
            for (graph, code) in graphs.iter().zip(codes) {
                let by = |to: &LinkAddr| touched.get(to).copied().unwrap_or(ArgumentSet::ALL);
                let all = match &code.leads_to {
                    Some(leads_to) => leads_to.iter().map(by).fold(code.writes, ArgumentSet::with),
                    None => ArgumentSet::ALL,
                };
                is_changed |= touched.insert(graph.entry, all) != Some(all);
            }
            if !is_changed {
                break;
            }
        }
        Untouched(touched.into_iter().map(|(entry, touched)| (entry, ArgumentSet::ALL.without(touched))).collect())
    }

    fn by(&self, target: Option<LinkAddr>) -> ArgumentSet {
        target.and_then(|target| self.0.get(&target)).copied().unwrap_or_default()
    }
}
