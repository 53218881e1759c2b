//! Copies of procedures that run in place of the originals. What changes code inserts into the copy; the original body
//! keeps what must stay where it is. No processes, files or measurements here: addresses and bytes in, bytes out.
//!
//! ```text
//! original body ("home")                       copy
//! entry:   jmp ------------------------------> first instruction
//! call:    call f     <----------------------- jmp         (calls are made at home)
//!          jmp ------------------------------> the instruction behind the call
//! landing pad, target of a table that the copy does not have:
//!          jmp ------------------------------> its copy
//! all else: not executed any more
//! ```
//!
//! Every return address is an original one, so whatever walks the stack, throws or compares return addresses sees what
//! it would have seen. A plan may let calls be made in the copy instead ([`Plan::call_in_copy`]): that costs nothing, and
//! whoever plans them sees to it that unwinders know the copy. Jumps through tables stay in the copy where its own table can do (`tables`); else they go home and from there to the
//! copy. A jump at home is a *springboard*. Where
//! fewer than five bytes are free for it, two bytes lead to five free ones nearby, or the instructions up to the next
//! call run at home. Where a call leaves no room for a springboard that has to be there, the copy makes that call
//! itself: it pushes the return address at home and jumps.

mod assembler;
mod body;
mod callee;
mod calls;
mod contexts;
mod copy;
mod entrances;
mod exits;
mod find_object;
mod fixed;
mod frame;
mod fuzzing;
mod hashed;
mod home;
mod homes;
mod inserted;
mod of_context;
mod padding;
mod patch;
mod plan;
mod pushing;
mod read_code;
mod refusal;
mod spot;
mod tables;
mod thunk;
mod times;
mod turns;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use callpath_format::address::LinkAddr;
use rustc_hash::FxHashMap;

pub use callee::{Callee, callee};
pub use contexts::UnmarkedCall;
pub use exits::{Exit, ExitKind, Exits, LeftOut, exits};
pub use find_object::{KnownCode, find_object};
pub use fixed::Fixed;
pub use fuzzing::fuzz_rewrite;
pub use homes::{home, homes};
pub use patch::{DirectBranch, Patch};
pub use plan::{Cell, Contexts, FRAME_BYTES, Hashed, Numbers, Operation, PathNumber, Place, Plan, Rax, TURNS, Times};
pub use refusal::{Reason, Refusal};
pub use thunk::{THUNK_LEN_BYTES, THUNK_PUSH_BYTES, thunk};

use crate::encoding;
use crate::graph::{ModuleFlow, ProcedureGraph};
use crate::liveness::{LiveSet, Liveness};
use body::{Body, Step};
use entrances::Entrances;
use tables::CopiedTables;

/// Copies the procedures of a module.
pub struct Rewriter<'m, 'a> {
    flow: &'m ModuleFlow<'a>,
    graphs: &'m [ProcedureGraph],
    liveness: Option<&'m Liveness<'m>>,
    by_entry: FxHashMap<LinkAddr, usize>,
    entrances: Entrances,
    fixed: Fixed,
    /// By procedure: an instruction that reads its code.
    readers: Vec<Option<LinkAddr>>,
}

/// A frame in a copy, beside that of the instruction at home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameSize {
    /// The same.
    AsAtHome,
    /// Larger by so many bytes.
    LargerBy(u32),
    /// The return address and nothing else: all registers that a procedure preserves have their callers' values.
    ReturnAddress,
}

/// A procedure's copy, and what it changes at home. Addresses of the copy are link-time addresses of the module, as if
/// the copy were a part of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rewritten {
    /// The procedure's first instruction, at home.
    pub entry: LinkAddr,
    /// Where the copy is to lie.
    pub at: LinkAddr,
    /// The copy.
    pub code: Vec<u8>,
    /// What is to be written at home, by ascending address; disjoint.
    pub patches: Vec<Patch>,
    /// Code at home that is not executed any more, by ascending address; disjoint, and apart from the patches.
    pub unused: Vec<Range<LinkAddr>>,
    /// By ascending offset in the copy: the instruction at home that stands there. A jump to a call at home counts as
    /// the call.
    pub origins: Vec<(u32, LinkAddr)>,
    /// By ascending offset in the copy: from there on rsp is so many bytes lower than at the instruction at home that
    /// stands there: while a routine is called ([`Operation::Call`]), and before the jump of a call in `from_copy`.
    pub lowered: Vec<(u32, u32)>,
    /// By ascending offset: from there on the frame is larger by so many bytes than that of the instruction at home
    /// ([`Plan::give_words`]): rsp, and all that is saved below the return address, lie lower. 0: at the entry and at exits, where
    /// there is no frame but the return address.
    pub enlarged: Vec<(u32, u32)>,
    /// By how much it is where control comes from home other than to the entry.
    pub enlarged_at_home: u32,
    /// By ascending offset: from there on, where the value is that rax has at the instruction at home that stands there.
    pub rax: Vec<(u32, Rax)>,
    /// From this offset on, code lies out of the order of what it leads to: stubs of edges, and what is inserted where
    /// control comes from home.
    pub out_of_order: u32,
    /// From this offset on, there is no code but constants and jump tables.
    pub words_at: u32,
    /// Calls that the copy makes with return addresses of its own ([`Plan::call_in_copy`]): the offset where each comes back, ascending, and
    /// where it comes back at home.
    pub returns: Vec<(u32, LinkAddr)>,
    /// Calls that no mark stands behind, where contexts are counted ([`Plan::count_contexts`]).
    pub unmarked: Vec<UnmarkedCall>,
    /// Instructions that read a jump table, ascending: in the copy they read one that leads to the copies of the cases.
    pub table_reads: Vec<LinkAddr>,
    /// Calls and jumps to stubs of the linkage table, ascending: in the copy they go through the word that the stub reads, not through the
    /// stub.
    pub through_slots: Vec<LinkAddr>,
    /// Springboards that do not lie where they are entered, and the instruction to whose copy they lead.
    pub detours: Vec<(LinkAddr, LinkAddr)>,
    /// Where a call of the procedure continues in the copy.
    pub entered_at: LinkAddr,
    /// The same, for calls that hand over the node of its context ([`DirectBranch::hands_node`]).
    pub entered_with_node: Option<LinkAddr>,
    /// The same, for calls through the linkage table that hand it over, always in the same register.
    pub entered_by_linkage: Option<LinkAddr>,
    /// Calls at home, by ascending address, whose last four bytes are the distance to the called address.
    pub direct_calls: Vec<DirectBranch>,
    /// Jumps in the copy to code that has none, whose distances end at the same places: among them tail calls. Also
    /// calls that the copy makes itself.
    pub direct_jumps: Vec<DirectBranch>,
    /// Calls that the copy makes through a word beside the code, where they end in the copy, and the word; their last four bytes are the
    /// distance to it.
    pub word_calls: Vec<DirectBranch>,
    /// Times of its paths are measured ([`Plan::measure_paths`]).
    pub is_timed: bool,
    /// Instructions that run at home besides calls, for want of room.
    pub at_home: u32,
    /// Calls that the copy makes with the return address at home, ascending: at home they would leave no room.
    pub from_copy: Vec<LinkAddr>,
}

/// Where jumps and calls enter a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entries {
    entered_at: LinkAddr,
    entered_with_node: Option<LinkAddr>,
}

impl Entries {
    /// Where one of these does.
    pub fn of(&self, branch: &DirectBranch) -> LinkAddr {
        self.entered_with_node.filter(|_| branch.hands_node).unwrap_or(self.entered_at)
    }
}

/// Patches code that is to lie at an address.
fn write_into((code, at): (&mut [u8], LinkAddr), patch: &Patch) {
    let from = patch.at.0.wrapping_sub(at.0) as usize;
    if let Some(old) = code.get_mut(from..).and_then(|code| code.get_mut(..patch.new.len())) {
        old.copy_from_slice(&patch.new);
    }
}

impl Rewritten {
    /// Lets jumps and calls of the copy lead to copies of procedures. `entered_at`: where they enter them ([`Rewritten::entries`]).
    pub fn link_jumps(&mut self, entered_at: impl Fn(&DirectBranch) -> Option<LinkAddr>) {
        for jump in &self.direct_jumps {
            let Some(patch) = entered_at(jump).and_then(|to| jump.redirected(to)) else { continue };
            write_into((&mut self.code, self.at), &patch);
        }
    }

    /// Where jumps and calls of copies enter this one.
    pub fn entries(&self) -> Entries {
        Entries { entered_at: self.entered_at, entered_with_node: self.entered_with_node }
    }

    /// Lets calls of the copy that go through a word go through another one. `other`: by word. `is_led`: told of each other word whether the
    /// call goes through it now.
    pub fn link_words(&mut self, other: impl Fn(LinkAddr) -> Option<LinkAddr>, mut is_led: impl FnMut(LinkAddr, bool)) {
        for call in &self.word_calls {
            let Some(word) = other(call.target) else { continue };
            let patch = call.redirected(word);
            is_led(word, patch.is_some());
            if let Some(patch) = patch {
                write_into((&mut self.code, self.at), &patch);
            }
        }
    }

    /// What is written at home where the entry is to lead to other code, which continues in the copy by itself. `None`: that
    /// is too far away.
    pub fn entered_by(&self, other: LinkAddr) -> Option<Vec<Patch>> {
        let mut patches = self.patches.clone();
        for patch in &mut patches {
            if patch.leads_to(self.entered_at) {
                patch.new = encoding::jump(patch.at.0, other.0)?.to_vec();
            }
        }
        Some(patches)
    }

    /// The instruction at home whose copy, or what is inserted before it, is at an address. None outside of the copy.
    pub fn origin_of(&self, address: LinkAddr) -> Option<LinkAddr> {
        at_offset(&self.origins, self.offset_of(address)?)
    }

    /// Of a copy whose frame is larger than at home: whether control comes to it by the procedure's entry alone, and does not leave it for home but with
    /// the procedure: no landing pads, no jumps through tables that the copy does not have. A copy whose frame is as large as at home has to be ready
    /// for calls that come back there, too: what is asked of it is not known.
    pub fn is_entered_alone(&self) -> bool {
        let is_of_entry = |patch: &Patch| patch.at == self.entry || patch.leads_to(self.entered_at);
        let stays = self.direct_calls.is_empty() && self.from_copy.is_empty() && self.at_home == 0;
        stays && self.patches.iter().filter(|patch| patch.is_springboard()).all(is_of_entry)
    }

    /// By how many bytes rsp is lower at an address of the copy than at the instruction at home that stands there.
    pub fn lowered_by(&self, address: LinkAddr) -> u32 {
        self.offset_of(address).and_then(|offset| at_offset(&self.lowered, offset)).unwrap_or(0)
    }

    /// The frame at an address of the copy.
    pub fn size_at(&self, address: LinkAddr) -> FrameSize {
        let enlarged = self.offset_of(address).and_then(|offset| at_offset(&self.enlarged, offset)).unwrap_or(0);
        match (self.enlarged_at_home, enlarged) {
            (0, _) => FrameSize::AsAtHome,
            (_, 0) => FrameSize::ReturnAddress,
            (_, bytes) => FrameSize::LargerBy(bytes),
        }
    }

    /// Where the value of rax is at an address of the copy.
    pub fn rax_at(&self, address: LinkAddr) -> Rax {
        self.offset_of(address).and_then(|offset| at_offset(&self.rax, offset)).unwrap_or(Rax::InPlace)
    }

    fn offset_of(&self, address: LinkAddr) -> Option<u64> {
        address.0.checked_sub(self.at.0).filter(|&offset| offset < self.code.len() as u64)
    }
}

/// What holds from the last offset on that is not behind `offset`.
fn at_offset<T: Copy>(by_offset: &[(u32, T)], offset: u64) -> Option<T> {
    let after = by_offset.partition_point(|&(from, _)| u64::from(from) <= offset);
    by_offset.get(after.checked_sub(1)?).map(|&(_, what)| what)
}

impl<'m, 'a> Rewriter<'m, 'a> {
    /// `graphs`: of all procedures of the module ([`crate::graph::merged`]). `liveness`: theirs.
    pub fn new(flow: &'m ModuleFlow<'a>, graphs: &'m [ProcedureGraph], liveness: &'m Liveness<'m>) -> Self {
        Rewriter { liveness: Some(liveness), ..Rewriter::without_liveness(flow, graphs) }
    }

    /// As [`Rewriter::new`]; whatever is inserted treats all registers and flags as live.
    pub fn without_liveness(flow: &'m ModuleFlow<'a>, graphs: &'m [ProcedureGraph]) -> Self {
        let entrances = Entrances::new(flow, graphs);
        let by_entry = graphs.iter().enumerate().map(|(number, graph)| (graph.entry, number)).collect();
        let readers = read_code::readers(flow, graphs);
        Rewriter { flow, graphs, liveness: None, by_entry, entrances, fixed: Fixed::default(), readers }
    }

    /// Refuses code for reasons that are not in its instructions.
    pub fn with_fixed(self, fixed: Fixed) -> Self {
        Rewriter { fixed, ..self }
    }

    /// Whether a procedure, by the number of its graph, can be copied with nothing inserted.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, procedure: usize) -> Result<(), Refusal> {
        let (body, plan) = (self.body(procedure)?, Plan::default());
        home::Layout::new((self.flow, &self.entrances), &body, &plan, &frame::Frame::default()).map(|_| ())
    }

    /// The instructions of a procedure that is not refused for what they are.
    fn body(&self, procedure: usize) -> Result<Body<'m, 'a>, Refusal> {
        let nothing = Refusal { at: LinkAddr(0), reason: Reason::NoCode };
        let graph = self.graphs.get(procedure).ok_or(nothing)?;
        if let Some(shared) = self.entrances.shared_code(procedure) {
            return Err(Refusal { at: shared, reason: Reason::SharedCode });
        }
        if let Some(reader) = self.readers.get(procedure).copied().flatten() {
            return Err(Refusal { at: reader, reason: Reason::ReadAsData });
        }
        let body = Body::read(self.flow, graph, &self.fixed)?;
        let refusal = self.fixed.within(graph).or_else(|| body.vfork(&self.fixed.vforks));
        refusal.map_or(Ok(body), Err)
    }

    /// The copy of a procedure, by the number of its graph, to lie at `at`, with what the plan inserts.
    ///
    /// # Errors
    /// Why it cannot be copied.
    pub fn copy(&self, procedure: usize, at: LinkAddr, plan: &Plan) -> Result<Rewritten, Refusal> {
        let body = self.body(procedure)?;
        let mut refused = Refusal { at: body.entry(), reason: Reason::RunsAtHome };
        let frame = OnceCell::new();
        for plan in plan.choices(self.free_register(procedure, &body, plan)) {
            match self.copy_by(procedure, (&body, &frame), (at, &plan)) {
                Ok(copy) => return Ok(copy),
                Err(refusal) => refused = refusal,
            }
        }
        Err(refused)
    }

    /// A register that a procedure without calls does not use, and whose value nobody reads behind it.
    fn free_register(&self, procedure: usize, body: &Body<'_, '_>, plan: &Plan) -> Option<u8> {
        let liveness = self.liveness.filter(|_| body.graph.calls.is_empty())?;
        let mut used = 0u16;
        for step in &body.steps {
            used |= step.instruction.reads().general_bits() | step.instruction.writes().general_bits();
        }
        for block in 0..body.graph.blocks.len() as u32 {
            let live = liveness.in_block(self.flow, procedure, block);
            used = live.into_iter().fold(used, |used, (_, live)| used | live.general());
        }
        let handed_in = plan.contexts().and_then(|_| self.handed_in(procedure));
        let is_handed = |register: u8| handed_in == Some(register);
        spot::SCRATCH.into_iter().rev().find(|&register| used >> register & 1 == 0 && !is_handed(register))
    }

    fn copy_by(
        &self,
        procedure: usize,
        (body, frame): (&Body<'_, '_>, &OnceCell<Result<frame::Frame, Refusal>>),
        (at, plan): (LinkAddr, &Plan),
    ) -> Result<Rewritten, Refusal> {
        if let Some(at) = plan.places().find_map(|place| body.lacks(place)) {
            return Err(Refusal { at, reason: Reason::NoSuchPlace });
        }
        let known = || frame.get_or_init(|| frame::Frame::of(body, plan.arguments())).as_ref();
        let nothing = frame::Frame::default();
        let frame = match plan.enlarged_by() {
            0 if plan.notes_activations() => known().unwrap_or(&nothing),
            0 => &nothing,
            _ => known().map_err(|refusal| *refusal)?,
        };
        let layout = home::Layout::new((self.flow, &self.entrances), body, plan, frame)?;
        let has_tables = body.graph.tables.iter().any(|table| table.entries.is_some());
        let live = if plan.is_empty() { FxHashMap::default() } else { self.live(procedure, body.graph, plan) };
        let (from_copy, in_copy) = (layout.calls_from_copy(), layout.calls_in_copy());
        let tables = CopiedTables::new(body, &self.flow.code.data, plan.bias());
        let handing = &self.handing(body, plan, in_copy);
        let handed_in = plan.contexts().and_then(|_| self.handed_in(procedure));
        let source =
            copy::Source { body, plan, frame, live: &live, from_copy, in_copy, handing, handed_in, tables: &tables };
        let copy = match copy::Copy::new(&source, at) {
            // Jumps through tables that are too far away go home.
            Err(Refusal { reason: Reason::TooFar, .. }) if has_tables => {
                copy::Copy::new(&copy::Source { tables: &CopiedTables::default(), ..source }, at)?
            }
            copy => copy?,
        };
        Ok(Rewritten { is_timed: plan.times().is_some(), ..layout.finish(body, copy)? })
    }

    /// Of the calls that a copy makes itself: those whose callees may be handed their nodes, and the register for it.
    fn handing(&self, body: &Body<'_, '_>, plan: &Plan, in_copy: &BTreeSet<u64>) -> BTreeMap<u64, u8> {
        if plan.context_word().is_none() {
            return BTreeMap::new();
        }
        let handed = |step: &Step<'_>| {
            if step.taking_node.is_some() {
                // The loader may change the register on the way of such a call.
                return Some((step.at, contexts::HANDED));
            }
            let callee = calls::called_directly(step).and_then(|callee| self.by_entry.get(&callee))?;
            Some((step.at, self.handed_in(*callee)?))
        };
        in_copy.iter().filter_map(|call| body.step_at(*call)).filter_map(handed).collect()
    }

    /// The register in which a procedure's node is handed over by callers within the module, for which it has no use as far as anybody can tell.
    fn handed_in(&self, procedure: usize) -> Option<u8> {
        let graph = self.graphs.get(procedure)?;
        contexts::handed_in(self.liveness?.at_block(procedure, graph.block_at(graph.entry)?))
    }

    /// What is live before each instruction of a procedure, in whichever of its blocks, and at the entries of those that
    /// it goes on to where something is inserted.
    fn live(&self, procedure: usize, graph: &ProcedureGraph, plan: &Plan) -> FxHashMap<LinkAddr, LiveSet> {
        let mut live: FxHashMap<LinkAddr, LiveSet> = FxHashMap::default();
        let Some(liveness) = self.liveness else { return live };
        for block in 0..graph.blocks.len() as u32 {
            for (at, here) in liveness.in_block(self.flow, procedure, block) {
                live.entry(at).and_modify(|live| *live = live.with(here)).or_insert(here);
            }
        }
        for place in plan.places() {
            let Place::Edge(_, to) = place else { continue };
            let Some(&number) = self.by_entry.get(&to).filter(|_| !live.contains_key(&to)) else { continue };
            let block = self.graphs.get(number).and_then(|graph| graph.block_at(to));
            live.extend(block.map(|block| (to, liveness.at_block(number, block))));
        }
        live
    }
}
