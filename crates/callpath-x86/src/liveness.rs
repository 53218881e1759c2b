//! Live registers and flags: those whose values may still be read. Inserted code may change the others.
//!
//! Backward, along the edges of each procedure's graph (Aho et al., "Compilers", section 9.2.5), and across calls
//! within the module: gcc keeps values in caller-saved registers where it knows that the callee preserves them
//! (-fipa-ra), and assembly has its own conventions. So a procedure has a summary: the registers that its code reads,
//! and those that it leaves untouched. What is live after its calls is live at its returns. For calls of other modules
//! and through pointers the System V ABI is assumed, except calls of `[rax]`: a TLS descriptor's function preserves all
//! registers but rax.

use callpath_format::address::LinkAddr;
use rustc_hash::FxHashMap;

use crate::dataflow::{Analysis, Direction, FlowGraph, Predecessors, postorder, solve};
use crate::graph::{Block, EdgeKind, ModuleFlow, ProcedureGraph, TableEnd, Terminator};
use crate::instruction::{Control, Flags, Instruction, Operation, RegisterSet};
use crate::state::{CALLEE_SAVED, RAX, RSP};

/// A set of registers and flags.
///
/// ```text
/// bits 0 to 15     general-purpose registers, in the processor's order
/// bits 16 to 47    vector registers
/// bits 48 to 63    flags: overflow, sign, zero, auxiliary carry, carry, parity, direction, and others
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct LiveSet(u64);

impl LiveSet {
    const NONE: LiveSet = LiveSet(0);
    pub(crate) const ALL: LiveSet = LiveSet(u64::MAX);
    const FLAGS_SHIFT: u32 = 48;

    const fn of_general(numbers: &[usize]) -> LiveSet {
        let mut set = 0;
        let mut index = 0;
        while index < numbers.len() {
            set |= 1 << numbers[index];
            index += 1;
        }
        LiveSet(set)
    }

    const fn of_vectors(count: u32) -> LiveSet {
        LiveSet(((1 << count) - 1) << 16)
    }

    /// The union.
    pub const fn with(self, other: LiveSet) -> LiveSet {
        LiveSet(self.0 | other.0)
    }

    const fn without(self, other: LiveSet) -> LiveSet {
        LiveSet(self.0 & !other.0)
    }

    const fn common(self, other: LiveSet) -> LiveSet {
        LiveSet(self.0 & other.0)
    }

    /// Whether every member of `other` is a member.
    pub fn contains(self, other: LiveSet) -> bool {
        other.without(self) == LiveSet::NONE
    }

    /// The general-purpose registers, a bit each, in the processor's order.
    pub fn general(self) -> u16 {
        self.0 as u16
    }

    /// The vector registers, a bit each.
    pub fn vectors(self) -> u32 {
        (self.0 >> 16) as u32
    }

    /// Whether any of the flags that arithmetic sets is a member.
    pub fn has_flags(self) -> bool {
        const ARITHMETIC: u64 = 0x3f;
        self.0 >> LiveSet::FLAGS_SHIFT & ARITHMETIC != 0
    }

    fn of(registers: RegisterSet, flags: Flags) -> LiveSet {
        LiveSet(registers.0 | u64::from(flags.0) << LiveSet::FLAGS_SHIFT)
    }
}

/// Registers in which a procedure receives values: rdi, rsi, rdx, rcx, r8, r9, al, the static chain's r10, xmm0 to
/// xmm7; and rsp.
const ARGUMENTS: LiveSet = LiveSet::of_general(&[7, 6, 2, 1, 8, 9, RAX, 10, RSP]).with(LiveSet::of_vectors(8));
/// Registers in which a caller receives values: rax, rdx, xmm0, xmm1, and those that callees preserve.
const RESULTS: LiveSet =
    LiveSet::of_general(&[RAX, 2, RSP]).with(LiveSet::of_general(&CALLEE_SAVED)).with(LiveSet::of_vectors(2));
/// The registers that a procedure following the ABI preserves. The direction flag is 0 at calls and returns.
const PRESERVED: LiveSet = LiveSet::of_general(&[RSP]).with(LiveSet::of_general(&CALLEE_SAVED));

/// How liveness before some code follows from liveness after it: `reads`, and those live after it that pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Transfer {
    reads: LiveSet,
    passes: LiveSet,
}

impl Transfer {
    const NOTHING: Transfer = Transfer { reads: LiveSet::NONE, passes: LiveSet::NONE };
    /// Code about which nothing is known.
    const ANYTHING: Transfer = Transfer { reads: LiveSet::ALL, passes: LiveSet::ALL };
    /// The end of a procedure.
    const RETURN: Transfer = Transfer { reads: LiveSet::of_general(&[RSP]), passes: LiveSet::ALL };
    /// A call of code that follows the ABI.
    const ABI: Transfer = Transfer { reads: ARGUMENTS, passes: PRESERVED };

    /// The composition: first `self`, then `behind`.
    fn before(self, behind: Transfer) -> Transfer {
        Transfer { reads: self.reads.with(behind.reads.common(self.passes)), passes: self.passes.common(behind.passes) }
    }

    fn joined(self, other: Transfer) -> Transfer {
        Transfer { reads: self.reads.with(other.reads), passes: self.passes.with(other.passes) }
    }

    fn live(self, behind: LiveSet) -> LiveSet {
        self.reads.with(behind.common(self.passes))
    }

    fn of_instruction(instruction: &Instruction) -> Transfer {
        let replaces = LiveSet::of(instruction.replaces(), instruction.flags_replaced());
        Transfer {
            reads: LiveSet::of(instruction.reads(), instruction.flags_read()),
            passes: LiveSet::ALL.without(replaces),
        }
    }
}

/// The calling convention of unknown code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Convention {
    /// The System V ABI: C, and everything that C can call.
    SystemV,
    /// Another one: any register may hold an argument or a result. (Go.)
    Unknown,
}

/// The liveness of a module's registers and flags.
pub struct Liveness<'g> {
    graphs: &'g [ProcedureGraph],
    convention: Convention,
    /// The number of a procedure's graph, by the address of its first instruction.
    entries: FxHashMap<LinkAddr, usize>,
    /// The owners of code: `(start, end, number)`, sorted. Procedures may share code.
    owners: Vec<(LinkAddr, LinkAddr, usize)>,
    /// For each procedure: from its start to its returns.
    summaries: Vec<Transfer>,
    /// For each procedure's blocks: from the end of the block.
    ends: Vec<Vec<Transfer>>,
    /// What is live at each procedure's returns.
    returns: Vec<LiveSet>,
}

/// A block of a procedure's graph.
#[derive(Clone, Copy)]
struct BlockIn<'g, 'a> {
    flow: &'g ModuleFlow<'a>,
    graph: &'g ProcedureGraph,
    block: &'g Block,
}

impl<'g> Liveness<'g> {
    /// Analyses all procedures of a module. `graphs` are those of `flow`. Takes time in proportion to the code, times
    /// the nesting of recursive calls.
    pub fn new(flow: &ModuleFlow<'_>, graphs: &'g [ProcedureGraph], convention: Convention) -> Liveness<'g> {
        let entries = graphs.iter().enumerate().map(|(number, graph)| (graph.entry, number)).collect();
        let fragments = graphs.iter().enumerate().flat_map(|(number, graph)| {
            graph.fragments.iter().map(move |fragment| (fragment.start, fragment.end, number))
        });
        let mut owners: Vec<(LinkAddr, LinkAddr, usize)> = fragments.collect();
        owners.sort_unstable();
        let unknown = match convention {
            Convention::SystemV => RESULTS,
            Convention::Unknown => LiveSet::ALL,
        };
        let returns = graphs.iter().map(|graph| match flow.is_reached_from_elsewhere(graph.entry) {
            true => unknown,
            false => LiveSet::NONE,
        });
        let mut liveness = Liveness {
            graphs,
            convention,
            entries,
            owners,
            summaries: vec![Transfer::NOTHING; graphs.len()],
            ends: vec![Vec::new(); graphs.len()],
            returns: returns.collect(),
        };
        let calls = Calls(graphs.iter().map(|graph| liveness.callees(graph)).collect());
        liveness.sum_up(flow, &calls);
        liveness.carry_returns(flow);
        liveness
    }

    /// What is live at the start of a block. Empty if there is no such block.
    pub fn at_block(&self, flow: &ModuleFlow<'_>, procedure: usize, block: u32) -> LiveSet {
        let Some((graph, code)) =
            self.graphs.get(procedure).and_then(|graph| Some((graph, graph.blocks.get(block as usize)?)))
        else {
            return LiveSet::NONE;
        };
        let end = self.end_of(procedure, block);
        let start = self.through(BlockIn { flow, graph, block: code }, end, |_, _| {});
        start.live(self.returns[procedure])
    }

    /// What is live before each instruction of a block, by ascending address.
    pub fn in_block(&self, flow: &ModuleFlow<'_>, procedure: usize, block: u32) -> Vec<(LinkAddr, LiveSet)> {
        let Some((graph, code)) =
            self.graphs.get(procedure).and_then(|graph| Some((graph, graph.blocks.get(block as usize)?)))
        else {
            return Vec::new();
        };
        let mut found = Vec::new();
        let returns = self.returns[procedure];
        let mut behind = self.end_of(procedure, block);
        for (at, instruction) in flow.instructions(&code.code).into_iter().rev() {
            behind = self.transfer_of(graph, at, &instruction).before(behind);
            found.push((at, behind.live(returns)));
        }
        found.reverse();
        found
    }

    fn end_of(&self, procedure: usize, block: u32) -> Transfer {
        self.ends.get(procedure).and_then(|ends| ends.get(block as usize)).copied().unwrap_or(Transfer::ANYTHING)
    }

    /// The procedures that one calls or jumps to.
    fn callees(&self, graph: &ProcedureGraph) -> Vec<u32> {
        let calls = graph.calls.iter().filter_map(|call| call.target);
        let tails = graph.blocks.iter().filter_map(way_out);
        let numbers = calls.chain(tails).filter_map(|to| self.entries.get(&to));
        let mut callees: Vec<u32> = numbers.map(|&number| number as u32).collect();
        callees.sort_unstable();
        callees.dedup();
        callees
    }

    /// Computes the summaries, from callees to callers, until nothing changes.
    fn sum_up(&mut self, flow: &ModuleFlow<'_>, calls: &Calls) {
        let callers = Predecessors::of(calls);
        // Callees first, except in recursion.
        let mut pending = postorder(calls);
        pending.reverse();
        let mut is_pending = vec![true; self.graphs.len()];
        while let Some(number) = pending.pop().map(|number| number as usize) {
            is_pending[number] = false;
            let Some(graph) = self.graphs.get(number) else { continue };
            self.ends[number] = self.ends_of(flow, graph);
            let entry = graph.block_at(graph.entry).unwrap_or(0);
            let summary = match graph.blocks.get(entry as usize) {
                Some(code) => self.through(BlockIn { flow, graph, block: code }, self.end_of(number, entry), |_, _| {}),
                None => Transfer::ANYTHING,
            };
            if summary != self.summaries[number] {
                self.summaries[number] = summary;
                for &caller in callers.of_block(number as u32) {
                    if !std::mem::replace(&mut is_pending[caller as usize], true) {
                        pending.push(caller);
                    }
                }
            }
        }
    }

    /// Carries what is live after calls to the returns of the callees.
    fn carry_returns(&mut self, flow: &ModuleFlow<'_>) {
        // For each procedure: its callees, and the transfer after each call.
        let mut sites: Vec<Vec<(usize, Transfer)>> = vec![Vec::new(); self.graphs.len()];
        for (number, graph) in self.graphs.iter().enumerate() {
            for (block, code) in (0u32..).zip(&graph.blocks) {
                let end = self.end_of(number, block);
                let own = &mut sites[number];
                self.through(BlockIn { flow, graph, block: code }, end, |target, behind| {
                    own.extend(self.owners_of(target).map(|callee| (callee, behind)));
                });
                let tails = way_out(code).into_iter().flat_map(|to| self.owners_of(to));
                own.extend(tails.map(|callee| (callee, Transfer::RETURN)));
            }
        }
        let mut pending: Vec<usize> = (0..self.graphs.len()).collect();
        while let Some(caller) = pending.pop() {
            for &(callee, behind) in &sites[caller] {
                let live = self.returns[callee].with(behind.live(self.returns[caller]));
                if live != self.returns[callee] {
                    self.returns[callee] = live;
                    pending.push(callee);
                }
            }
        }
    }

    /// For each block of a procedure, from its end to the returns.
    fn ends_of(&self, flow: &ModuleFlow<'_>, graph: &ProcedureGraph) -> Vec<Transfer> {
        let mut blocks = Blocks { liveness: self, flow, graph };
        let seeds = (0u32..).zip(&graph.blocks).map(|(number, block)| (number, self.exit_of(graph, number, block)));
        let seeds: Vec<(u32, Transfer)> = seeds.collect();
        let ends = solve(graph, &mut blocks, seeds);
        ends.into_iter().map(|end| end.unwrap_or(Transfer::ANYTHING)).collect()
    }

    /// What holds at the end of a block along the paths on which control leaves the procedure there.
    fn exit_of(&self, graph: &ProcedureGraph, number: u32, block: &Block) -> Transfer {
        let has = |kinds: &[EdgeKind]| graph.edges_of(number).any(|(_, kind)| kinds.contains(&kind));
        let continues = has(&[EdgeKind::FallThrough, EdgeKind::NotTaken]);
        // A branch that is not taken may also leave the procedure.
        let beside = if continues { Transfer::NOTHING } else { Transfer::ANYTHING };
        match block.terminator {
            Terminator::Return => Transfer::RETURN,
            Terminator::TailCall(Some(target)) => self.of_procedure_at(target),
            Terminator::BranchOut(target) => self.of_procedure_at(target).joined(beside),
            Terminator::Branch if !has(&[EdgeKind::FallThrough, EdgeKind::Taken]) => Transfer::ANYTHING,
            Terminator::Branch => beside,
            Terminator::TailCall(None) => self.unknown_call().before(Transfer::RETURN),
            Terminator::Unresolved | Terminator::RunsOut | Terminator::SharedTail(_) => Transfer::ANYTHING,
            Terminator::Trap | Terminator::NoReturnCall => Transfer::NOTHING,
            // There may be more entries than were found.
            Terminator::Switch(table)
                if graph.tables.get(table as usize).is_none_or(|table| table.end == TableEnd::Contents) =>
            {
                Transfer::ANYTHING
            }
            _ if graph.successors(number).is_empty() => Transfer::ANYTHING,
            Terminator::FallsThrough | Terminator::Jump | Terminator::Switch(_) => Transfer::NOTHING,
        }
    }

    /// From the start of a procedure to its returns. For code in the middle of one nothing is known.
    fn of_procedure_at(&self, target: LinkAddr) -> Transfer {
        self.entries.get(&target).map_or(Transfer::ANYTHING, |&callee| self.summaries[callee])
    }

    fn unknown_call(&self) -> Transfer {
        match self.convention {
            Convention::SystemV => Transfer::ABI,
            Convention::Unknown => Transfer::ANYTHING,
        }
    }

    /// From the start of a block, given what holds from its end. Calls `call` with each target of a call in the module,
    /// and the transfer after the call.
    fn through(&self, block: BlockIn<'_, '_>, end: Transfer, mut call: impl FnMut(LinkAddr, Transfer)) -> Transfer {
        let BlockIn { flow, graph, block } = block;
        let mut behind = end;
        for (at, instruction) in flow.instructions(&block.code).into_iter().rev() {
            if instruction.operation() == Operation::Call
                && let Some(target) = target_of(graph, at)
            {
                call(target, behind);
            }
            behind = self.transfer_of(graph, at, &instruction).before(behind);
        }
        behind
    }

    /// The procedures that own an address.
    fn owners_of(&self, place: LinkAddr) -> impl Iterator<Item = usize> + '_ {
        /// The most ranges of the same code that are searched before an address's own.
        const SHARED: usize = 8;
        let after = self.owners.partition_point(|owner| owner.0 <= place);
        let before = self.owners.get(..after).unwrap_or(&[]).iter().rev().take(SHARED);
        before.filter(move |owner| place < owner.1).map(|owner| owner.2)
    }

    fn transfer_of(&self, graph: &ProcedureGraph, at: LinkAddr, instruction: &Instruction) -> Transfer {
        let own = Transfer::of_instruction(instruction);
        let is_call = instruction.operation() == Operation::Call && instruction.control() != Control::Next;
        if !is_call && instruction.operation() != Operation::SystemCall {
            return own;
        }
        if !is_call {
            // The kernel reads its arguments, and preserves all registers but rax, rcx and r11.
            let arguments = LiveSet::of_general(&[RAX, 7, 6, 2, 10, 8, 9]);
            return Transfer { reads: own.reads.with(arguments), passes: own.passes };
        }
        let keeps_all = instruction.memory().is_some_and(|memory| {
            memory.base.general64() == Some(RAX) && memory.is_only(memory.base) && memory.displacement == 0
        });
        let called = match target_of(graph, at) {
            Some(target) => self.of_procedure_at(target),
            None if keeps_all => Transfer { reads: ARGUMENTS, passes: LiveSet::ALL },
            None => self.unknown_call(),
        };
        // The return address that it pushes changes only rsp, which is restored. An exception may pass the procedure on
        // its way to a caller's handler, which goes on with the registers that all between have preserved; and frames
        // are found by them.
        Transfer { reads: own.reads.with(PRESERVED), passes: LiveSet::ALL }.before(called)
    }
}

/// The address in the module that the instruction at `at` calls, if it is known.
fn target_of(graph: &ProcedureGraph, at: LinkAddr) -> Option<LinkAddr> {
    let index = graph.calls.binary_search_by_key(&at, |call| call.code.start).ok()?;
    graph.calls.get(index)?.target
}

/// Where control continues in another procedure after a block.
fn way_out(block: &Block) -> Option<LinkAddr> {
    match block.terminator {
        Terminator::TailCall(target) => target,
        Terminator::BranchOut(target) | Terminator::SharedTail(target) => Some(target),
        _ => None,
    }
}

/// The analysis of one procedure.
struct Blocks<'l, 'g, 'f, 'a> {
    liveness: &'l Liveness<'g>,
    flow: &'f ModuleFlow<'a>,
    graph: &'l ProcedureGraph,
}

impl Analysis for Blocks<'_, '_, '_, '_> {
    type Fact = Transfer;
    const DIRECTION: Direction = Direction::Backward;

    fn transfer(&mut self, block: u32, end: &Transfer) -> Transfer {
        match self.graph.blocks.get(block as usize) {
            Some(block) => {
                self.liveness.through(BlockIn { flow: self.flow, graph: self.graph, block }, *end, |_, _| {})
            }
            None => *end,
        }
    }

    fn join(&self, known: &mut Transfer, new: &Transfer) -> bool {
        let joined = known.joined(*new);
        let is_new = joined != *known;
        *known = joined;
        is_new
    }
}

/// The callees of each procedure, by number.
struct Calls(Vec<Vec<u32>>);

impl FlowGraph for Calls {
    fn len(&self) -> u32 {
        self.0.len() as u32
    }

    fn roots(&self) -> &[u32] {
        &[]
    }

    fn successors(&self, caller: u32) -> &[u32] {
        self.0.get(caller as usize).map_or(&[], Vec::as_slice)
    }
}
