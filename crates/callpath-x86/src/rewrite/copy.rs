//! Writes the copy of a procedure: its blocks in their order, with what is inserted between their instructions.

use std::collections::{BTreeMap, BTreeSet};

use callpath_format::address::LinkAddr;
use callpath_format::shared::activation::CallMark;
use rustc_hash::{FxHashMap, FxHashSet};

use super::assembler::{Assembler, Target};
use super::body::{Body, Step};
use super::calls::{self, Pointer};
use super::contexts::{self, Dispatch, NotFound, Site, UnmarkedCall};
use super::frame::{Frame, Height};
use super::inserted;
use super::patch::DirectBranch;
use super::plan::{Cell, Place, Plan, Rax};
use super::refusal::{Reason, Refusal};
use super::spot::Spot;
use super::tables::{CopiedTables, TableRead};
use super::turns;
use crate::encode::{self, Register};
use crate::encoding;
use crate::graph::EdgeKind;
use crate::instruction::motion::{LongDisplacement, Motion, displaced_by};
use crate::instruction::{Control, Memory};
use crate::liveness::LiveSet;
use crate::state::{RBP, RSP};

/// A procedure's copy.
#[derive(Default)]
pub(super) struct Copy {
    pub(super) at: LinkAddr,
    pub(super) code: Vec<u8>,
    /// By ascending offset: the address of the instruction that stands there, or that what is inserted there leads to.
    pub(super) origins: Vec<(u32, LinkAddr)>,
    /// By ascending offset: by how many bytes rsp is lower from there on.
    pub(super) lowered: Vec<(u32, u32)>,
    /// By ascending offset: by how many bytes the frame is larger from there on.
    pub(super) enlarged: Vec<(u32, u32)>,
    /// By ascending offset: where the value of rax is from there on.
    pub(super) rax: Vec<(u32, Rax)>,
    /// From this offset on, code lies out of the order of what it leads to.
    pub(super) out_of_order: u32,
    /// From this offset on, there are constants and jump tables.
    pub(super) words_at: u32,
    /// Calls that are made like the original does: the offset where each comes back, and where it comes back at home.
    pub(super) returns: Vec<(u32, LinkAddr)>,
    /// Calls that no mark stands behind, where contexts are counted.
    pub(super) unmarked: Vec<UnmarkedCall>,
    pub(super) direct_jumps: Vec<DirectBranch>,
    /// The offset where callers of the module enter that hand over its node, and where those do that call through the linkage table.
    pub(super) entered_with_node: Option<[u32; 2]>,
    /// Jumps to one address: where each stands at home, its end in the copy, and where it leads.
    jumps: Vec<(u64, u32, u64)>,
    /// Offset of the copy of each instruction with what is inserted before it, by its address.
    places: FxHashMap<u64, u32>,
    /// Instructions that read a jump table of the copy.
    pub(super) table_reads: Vec<TableRead>,
    /// Calls and jumps that go through the word that a stub of the linkage table reads, by their addresses at home.
    pub(super) through_slots: Vec<u64>,
    /// Calls through a word beside the code, which is not of ours: the offset where each ends, and the word.
    pub(super) word_calls: Vec<(u32, u64)>,
    /// Offsets of what is inserted where control comes from home, or through a table, by the address where it does.
    arrivals: BTreeMap<u64, u32>,
}

/// What a copy is written of.
pub(super) struct Source<'s, 'g, 'a> {
    pub(super) body: &'s Body<'g, 'a>,
    pub(super) plan: &'s Plan,
    /// How the procedure uses its frame, if that is enlarged.
    pub(super) frame: &'s Frame,
    /// What is live before each instruction, if something is inserted.
    pub(super) live: &'s FxHashMap<LinkAddr, LiveSet>,
    /// The calls that the copy makes with the return address at home, and those that it makes like the original does.
    pub(super) from_copy: &'s BTreeSet<u64>,
    pub(super) in_copy: &'s BTreeSet<u64>,
    /// Of the latter, those whose callees may be handed their nodes, and the register for it.
    pub(super) handing: &'s BTreeMap<u64, Register>,
    /// The register in which its own node is handed over by callers of the module.
    pub(super) handed_in: Option<Register>,
    pub(super) tables: &'s CopiedTables,
}

impl Source<'_, '_, '_> {
    /// Writes what is inserted at a place, which leads to an instruction.
    fn insert(&self, out: &mut Assembler, place: Place, to: LinkAddr) -> Result<(), Refusal> {
        inserted::write(out, self.plan, self.plan.at(place), self.spot(place, to))
    }

    /// The edges that control may come from home by, by where they lead: where each begins, and whether it does for sure.
    fn edges_through_home(&self) -> FxHashMap<LinkAddr, Vec<(LinkAddr, bool)>> {
        let body = self.body;
        let is_home_call = |block: usize| {
            let last = body.steps_of(block).and_then(<[Step<'_>]>::last);
            last.is_none_or(|last| !self.in_copy.contains(&last.at))
        };
        let mut edges: FxHashMap<LinkAddr, Vec<(LinkAddr, bool)>> = FxHashMap::default();
        for (number, block) in body.graph.blocks.iter().enumerate() {
            for (target, kind) in body.graph.edges_of(number as u32) {
                let is_sure = match kind {
                    EdgeKind::Table | EdgeKind::LandingPad => true,
                    EdgeKind::AfterCall => is_home_call(number),
                    _ => continue,
                };
                if let Some(target) = body.graph.blocks.get(target as usize) {
                    edges.entry(target.code.start).or_default().push((block.code.start, is_sure));
                }
            }
        }
        edges
    }

    /// Whether what is inserted on an edge stands where control comes from home, by the edges to the same place that do. Fails if other
    /// ways lead there, too, so that home cannot tell which one it was.
    fn edge_is_through_home(&self, edges: &[(LinkAddr, bool)], from: LinkAddr, to: LinkAddr) -> Result<bool, Refusal> {
        // Whether the edge comes from home for sure, if it may at all; and whether another way does.
        let (mut own, mut has_others) = (None, self.body.is_entered_at(to));
        for &(begin, is_sure) in edges {
            if begin == from && own.is_none() {
                own = Some(is_sure);
            } else {
                has_others |= is_sure;
            }
        }
        match own {
            Some(true) if has_others => Err(Refusal { at: to, reason: Reason::SharedEdge }),
            // The copy itself passes it, behind the call.
            Some(false) if has_others => Ok(false),
            own => Ok(own.is_some()),
        }
    }

    /// Calls what a pointer leads to by way of its node, if the call is one through a pointer: the label of what is to be written
    /// apart. `sites`: how many call sites come before.
    fn dispatch(&self, out: &mut Assembler, step: &Step<'_>, sites: u16) -> Option<(usize, Dispatch)> {
        let word = self.plan.context_word().and_then(Cell::offset_in_activation)?;
        let contexts = self.plan.contexts()?;
        let pointer = Pointer::of(step).filter(|pointer| !pointer.uses(contexts::HANDED))?;
        let origin = LinkAddr(step.at);
        let live = self.live.get(&origin).copied().unwrap_or(LiveSet::ALL);
        let is_live = live.has_flags() || live.general() >> contexts::HANDED & 1 != 0;
        if is_live || sites >= contexts::MOST_HANDING {
            return None;
        }
        let apart = out.label();
        let site = Site { word, before: self.frame.before(origin), slot: sites + 1 };
        let [_, spill] = self.plan.spills();
        let dispatch = Dispatch { contexts, site, pointer, spill };
        dispatch.by_first(out, apart).then_some((apart, dispatch))
    }

    /// What is known of a place, which leads to an instruction.
    pub(super) fn spot(&self, place: Place, to: LinkAddr) -> Spot {
        // Outside of the procedure nothing is known.
        let live = self.live.get(&to).copied().unwrap_or(LiveSet::ALL);
        let is_boundary = match place {
            Place::Entry => true,
            Place::Before(at) => self.body.leaves_at(at.0),
            Place::Edge(_, to) => self.body.step_at(to.0).is_none(),
            Place::AfterCall(_) | Place::Arrival(_) => false,
        };
        let frame = match place {
            Place::Entry => Some(Height::AT_ENTRY),
            Place::Edge(from, _) => self.frame.behind(from),
            Place::Before(_) | Place::AfterCall(_) | Place::Arrival(_) => self.frame.before(to),
        };
        Spot { at: to, live, frame, is_boundary }
    }

    /// Gives the frame the size that it has at home, where control leaves the procedure: `frame` is how its CFA is found
    /// there.
    fn shrink(&self, out: &mut Assembler, frame: Option<Height>, at: u64) -> Result<(), Refusal> {
        let bytes = self.plan.enlarged_by();
        if bytes == 0 {
            return Ok(());
        }
        if frame != Some(Height::AT_ENTRY) {
            return Err(Refusal { at: LinkAddr(at), reason: Reason::FrameUnknown });
        }
        out.bytes(&encode::move_rsp_far(bytes as i32));
        out.set_enlarged(0);
        Ok(())
    }

    /// Behind code that leaves the procedure, the frame is larger again.
    fn enlarge_again(&self, out: &mut Assembler) {
        if self.plan.enlarged_by() > 0 {
            out.set_enlarged(self.plan.enlarged_by());
        }
    }

    /// Whether control that comes to an address has left the procedure, whose frame is to have its size again.
    fn is_outside(&self, to: u64) -> bool {
        self.plan.enlarged_by() > 0 && self.body.step_at(to).is_none()
    }
}

/// A call through a pointer, out of line, where what it leads to is not the first node of the call site.
struct OtherCall<'a> {
    label: usize,
    step: Step<'a>,
    dispatch: Dispatch,
    origin: LinkAddr,
    /// Where it comes back at home, and what the code behind it leads to.
    comes_back: [LinkAddr; 2],
    /// What stands behind it, and where it goes on.
    mark: [u8; CallMark::LEN_BYTES],
    back: usize,
}

/// Code inserted on an edge, out of line: `jumps to it`, and where it leads.
struct Stub {
    edge: (u64, u64),
    label: usize,
}

impl Copy {
    /// Writes it twice: it only becomes shorter by jumps that need no more than one byte for their distance, and so does every
    /// distance.
    pub(super) fn new(source: &Source<'_, '_, '_>, at: LinkAddr) -> Result<Copy, Refusal> {
        let long = Copy::write(source, at, &FxHashSet::default())?;
        let near = long.near_jumps();
        if near.is_empty() { Ok(long) } else { Copy::write(source, at, &near) }
    }

    /// Jumps, by where they stand at home, whose distance fits into one byte.
    fn near_jumps(&self) -> FxHashSet<u64> {
        let is_near = |&(_, end, to): &(u64, u32, u64)| {
            let to = self.places.get(&to).map(|&to| i64::from(to) - i64::from(end));
            to.is_some_and(|distance| i8::try_from(distance).is_ok())
        };
        // An instruction may stand in several blocks.
        let far: FxHashSet<u64> = self.jumps.iter().filter(|jump| !is_near(jump)).map(|jump| jump.0).collect();
        self.jumps.iter().map(|jump| jump.0).filter(|at| !far.contains(at)).collect()
    }

    fn write(source: &Source<'_, '_, '_>, at: LinkAddr, near: &FxHashSet<u64>) -> Result<Copy, Refusal> {
        let Source { body, plan, .. } = source;
        let mut copy = Copy { at, ..Copy::default() };
        let mut out = Assembler::new(at.0);
        let mut stubs: Vec<Stub> = Vec::new();
        let mut other_calls: Vec<OtherCall<'_>> = Vec::new();
        let mut not_found: Option<NotFound> = None;
        let (mut sites, mut second_slots) = (0u16, 0u16);
        // Behind blocks that lead to themselves.
        let mut ends: FxHashMap<u64, usize> = FxHashMap::default();
        // Cold parts may come first.
        source.enlarge_again(&mut out);
        for (number, steps) in body.blocks.iter().enumerate() {
            let steps = body.steps.get(steps.clone()).unwrap_or(&[]);
            let block = &body.graph.blocks[number];
            if block.code.start == body.entry() {
                not_found = copy.write_entry(source, &mut out)?;
            }
            for step in steps {
                let offset = out.offset();
                let origin = LinkAddr(step.at);
                let (is_in_copy, is_from_copy) =
                    (source.in_copy.contains(&step.at), source.from_copy.contains(&step.at));
                let leaves = step.never_continues() && body.leaves_at(step.at);
                copy.origins.push((offset, origin));
                copy.places.entry(step.at).or_insert(offset);
                if !plan.at(Place::Before(origin)).is_empty() {
                    source.insert(&mut out, Place::Before(origin), origin)?;
                    copy.origins.push((out.offset(), origin));
                }
                if leaves && plan.enlarged_by() > 0 {
                    source.shrink(&mut out, source.frame.before(origin), step.at)?;
                    copy.origins.push((out.offset(), origin));
                }
                let to = step.jump_target().map_or(Target::Copied(step.at), |to| {
                    let is_left = source.is_outside(to) && step.continues();
                    if plan.at(Place::Edge(block.code.start, LinkAddr(to))).is_empty() && !is_left {
                        return Target::Copied(to);
                    }
                    let label = out.label();
                    stubs.push(Stub { edge: (block.code.start.0, to), label });
                    Target::Label(label)
                });
                let mut dispatched = None;
                match plan.bias().filter(|_| is_from_copy) {
                    Some(bias) => calls::write(&mut out, step, bias),
                    // At an exit the frame has been made smaller before.
                    None if leaves && plan.enlarged_by() > 0 && jumps_through_stack(step) => {
                        return Err(Refusal { at: origin, reason: Reason::FrameUnknown });
                    }
                    None if plan.enlarged_by() > 0 && source.frame.above().binary_search(&step.at).is_ok() => {
                        let moved = displaced_by(step.bytes, source.plan.enlarged_by() as i32);
                        out.bytes(&moved.ok_or(Refusal { at: origin, reason: Reason::FrameUnknown })?);
                    }
                    None if is_in_copy => {
                        let word = plan.context_word().and_then(Cell::offset_in_activation);
                        let register = source.handing.get(&step.at).filter(|_| sites < contexts::MOST_HANDING);
                        let hands_node = word.zip(register).is_some_and(|(word, register)| {
                            // The first slot of the site is for whoever else is entered there.
                            let slot = sites.saturating_add(2);
                            let site = Site { word, before: source.frame.before(origin), slot };
                            contexts::hand_over(&mut out, site, *register)
                        });
                        second_slots = u16::from(hands_node);
                        dispatched = if hands_node { None } else { source.dispatch(&mut out, step, sites) };
                        if dispatched.is_none() {
                            calls::write_copied(&mut out, step, hands_node);
                            let word = calls::called_through(step).filter(|_| !hands_node);
                            copy.word_calls.extend(word.map(|word| (out.offset(), word)));
                        }
                    }
                    None if near.contains(&step.at) => write_near(&mut out, step, to),
                    None => match source.tables.read_by(step) {
                        Some(LongDisplacement { bytes, at: displacement_at, value, .. }) => {
                            let displacement_at = out.offset() + displacement_at as u32;
                            copy.table_reads.push(TableRead { at: step.at, displacement_at, displacement: value });
                            out.bytes(&bytes);
                        }
                        None => write(&mut out, step, to),
                    },
                }
                if let (Motion::Branch(_) | Motion::Jump, Target::Copied(to)) = (step.motion, to) {
                    copy.jumps.push((step.at, out.offset(), to));
                }
                let is_own = match step.motion {
                    Motion::Call => is_in_copy || is_from_copy,
                    _ => matches!(to, Target::Copied(_)),
                };
                if step.slot.is_some() && is_own {
                    copy.through_slots.push(step.at);
                }
                if leaves {
                    source.enlarge_again(&mut out);
                }
                if step.motion == Motion::Call && plan.notes_activations() {
                    let site = sites.saturating_add(1);
                    let returns_to = if is_in_copy { at.0 + u64::from(out.offset()) } else { step.end() };
                    let call = UnmarkedCall::new(LinkAddr(returns_to), source.frame.before(origin), site);
                    let is_new = |call: &UnmarkedCall| copy.unmarked.iter().all(|it| it.returns_to != call.returns_to);
                    if let Some(call) = call.filter(|call| call.site > sites && is_new(call)) {
                        copy.unmarked.push(call);
                        sites = site;
                    }
                }
                if is_in_copy {
                    // Behind a call that does not return there may be another procedure.
                    let end = LinkAddr(step.end());
                    let behind = body.graph.block_at(end).map_or(origin, |_| end);
                    copy.returns.push((out.offset(), end));
                    if let Some(word) = plan.context_word().and_then(Cell::offset_in_activation) {
                        let unknown = Refusal { at: origin, reason: Reason::FrameUnknown };
                        sites = sites.checked_add(1).ok_or(unknown)?;
                        let mark = contexts::mark(word, source.frame.before(origin), sites).ok_or(unknown)?;
                        copy.origins.push((out.offset(), behind));
                        out.bytes(&mark);
                        if let Some((label, dispatch)) = dispatched {
                            let back = out.label();
                            out.set_label(back);
                            let (step, comes_back) = (*step, [end, behind]);
                            other_calls.push(OtherCall { label, step, dispatch, origin, comes_back, mark, back });
                        }
                        sites = sites.checked_add(std::mem::take(&mut second_slots)).ok_or(unknown)?;
                    }
                    if !plan.at(Place::AfterCall(origin)).is_empty() {
                        copy.origins.push((out.offset(), behind));
                        source.insert(&mut out, Place::AfterCall(origin), behind)?;
                    }
                }
            }
            if turns::of(source, block.code.start).is_some() {
                let label = out.label();
                out.set_label(label);
                ends.insert(block.code.start.0, label);
            }
            // Behind the instructions that could be read.
            let end = steps.last().map_or(block.code.start.0, Step::end);
            if !steps.last().is_none_or(|last| last.continues() && body.comes_back(last)) {
                continue;
            }
            let is_home_call = |last: &Step<'_>| last.motion == Motion::Call && !source.in_copy.contains(&last.at);
            let is_after_call = steps.last().is_some_and(is_home_call);
            let edge = Place::Edge(block.code.start, LinkAddr(end));
            let next = body.graph.blocks.get(number + 1).map(|next| next.code.start.0);
            if !plan.at(edge).is_empty() && !is_after_call {
                copy.origins.push((out.offset(), LinkAddr(end)));
                source.insert(&mut out, edge, LinkAddr(end))?;
            }
            if next != Some(end) {
                copy.origins.push((out.offset(), LinkAddr(end)));
                let is_left = source.is_outside(end);
                if is_left {
                    source.shrink(&mut out, source.frame.behind(block.code.start), end)?;
                }
                out.jump(Target::Copied(end));
                if is_left {
                    source.enlarge_again(&mut out);
                }
            }
        }
        copy.out_of_order = out.offset();
        for Stub { edge: (from, to), label } in stubs {
            copy.origins.push((out.offset(), LinkAddr(to)));
            out.set_label(label);
            source.insert(&mut out, Place::Edge(LinkAddr(from), LinkAddr(to)), LinkAddr(to))?;
            if source.is_outside(to) {
                source.shrink(&mut out, source.frame.behind(LinkAddr(from)), to)?;
            }
            let end = ends.get(&from).copied().filter(|_| from == to);
            if let Some((turned, end)) = turns::of(source, LinkAddr(from)).zip(end) {
                turned.write(source, (&mut out, &mut copy.origins), end)?;
                continue;
            }
            out.jump(Target::Copied(to));
            if source.is_outside(to) {
                source.enlarge_again(&mut out);
            }
        }
        for OtherCall { label, step, dispatch, origin, comes_back: [end, behind], mark, back } in other_calls {
            let come_back = |copy: &mut Copy, out: &mut Assembler| {
                copy.returns.push((out.offset(), end));
                copy.origins.push((out.offset(), behind));
                out.bytes(&mark);
                out.jump(Target::Label(back));
            };
            copy.origins.push((out.offset(), origin));
            out.set_label(label);
            if let Some(missing) = dispatch.by_table(&mut out) {
                come_back(&mut copy, &mut out);
                copy.origins.push((out.offset(), origin));
                out.set_label(missing.label);
                out.bytes(&missing.restores);
            }
            calls::write_copied(&mut out, &step, false);
            copy.word_calls.extend(calls::called_through(&step).map(|word| (out.offset(), word)));
            come_back(&mut copy, &mut out);
        }
        if let Some(not_found) = not_found {
            copy.origins.push((out.offset(), LinkAddr(body.entry().0)));
            let entered = not_found.write(&mut out, sites);
            if let (Some([_, by_linkage]), Some(offset)) = (&mut copy.entered_with_node, out.offset_of(entered)) {
                *by_linkage = offset;
            }
        }
        copy.write_arrivals(source, &mut out)?;
        copy.origins.extend(out.write_apart()?);
        copy.words_at = out.offset();
        out.write_words();
        copy.lowered = out.take_lowered();
        copy.enlarged = out.take_enlarged();
        copy.rax = out.take_rax();
        (copy.code, copy.direct_jumps) = out.finish(|address| copy.places.get(&address).copied())?;
        let mut code = std::mem::take(&mut copy.code);
        source.tables.write((at, &mut code), &copy.table_reads, |address| copy.of(address))?;
        copy.code = code;
        Ok(copy)
    }

    /// Writes what a call of the procedure begins with, and goes on from there to its first instruction.
    fn write_entry(&mut self, source: &Source<'_, '_, '_>, out: &mut Assembler) -> Result<Option<NotFound>, Refusal> {
        let (entry, bytes) = (source.body.entry(), source.plan.enlarged_by());
        let contexts = source.plan.contexts();
        if bytes == 0 && source.plan.at(Place::Entry).is_empty() && contexts.is_none() {
            return Ok(None);
        }
        self.arrivals.insert(entry.0, out.offset());
        self.origins.push((out.offset(), entry));
        if bytes > 0 {
            out.set_enlarged(0);
        }
        let spot = source.spot(Place::Entry, entry);
        let not_found = match contexts {
            Some(contexts) => {
                let (entered, not_found) = contexts::write(out, source.plan, (contexts, source.handed_in), spot);
                self.entered_with_node = entered.map(|entered| [entered; 2]);
                Some(not_found)
            }
            None => {
                contexts::enlarge(out, bytes);
                None
            }
        };
        // It may count in the context.
        source.insert(out, Place::Entry, entry)?;
        Ok(not_found)
    }

    /// Writes what is inserted where control comes from home: at the entry, behind calls, at targets of tables and
    /// landing pads.
    fn write_arrivals(&mut self, source: &Source<'_, '_, '_>, out: &mut Assembler) -> Result<(), Refusal> {
        let Source { body, plan, .. } = source;
        let mut arriving: BTreeMap<u64, Vec<Place>> = BTreeMap::new();
        let has_edges = plan.places().any(|place| matches!(place, Place::Edge(..)));
        let through_home = if has_edges { source.edges_through_home() } else { FxHashMap::default() };
        let edges_to = |to: LinkAddr| through_home.get(&to).map_or(&[][..], Vec::as_slice);
        for place in plan.places() {
            let to = match place {
                Place::Entry => body.entry().0,
                Place::Arrival(to) => to.0,
                Place::AfterCall(call) => body.step_at(call.0).map_or(call.0, Step::end),
                Place::Edge(from, to) if source.edge_is_through_home(edges_to(to), from, to)? => to.0,
                _ => continue,
            };
            let before = arriving.entry(to).or_default();
            // The way behind a call may be an edge, too. Of others home cannot tell which it was.
            let is_same_way = |before: &Place| matches!((before, place), (Place::Edge(..), Place::AfterCall(_)));
            if !before.iter().all(is_same_way) {
                return Err(Refusal { at: LinkAddr(to), reason: Reason::SharedEdge });
            }
            before.push(place);
        }
        if self.arrivals.contains_key(&body.entry().0) && body.comes_home_to(body.entry()) {
            return Err(Refusal { at: body.entry(), reason: Reason::SharedEdge });
        }
        arriving.remove(&body.entry().0);
        for (to, places) in arriving {
            self.arrivals.insert(to, out.offset());
            self.origins.push((out.offset(), LinkAddr(to)));
            for place in places {
                source.insert(out, place, LinkAddr(to))?;
            }
            out.jump(Target::Copied(to));
        }
        Ok(())
    }

    /// Where the copy of an instruction lies, by its address, for control that comes from home.
    pub(super) fn of(&self, address: u64) -> Option<u64> {
        let offset = self.arrivals.get(&address).or_else(|| self.places.get(&address));
        offset.map(|&offset| self.at.0.wrapping_add(offset.into()))
    }
}

/// Writes a jump with a distance of one byte.
fn write_near(out: &mut Assembler, step: &Step<'_>, to: Target) {
    match step.motion {
        Motion::Branch(condition) => out.near_to(encoding::near_branch(condition), to),
        _ => out.near_to(encoding::SHORT_JUMP, to),
    }
}

/// Writes an instruction. `to`: where it leads, if it is a jump.
pub(super) fn write(out: &mut Assembler, step: &Step<'_>, to: Target) {
    match step.motion {
        Motion::Verbatim => out.bytes(step.bytes),
        Motion::BesideCode(displacement_at) => {
            let address = step.instruction.beside_code(step.end()).unwrap_or(0);
            out.with_displacement(step.bytes, displacement_at, Target::Fixed(address));
        }
        Motion::Branch(condition) => out.opcode_to(&encoding::branch(condition), to),
        Motion::ShortBranch => {
            // Onto the second jump, or over it by the first.
            let opcode = step.bytes.split_last().map_or(&[][..], |(_, opcode)| opcode);
            out.bytes(opcode);
            out.bytes(&[encoding::SHORT_JUMP_BYTES, encoding::SHORT_JUMP, encoding::JUMP_BYTES]);
            out.jump(to);
        }
        Motion::Transaction => {
            let opcode = step.bytes.len().saturating_sub(4);
            out.opcode_to(step.bytes.get(..opcode).unwrap_or(&[]), to);
        }
        Motion::Jump => match (step.slot, to) {
            (Some(slot), Target::Copied(_)) => out.opcode_to(&encode::JUMP_BESIDE_CODE, Target::Fixed(slot)),
            _ => out.jump(to),
        },
        Motion::Call => out.jump(Target::Fixed(step.at)),
    }
}

/// Whether it jumps to what is on the stack, as far as that can be seen.
fn jumps_through_stack(step: &Step<'_>) -> bool {
    let is_stack = |memory: Memory| matches!(memory.base.general64(), Some(RSP | RBP));
    step.instruction.control() == Control::JumpIndirect && step.instruction.memory().is_some_and(is_stack)
}
