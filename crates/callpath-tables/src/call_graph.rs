//! The calls in a module's code: what each procedure calls, how far the stack grows there, what it jumps to in its own place, and
//! which procedures' addresses the module has, so that calls through pointers may lead there.

use std::ops::Range;

use callpath_format::address::LinkAddr;
use callpath_image::elf::ImageKind;
use callpath_x86::arguments::{ArgumentSet, Arguments, arguments};
use callpath_x86::graph::{ModuleFlow, ProcedureGraph, Terminator};
use callpath_x86::references::addresses_taken;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::heights::CallHeights;
use crate::module::Module;

/// Where a call or a jump leads.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Callee {
    /// To a procedure of this module, which begins there.
    Procedure(LinkAddr),
    /// To what the loader finds by this name, in this module or another.
    Named(String),
    /// To one of those whose addresses this procedure of the module has, which chooses when the module is loaded.
    ChosenBy(LinkAddr),
    /// Where a pointer says, with no more arguments than these.
    Pointer(ArgumentSet),
}

/// A call.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Call {
    /// What is called.
    pub callee: Callee,
    /// How far the caller's CFA is above the callee's, bytes; `None`: it is not as far each time.
    pub height: Option<i64>,
}

/// What a procedure calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcedureCalls {
    /// Where it begins.
    pub entry: LinkAddr,
    /// Distinct calls, ascending.
    pub calls: Vec<Call>,
    /// What it jumps to, which then has its CFA and returns to its caller: distinct, ascending.
    pub jumps: Vec<Callee>,
    /// The procedures of the module whose addresses it has: distinct, ascending.
    pub takes: Vec<LinkAddr>,
    /// The arguments that it surely takes.
    pub arguments: ArgumentSet,
    /// Whether all jumps within it could be followed. Else it may have calls that are not known.
    pub is_followed: bool,
}

/// A module's calls.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ModuleCalls {
    /// By ascending entry.
    pub procedures: Vec<ProcedureCalls>,
    /// The procedures whose addresses the module's data has, that the loader calls, or that choose others: distinct, ascending. Those whose
    /// addresses code has are [`ProcedureCalls::takes`].
    pub pointed: Vec<LinkAddr>,
    /// Names of procedures whose addresses it has, likewise.
    pub pointed_names: Vec<String>,
    /// Names of procedures that the loader finds for it.
    pub named: Vec<String>,
    /// The procedure that the kernel or the loader starts the program in, if the module has one.
    pub start: Option<LinkAddr>,
}

/// The calls of all procedures of a module. `flow` is that of the module.
pub fn module_calls(module: &Module, flow: &ModuleFlow<'_>) -> ModuleCalls {
    let reader = Reader::of(module, flow);
    let mut found = ModuleCalls { start: reader.owner(module.image().entry()), ..ModuleCalls::default() };
    let loading = module.file().loading();
    let from_data = loading.pointers.iter().map(|(_, to)| *to).chain(loading.called.iter().copied());
    let mut pointed: FxHashSet<LinkAddr> = from_data.chain(reader.fixed_words()).collect();
    pointed.retain(|at| reader.entries.contains(at));
    let mut names: FxHashSet<String> = loading.taken.iter().cloned().collect();
    let graphs: Vec<ProcedureGraph> = (0..flow.len()).map(|procedure| flow.graph(procedure)).collect();
    let all = arguments(flow, &graphs);
    for (procedure, (graph, arguments)) in graphs.iter().zip(&all).enumerate() {
        let (calls, taken) = reader.read((procedure, graph), arguments);
        for at in taken {
            match reader.slots.get(&at) {
                Some(Callee::Named(name)) => drop(names.insert(name.clone())),
                Some(Callee::ChosenBy(resolver)) => drop(pointed.insert(*resolver)),
                _ => {}
            }
        }
        found.procedures.push(calls);
    }
    found.procedures.sort_by_key(|calls| calls.entry);
    found.procedures.dedup_by_key(|calls| calls.entry);
    found.pointed = pointed.into_iter().collect();
    found.pointed.sort_unstable();
    found.pointed_names = names.into_iter().collect();
    found.pointed_names.sort_unstable();
    found.named = loading.symbols.iter().map(|(_, name)| name.clone()).collect();
    found
}

struct Reader<'f, 'a> {
    module: &'f Module,
    flow: &'f ModuleFlow<'a>,
    heights: CallHeights<'f, 'a>,
    /// Where procedures begin.
    entries: FxHashSet<LinkAddr>,
    /// What the loader puts into words that code calls through.
    slots: FxHashMap<LinkAddr, Callee>,
    /// Both: what code may have the address of.
    targets: FxHashSet<LinkAddr>,
}

impl<'f, 'a> Reader<'f, 'a> {
    fn of(module: &'f Module, flow: &'f ModuleFlow<'a>) -> Reader<'f, 'a> {
        let loading = module.file().loading();
        let named = loading.symbols.iter().map(|(slot, name)| (*slot, Callee::Named(name.clone())));
        let chosen = loading.resolvers.iter().map(|(slot, resolver)| (*slot, Callee::ChosenBy(*resolver)));
        let slots: FxHashMap<LinkAddr, Callee> = named.chain(chosen).collect();
        let entries: FxHashSet<LinkAddr> = (0..flow.len()).filter_map(|procedure| flow.entry(procedure)).collect();
        let targets = entries.iter().chain(slots.keys()).copied().collect();
        Reader { module, flow, heights: CallHeights::of(module, flow), entries, slots, targets }
    }

    /// Where the procedure begins that an address is in.
    fn owner(&self, at: LinkAddr) -> Option<LinkAddr> {
        self.flow.procedure_at(at).and_then(|procedure| self.flow.entry(procedure))
    }

    /// What is called or jumped to by the last instruction of a range of code, which may pass so much.
    fn callee(&self, target: Option<LinkAddr>, code: &Range<LinkAddr>, passes: ArgumentSet) -> Callee {
        let known = target.and_then(|target| self.owner(target)).map(Callee::Procedure);
        let through = || self.slots.get(&self.flow.slot_of(code)?).cloned();
        known.or_else(through).unwrap_or(Callee::Pointer(passes))
    }

    fn read(
        &self,
        (procedure, graph): (usize, &ProcedureGraph),
        arguments: &Arguments,
    ) -> (ProcedureCalls, Vec<LinkAddr>) {
        let calls = self.heights.of_calls(procedure, graph).into_iter();
        let calls = calls.map(|(call, height)| {
            let passes = arguments.passes.get(&call.site()).copied().unwrap_or(ArgumentSet::ALL);
            Call { callee: self.callee(call.target, &call.code, passes), height }
        });
        let mut calls: Vec<Call> = calls.collect();
        let mut jumps: Vec<Callee> = Vec::new();
        for block in &graph.blocks {
            match block.terminator {
                Terminator::TailCall(target) => jumps.push(self.callee(target, &block.code, ArgumentSet::ALL)),
                Terminator::BranchOut(target) | Terminator::SharedTail(target) => {
                    jumps.push(self.callee(Some(target), &block.code, ArgumentSet::ALL));
                }
                _ => {}
            }
        }
        jumps.retain(|callee| *callee != Callee::Procedure(graph.entry));
        let taken = self.taken(graph);
        let mut takes: Vec<LinkAddr> = taken.iter().copied().filter(|at| self.entries.contains(at)).collect();
        calls.sort_unstable();
        calls.dedup();
        jumps.sort_unstable();
        jumps.dedup();
        takes.sort_unstable();
        takes.dedup();
        let is_followed = graph.unresolved() == 0;
        let arguments = arguments.takes;
        (ProcedureCalls { entry: graph.entry, calls, jumps, takes, arguments, is_followed }, taken)
    }

    /// What a procedure's code has the address of.
    fn taken(&self, graph: &ProcedureGraph) -> Vec<LinkAddr> {
        let image = self.module.image();
        let has_addresses = image.kind() == ImageKind::Executable;
        let of_fragment = |code: &Range<LinkAddr>| {
            let bytes = image.bytes_from(code.start)?;
            let len = usize::try_from(code.end.0.checked_sub(code.start.0)?).ok()?;
            Some(addresses_taken(bytes.get(..len.min(bytes.len()))?, code.start, &self.targets, has_addresses))
        };
        graph.fragments.iter().filter_map(of_fragment).flatten().collect()
    }

    /// The words in data of a program at fixed addresses, where nothing tells pointers from numbers.
    fn fixed_words(&self) -> impl Iterator<Item = LinkAddr> + '_ {
        const WORD_BYTES: usize = size_of::<u64>();
        let image = self.module.image();
        let data =
            image.segments().iter().filter(|segment| image.kind() == ImageKind::Executable && !segment.executable);
        let words = data.filter_map(|segment| {
            let bytes = image.bytes_from(segment.vaddr)?;
            let bytes = bytes.get(..bytes.len().min(usize::try_from(segment.file_len).ok()?))?;
            bytes.get(segment.vaddr.0.next_multiple_of(WORD_BYTES as u64).wrapping_sub(segment.vaddr.0) as usize..)
        });
        let word = |bytes: &[u8]| LinkAddr(bytes.try_into().map_or(0, u64::from_le_bytes));
        words.flat_map(move |bytes| bytes.chunks_exact(WORD_BYTES).map(word))
    }
}
