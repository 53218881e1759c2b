//! Copies of a module's procedures that call a routine where they are entered, and where they are left.

use std::ops::Range;

use callpath_format::address::LinkAddr;
use callpath_format::shared::probe::Routines;
use callpath_x86::graph::{ModuleFlow, ProcedureGraph};
use callpath_x86::rewrite::{Operation, Place, Plan, Refusal, THUNK_LEN_BYTES, exits, thunk};

use crate::copies::{Copies, Made, behind, copy_chosen};
use crate::module::Module;
use crate::recipes::Moved;

/// What the routines are that copies call, in a process.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// Run-time address minus link-time address of the module.
    pub bias: u64,
    /// The routines of the injected object.
    pub routines: Routines,
    /// Whether activations are timed, so that exits are probed, too.
    pub is_timed: bool,
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

/// Probes the procedures that begin at `chosen`, ascending, with new memory at `at`. Calls lead to the originals' entries,
/// so that each procedure's probe can be taken out alone.
///
/// ```text
/// at        the addresses of both routines
/// + 16      the thunk that exits call
/// + 40 ...  for each procedure the thunk that its entry calls; it pushes the entry's run-time address
/// then      the copies
/// ```
pub fn probed(module: &Module, at: LinkAddr, chosen: &[LinkAddr], probe: &Probe) -> ProbedModule {
    let Probe { bias, routines, is_timed } = *probe;
    let words = [if is_timed { routines.enter } else { routines.count }, routines.leave];
    let (entering, leaving) = (at, LinkAddr(at.0 + 8));
    let leave = LinkAddr(at.0 + 16);
    let thunks = LinkAddr(leave.0 + THUNK_LEN_BYTES);
    let enter_of = |number: usize| LinkAddr(thunks.0 + THUNK_LEN_BYTES * number as u64);
    let mut changes = vec![Change { at, old: None, new: words.into_iter().flat_map(u64::to_le_bytes).collect() }];
    let mut put = |at: LinkAddr, code: Option<[u8; THUNK_LEN_BYTES as usize]>| {
        changes.extend(code.map(|code| Change { at, old: None, new: code.to_vec() }));
    };
    put(leave, thunk(leave, None, leaving));
    for (number, entry) in chosen.iter().enumerate() {
        let run = entry.0.wrapping_add(bias);
        put(enter_of(number), thunk(enter_of(number), Some(run), entering));
    }
    let copies_at = LinkAddr(enter_of(chosen.len()).0.next_multiple_of(16));
    let mut homes: Vec<Range<LinkAddr>> = Vec::new();
    let copies = copy_chosen(module, copies_at, chosen, |flow: &ModuleFlow<'_>, graph: &ProcedureGraph| {
        let mut plan = Plan::new(None);
        plan.let_copy_call(bias);
        let Ok(number) = chosen.binary_search(&graph.entry) else { return plan };
        homes.extend(graph.blocks.iter().map(|block| block.code.clone()));
        plan.insert(Place::Entry, Operation::Call(enter_of(number)));
        if is_timed {
            for exit in exits(flow, graph).found {
                plan.insert(exit.place, Operation::Call(leave));
            }
        }
        plan
    });
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
/// with new memory right behind the module. In a process it may lie farther away.
pub fn prospects(module: &Module, chosen: &[LinkAddr], is_timed: bool) -> Vec<Prospect> {
    // What is written is of no use; where jumps are needed and where there is room for them is the same.
    let routines = Routines { count: 0, enter: 0, leave: 0 };
    let planned = probed(module, behind(module.image()), chosen, &Probe { bias: 0, routines, is_timed });
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
        let refused = self.copies.refused.iter().find(|refused| refused.entry == entry);
        match refused {
            Some(refused) => Prospect::Refused(refused.refusal),
            None if self.copies.made.iter().any(|made| made.copy.entry == entry) => Prospect::Probed,
            None => Prospect::NoProcedure,
        }
    }
}
