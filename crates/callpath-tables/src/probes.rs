//! Copies of a module's procedures that call a routine where they are entered, and where they are left.

use std::ops::Range;

use callpath_format::address::LinkAddr;
use callpath_x86::graph::ModuleFlow;
use callpath_x86::rewrite::{ExitKind, Operation, Place, Plan, Reason, Refusal, THUNK_LEN_BYTES, exits, thunk};

use crate::copies::{Copies, Made, behind, copy_chosen};
use crate::module::Module;
use crate::recipes::Moved;

/// What copies call in a process.
#[derive(Clone, Copy, Debug)]
pub struct Probe<'w> {
    /// Run-time address minus link-time address of the module.
    pub bias: u64,
    /// The routines of procedures that are probed.
    pub called: Called,
    /// Those of functions with hidden probes.
    pub hidden: Hidden<'w>,
}

/// Hidden probes: a function may have such a probe and another one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hidden<'w> {
    /// Called at the entry of one that waits for others.
    pub for_others: u64,
    /// Called at the entry of one that waits for input or output.
    pub for_io: u64,
    /// Called where these are left.
    pub go_on: u64,
    /// Called where the function returns by which the program asks for its context: gives that its result.
    pub ask: u64,
    /// Called at the entry of one that jumps out of procedures.
    pub jump: u64,
    /// Called at the entry of one by which an exception is caught.
    pub catch: u64,
    /// The functions, by ascending entry.
    pub functions: &'w [HiddenProbe],
}

/// A function with a hidden probe.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct HiddenProbe {
    /// Its first instruction.
    pub entry: LinkAddr,
    /// What it does.
    pub purpose: Purpose,
}

/// What a function with a hidden probe does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Purpose {
    /// It waits for other threads and processes, signals, some time.
    WaitsForOthers,
    /// It waits for input or output.
    WaitsForIo,
    /// The program asks for the context by it.
    Asks,
    /// It jumps out of procedures: `longjmp`.
    Jumps,
    /// Its caller catches an exception by it.
    Catches,
}

impl Purpose {
    /// All of them.
    pub const ALL: [Purpose; 5] =
        [Purpose::WaitsForOthers, Purpose::WaitsForIo, Purpose::Asks, Purpose::Jumps, Purpose::Catches];
}

impl Hidden<'_> {
    fn of(&self, entry: LinkAddr) -> Option<Purpose> {
        let at = self.functions.binary_search_by_key(&entry, |function| function.entry).ok()?;
        self.functions.get(at).map(|function| function.purpose)
    }
}

/// The routines that copies call, by their addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Called {
    /// At entries.
    pub at_entry: u64,
    /// At exits; `None`: they are not probed.
    pub at_exit: Option<AtExit>,
    /// These routines preserve all flags.
    pub keep_flags: bool,
    /// Routines that do, for procedures of which others would destroy flags that are read.
    pub keeping_flags: Option<KeepingFlags>,
}

impl Called {
    /// A routine that is called at entries alone.
    pub fn at_entries(at_entry: u64, keep_flags: bool) -> Called {
        Called { at_entry, at_exit: None, keep_flags, keeping_flags: None }
    }
}

/// Routines that preserve all flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KeepingFlags {
    /// At entries.
    pub at_entry: u64,
    /// At exits.
    pub at_exit: AtExit,
}

/// What is called where procedures are left.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AtExit {
    /// Before a return.
    pub at_return: u64,
    /// Before a jump to another procedure, which returns to the caller.
    pub at_jump: u64,
}

/// Bytes that are to stand somewhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// Where.
    pub at: LinkAddr,
    /// What stands there before; none in new memory.
    pub old: Option<Vec<u8>>,
    /// What is to stand there.
    pub new: Vec<u8>,
}

/// The probe of one procedure, as data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProbedFunction {
    /// The procedure's first instruction, at home.
    pub entry: LinkAddr,
    /// What is written: its copy, and the jumps that lead there.
    pub changes: Vec<Change>,
}

/// Probes of some procedures of a module, as data.
pub struct ProbedModule {
    /// What is written for all of them.
    pub changes: Vec<Change>,
    /// What is written for each, by ascending entry.
    pub functions: Vec<ProbedFunction>,
    /// One past the last byte of new memory.
    pub end: LinkAddr,
    /// The copies, and the procedures that cannot be copied.
    pub copies: Copies,
    /// Where the code in new memory, and the jumps that lead there, belong.
    pub moved: Moved,
    /// The code of the procedures at home, ascending: who is in it was there before.
    pub homes: Vec<Range<LinkAddr>>,
}

/// How much new memory [`probed`] takes at most for a module of `code_bytes` bytes of code, bytes.
pub fn room(code_bytes: u64, procedures: u64) -> u64 {
    // Short jumps grow, copies are aligned, and there is what is inserted.
    const PER_PROCEDURE: u64 = 256;
    code_bytes.saturating_mul(8).saturating_add(procedures.saturating_mul(PER_PROCEDURE)).saturating_add(1 << 16)
}

/// Probes the procedures that begin at `chosen`, ascending, and those with hidden probes, with new memory at `at`. Calls lead to the originals' entries,
/// so that each procedure's probe can be taken out alone.
///
/// ```text
/// at        the addresses of the routines: at entries, at returns, at jumps to others; of functions that wait for others,
///           for input and output, and where they are left; where the program asks for its context, jumps out of procedures,
///           and catches exceptions; at entries, at returns and at jumps where flags are to be preserved
/// + 96      the thunks of all of them but the first
/// ...       for each procedure the thunk that its entry calls; it pushes the entry's run-time address
/// then      the copies
/// ```
pub fn probed(module: &Module, at: LinkAddr, chosen: &[LinkAddr], probe: &Probe<'_>) -> ProbedModule {
    let Probe { bias, called, hidden } = *probe;
    let AtExit { at_return, at_jump } = called.at_exit.unwrap_or_default();
    let keeping = called.keeping_flags.unwrap_or_default();
    let KeepingFlags { at_entry: enter_keeping, at_exit: exit_keeping } = keeping;
    let Hidden { for_others, for_io, go_on, ask, jump, catch, .. } = hidden;
    let last = [enter_keeping, exit_keeping.at_return, exit_keeping.at_jump];
    let words =
        [called.at_entry, at_return, at_jump, for_others, for_io, go_on, ask, jump, catch, last[0], last[1], last[2]];
    const ENTER_KEEPING: u64 = 9;
    let word = |number: u64| LinkAddr(at.0 + 8 * number);
    // Of each word but the first.
    let thunk_of = |number: u64| LinkAddr(at.0 + 8 * words.len() as u64 + THUNK_LEN_BYTES * (number - 1));
    let [leave, leave_by_jump, wait, wait_for_io, go_on, ask, jump, catch] = [1, 2, 3, 4, 5, 6, 7, 8].map(thunk_of);
    let [leave_keeping, leave_by_jump_keeping] = [ENTER_KEEPING + 1, ENTER_KEEPING + 2].map(thunk_of);
    let thunks = thunk_of(words.len() as u64);
    let enter_of = |number: usize| LinkAddr(thunks.0 + THUNK_LEN_BYTES * number as u64);
    let mut changes = vec![Change { at, old: None, new: words.into_iter().flat_map(u64::to_le_bytes).collect() }];
    let mut put = |at: LinkAddr, code: Option<[u8; THUNK_LEN_BYTES as usize]>| {
        changes.extend(code.map(|code| Change { at, old: None, new: code.to_vec() }));
    };
    for number in 1..words.len() as u64 {
        put(thunk_of(number), thunk(thunk_of(number), None, word(number)));
    }
    let copies_at = LinkAddr(enter_of(chosen.len()).0.next_multiple_of(16));
    let mut homes: Vec<Range<LinkAddr>> = Vec::new();
    // Of those that are called by routines that keep flags, the numbers.
    let mut keeping_flags: Vec<usize> = Vec::new();
    let mut all: Vec<LinkAddr> = chosen.to_vec();
    all.extend(hidden.functions.iter().map(|function| function.entry));
    let copies = copy_chosen(module, copies_at, &all, |flow: &ModuleFlow<'_>, graph, refused| {
        if refused.is_some_and(|refused| refused.reason != Reason::NoFreeRegister || called.keeping_flags.is_none()) {
            return None;
        }
        let keeps_flags = called.keep_flags || refused.is_some();
        let call = if keeps_flags { Operation::CallKeepingFlags } else { Operation::Call };
        let exits_of = if refused.is_some() { [leave_keeping, leave_by_jump_keeping] } else { [leave, leave_by_jump] };
        let mut plan = Plan::new(None);
        plan.let_copy_call(bias);
        let (number, purpose) = (chosen.binary_search(&graph.entry), hidden.of(graph.entry));
        let found = if purpose.is_some() || called.at_exit.is_some() { exits(flow, graph).found } else { Vec::new() };
        if let Ok(number) = number {
            match refused {
                None => homes.extend(graph.blocks.iter().map(|block| block.code.clone())),
                Some(_) => keeping_flags.push(number),
            }
            plan.insert(Place::Entry, call(enter_of(number)));
        }
        let (at_entry, at_exit) = match purpose {
            Some(Purpose::WaitsForOthers) => (Some(wait), Some(go_on)),
            Some(Purpose::WaitsForIo) => (Some(wait_for_io), Some(go_on)),
            Some(Purpose::Asks) => (None, Some(ask)),
            Some(Purpose::Jumps) => (Some(jump), None),
            Some(Purpose::Catches) => (Some(catch), None),
            None => (None, None),
        };
        if let Some(begin) = at_entry {
            plan.insert(Place::Entry, Operation::CallKeepingFlags(begin));
        }
        if let Some(end) = at_exit {
            found.iter().for_each(|exit| plan.insert(exit.place, Operation::CallKeepingFlags(end)));
        }
        if number.is_ok() && called.at_exit.is_some() {
            for exit in found {
                let [at_return, at_jump] = exits_of;
                plan.insert(exit.place, call(if exit.kind == ExitKind::Return { at_return } else { at_jump }));
            }
        }
        Some(plan)
    });
    for (number, entry) in chosen.iter().enumerate() {
        let run = entry.0.wrapping_add(bias);
        let enter = if keeping_flags.contains(&number) { ENTER_KEEPING } else { 0 };
        put(enter_of(number), thunk(enter_of(number), Some(run), word(enter)));
    }
    let function = |made: &Made| {
        let copy = Change { at: made.copy.at, old: None, new: made.copy.code.clone() };
        let patches = made.copy.patches.iter();
        let patches =
            patches.map(|patch| Change { at: patch.at, old: Some(patch.old.clone()), new: patch.new.clone() });
        ProbedFunction { entry: made.copy.entry, changes: [copy].into_iter().chain(patches).collect() }
    };
    let functions = copies.made.iter().map(function).collect();
    let end = copies.end.max(copies_at);
    homes.sort_unstable_by_key(|home| home.start);
    let thunks = chosen.iter().enumerate().map(|(number, _)| (enter_of(number), true));
    let moved = Moved::of(&copies).with_thunks(thunks.chain([(leave, false)]));
    ProbedModule { changes, functions, end, copies, moved, homes }
}

/// Whether a procedure could be probed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prospect {
    /// It could.
    Probed,
    /// It cannot be copied.
    Refused(Refusal),
    /// No procedure with code of its own begins there.
    NoProcedure,
}

/// Whether the procedures that begin at `chosen` could be probed, in their order: by the plan that [`probed`] makes,
/// with new memory right behind the module. In a process it may lie farther away. Of what is called, the addresses do not
/// matter: where jumps are needed and where there is room for them is the same.
pub fn prospects(module: &Module, chosen: &[LinkAddr], called: Called) -> Vec<Prospect> {
    let planned = probed(module, behind(module.image()), chosen, &Probe { bias: 0, called, hidden: Hidden::default() });
    chosen.iter().map(|entry| planned.prospect(*entry)).collect()
}

impl Prospect {
    /// Why it cannot be probed, for a person.
    pub fn why_not(&self) -> Option<String> {
        match self {
            Prospect::Probed => None,
            Prospect::Refused(refusal) => Some(refusal.to_string()),
            Prospect::NoProcedure => Some("no procedure with code of its own is known there".to_owned()),
        }
    }
}

impl ProbedModule {
    /// What became of the procedure that begins at `entry`, one of the chosen ones.
    pub fn prospect(&self, entry: LinkAddr) -> Prospect {
        let Copies { refused, made, .. } = &self.copies;
        let found = refused.binary_search_by_key(&entry, |refused| refused.entry).ok().and_then(|at| refused.get(at));
        match found {
            Some(refused) => Prospect::Refused(refused.refusal),
            None if made.binary_search_by_key(&entry, |made| made.copy.entry).is_ok() => Prospect::Probed,
            None => Prospect::NoProcedure,
        }
    }
}
