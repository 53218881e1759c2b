//! Procedures whose code is read as data: a program that sums up its own code finds another sum where a springboard stands.
//! Only reads that a procedure's registers show are found: of an address beside the code, or of one that was computed in
//! the same procedure. What others are passed, or keep in memory, is not followed.

use callpath_format::address::LinkAddr;
use rustc_hash::FxHashSet;

use crate::dataflow::{Analysis, Direction, solve};
use crate::graph::{ModuleFlow, ProcedureGraph};
use crate::instruction::{Access, Control, Instruction, Operation};
use crate::state::CALL_CLOBBERED;

const REGISTERS: usize = 16;

/// For each procedure, an instruction that reads code of it.
pub(super) fn readers(flow: &ModuleFlow<'_>, graphs: &[ProcedureGraph]) -> Vec<Option<LinkAddr>> {
    let code = Code::of(graphs);
    let mut readers = vec![None; graphs.len()];
    for graph in graphs {
        let mut found = Reads { flow, graph, code: &code, reads: Vec::new() };
        if !found.beside_code() {
            continue;
        }
        let nothing = [0; REGISTERS];
        let roots: Vec<(u32, Addresses)> = graph.roots.iter().map(|root| (*root, nothing)).collect();
        let starts = solve(graph, &mut found, roots);
        // Once more, when all is known.
        found.reads.clear();
        found.beside_code();
        for (block, start) in (0..).zip(&starts) {
            if let Some(start) = start {
                found.follow(block, start);
            }
        }
        take(&mut readers, &found.reads);
    }
    readers
}

fn take(readers: &mut [Option<LinkAddr>], reads: &[(usize, LinkAddr)]) {
    for (owner, at) in reads {
        if let Some(reader) = readers.get_mut(*owner) {
            reader.get_or_insert(*at);
        }
    }
}

/// The code of all procedures.
struct Code {
    /// The blocks: start, end, and the procedure. Sorted.
    blocks: Vec<(u64, u64, usize)>,
    entries: FxHashSet<u64>,
}

impl Code {
    fn of(graphs: &[ProcedureGraph]) -> Code {
        let blocks = graphs.iter().enumerate();
        let blocks = blocks.flat_map(|(n, graph)| graph.blocks.iter().map(move |b| (b.code.start.0, b.code.end.0, n)));
        let mut blocks: Vec<(u64, u64, usize)> = blocks.collect();
        blocks.sort_unstable();
        Code { blocks, entries: graphs.iter().map(|graph| graph.entry.0).collect() }
    }

    /// The procedure that has an instruction at an address.
    fn owner(&self, address: u64) -> Option<usize> {
        let after = self.blocks.partition_point(|&(start, ..)| start <= address);
        let &(_, end, owner) = self.blocks.get(after.checked_sub(1)?)?;
        (address < end).then_some(owner)
    }
}

/// By register, the address of code that it holds; 0: something else. In a loop, that of its first round.
type Addresses = [u64; REGISTERS];

/// The reads of code by one procedure.
struct Reads<'f, 'a> {
    flow: &'f ModuleFlow<'a>,
    graph: &'f ProcedureGraph,
    code: &'f Code,
    /// Whose code, and the instruction.
    reads: Vec<(usize, LinkAddr)>,
}

impl Reads<'_, '_> {
    /// Notes reads beside the code. Whether anything else is to be looked for: addresses of code are computed, or read.
    fn beside_code(&mut self) -> bool {
        let mut has_any = false;
        for block in &self.graph.blocks {
            for (at, instruction) in self.flow.instructions(&block.code) {
                let next = at.0.wrapping_add(instruction.len().into());
                has_any |= self.computed(&instruction, next, &[0; REGISTERS]).is_some();
                let owner = instruction.beside_code(next).and_then(|address| self.code.owner(address));
                if let Some(owner) = owner.filter(|_| reads(&instruction)) {
                    self.reads.push((owner, at));
                    has_any = true;
                }
            }
        }
        has_any
    }

    /// The register that an instruction gives an address of code, and that address.
    fn computed(&self, instruction: &Instruction, next: u64, known: &Addresses) -> Option<(usize, u64)> {
        let to = instruction.register(0).general64();
        let held = |register: usize| Some(known.get(register).copied()?).filter(|address| *address != 0);
        match instruction.operation() {
            Operation::LoadAddress => {
                let memory = instruction.memory()?;
                let displaced = |base: usize| Some(held(base)?.wrapping_add_signed(memory.displacement));
                let beside = || instruction.beside_code(next).filter(|at| self.code.owner(*at).is_some());
                let address = memory.base.general64().map_or_else(beside, displaced)?;
                (memory.index.general().is_none()).then_some((to?, address))
            }
            // Of 32 bits in a program at fixed addresses.
            Operation::Move if !instruction.has_memory() => match instruction.immediate() {
                Some(constant) => {
                    self.code.entries.contains(&constant).then_some((instruction.register(0).general()?, constant))
                }
                None => Some((to?, held(instruction.register(1).general64()?)?)),
            },
            Operation::Add | Operation::Subtract | Operation::Increment | Operation::Decrement => {
                let by = match instruction.operation() {
                    Operation::Increment => 1,
                    Operation::Decrement => u64::MAX,
                    Operation::Add => instruction.immediate()?,
                    _ => instruction.immediate()?.wrapping_neg(),
                };
                Some((to?, held(to?)?.wrapping_add(by)))
            }
            _ => None,
        }
    }

    /// What holds behind a block; its reads are noted.
    fn follow(&mut self, block: u32, start: &Addresses) -> Addresses {
        let mut known = *start;
        let Some(block) = self.graph.blocks.get(block as usize) else { return known };
        for (at, instruction) in self.flow.instructions(&block.code) {
            let next = at.0.wrapping_add(instruction.len().into());
            if let Some(memory) = instruction.memory().filter(|_| reads(&instruction)) {
                for register in [memory.base, memory.index] {
                    let held = register.general64().and_then(|number| known.get(number)).filter(|held| **held != 0);
                    let address = held.map(|held| held.wrapping_add_signed(memory.displacement));
                    self.reads.extend(address.and_then(|address| self.code.owner(address)).map(|owner| (owner, at)));
                }
            }
            let computed = self.computed(&instruction, next, &known);
            let is_call = matches!(instruction.control(), Control::Call | Control::CallIndirect);
            let clobbered = is_call.then_some(CALL_CLOBBERED).into_iter().flatten();
            for register in instruction.writes().general().chain(clobbered) {
                known[register] = 0;
            }
            if let Some((register, address)) = computed {
                known[register] = address;
            }
        }
        known
    }
}

fn reads(instruction: &Instruction) -> bool {
    matches!(instruction.memory_access(), Access::Read | Access::ReadWrite)
}

impl Analysis for Reads<'_, '_> {
    type Fact = Addresses;
    const DIRECTION: Direction = Direction::Forward;

    fn transfer(&mut self, block: u32, fact: &Addresses) -> Addresses {
        self.follow(block, fact)
    }

    /// A register keeps the first address that is known.
    fn join(&self, known: &mut Addresses, new: &Addresses) -> bool {
        let mut has_changed = false;
        for (known, new) in known.iter_mut().zip(new) {
            if *known == 0 && *new != 0 {
                *known = *new;
                has_changed = true;
            }
        }
        has_changed
    }
}
